"""When nothing was accepted, the answer says in a sentence what seems wrong."""

from __future__ import annotations

import gzip
import json

import pytest

from schema.streams import StreamKind
from tests.ingest.bodies import NOW_MS, decode, line

GOOD = {"time": NOW_MS, "step": 1, "data": {"x": 1}}
LOG = {"time": NOW_MS, "message": "m", "lineNumber": 1, "logType": "INFO"}
DATA = {"time": NOW_MS, "step": 1, "data": "{}", "dataType": "TABLE", "logName": "t"}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "holds no lines"),
        (b"\n \r\n\t", "holds no lines"),
        (json.dumps([GOOD]).encode(), "JSON array"),
        (json.dumps([GOOD], indent=2).encode(), "JSON array"),
        (b"\n\n  " + json.dumps([GOOD]).encode(), "JSON array"),
        (json.dumps(GOOD, indent=2).encode(), "each object on one line"),
        ((json.dumps(GOOD) + json.dumps(GOOD)).encode(), "each object on one line"),
        (b"loss=1,acc=2", "not JSON"),
        (b"loss,acc\n1,2\n3,4", "not JSON"),
        (line({"x": 1}, time=NOW_MS // 1000).encode(), "look like seconds"),
        (line({"x": None}).encode(), "nulls are passed over"),
        (line({"x": True}).encode(), "see errors"),
        (gzip.compress(line({"x": 1}).encode(), mtime=0), "Content-Encoding: gzip"),
        (json.dumps(LOG).encode(), "/ingest/logs"),
        (json.dumps(DATA).encode(), "/ingest/data"),
        (b"x" * 9_000_000, "too long"),
        (b"[" + b"1," * 5_000_000 + b"1]", "JSON array"),
    ],
)
def test_the_hint_says_what_seems_wrong(body, says):
    decoded = decode(body)
    assert decoded.accepted == 0
    assert says in decoded.hint


@pytest.mark.parametrize("kind", [StreamKind.LOGS, StreamKind.DATA])
def test_metrics_sent_elsewhere_are_told_where_to_go(kind):
    assert "/ingest/metrics" in decode(json.dumps(GOOD), kind).hint


def test_there_is_no_hint_where_a_row_was_accepted():
    assert decode(json.dumps(GOOD) + "\n[").hint is None
