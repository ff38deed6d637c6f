"""The table of errors: one status a code, and the documentation says the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from buffer.errors import Broken, Closed, Damaged, LogFull, OutcomeUnknown, Unavailable
from ingest.answers import STATUS, Code, RequestRefused, code_of_status, refusal_of
from tests.ingest.serving import LINE, serving

PAGE = Path(__file__).resolve().parents[2] / "docs/ingest-api.md"


def test_f05_the_documented_codes_are_the_codes():
    rows = re.findall(r"^\| (\d{3}) \| `([A-Z_]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert {code: int(status) for status, code in rows} == {
        code.value: status for code, status in STATUS.items()
    }


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (LogFull("x"), Code.LOG_FULL),
        (OutcomeUnknown("x"), Code.OUTCOME_UNKNOWN),
        (Closed("x"), Code.SERVICE_UNAVAILABLE),
        (Unavailable("x"), Code.SERVICE_UNAVAILABLE),
    ],
)
def test_what_the_buffer_cannot_do_now_is_503_with_a_time(failure, code):
    refused = refusal_of(failure)
    assert refused is not None
    response = refused.response()
    assert (refused.code, response.status) == (code, 503)
    assert response.headers["Retry-After"] == "1"


def test_a_defect_of_the_buffer_is_not_told_as_something_that_clears():
    assert refusal_of(Broken("x")) is None
    assert refusal_of(Damaged("x")) is None


def test_retry_after_is_whole_seconds_and_never_0():
    refused = RequestRefused(Code.LOG_FULL, "x", retry_after_seconds=0.01)
    assert refused.response().headers["Retry-After"] == "1"
    refused = RequestRefused(Code.LOG_FULL, "x", retry_after_seconds=2.1)
    assert refused.response().headers["Retry-After"] == "3"


def test_every_status_of_the_http_layer_has_a_code():
    for status in (*range(400, 432), 500, 501, 503, 505):
        assert code_of_status(status) in Code
    assert code_of_status(431) is Code.MALFORMED_REQUEST


async def test_expectations_are_met_or_refused(tmp_path):
    async with serving(tmp_path) as server:
        assert (await server.post(body=LINE, expect100=True)).status == 200
        odd = await server.post(body=LINE, headers={"Expect": "miracles"})
        assert (odd.status, odd.json["code"]) == (417, "EXPECTATION_FAILED")
