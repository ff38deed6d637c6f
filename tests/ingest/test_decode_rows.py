"""Logs and structured data: a line is a row, refused for its first bad field."""

from __future__ import annotations

import json

import pytest

from schema.streams import StreamKind
from tests.ingest.bodies import NOW_MS, decode, errors, lines, rows

LOG = {"time": NOW_MS, "message": "hello", "lineNumber": 1, "logType": "INFO"}
DATA = {"time": NOW_MS, "step": 2, "logName": "a/h", "dataType": "HISTOGRAM", "data": '{"v":1}'}
MISSING = object()


def changed(document, field, value):
    return {k: v for k, v in {**document, field: value}.items() if v is not MISSING}


def test_a_log_line_becomes_a_row():
    (row,) = rows(decode(json.dumps(LOG), StreamKind.LOGS))
    assert row == {
        "tenantId": "acme",
        "projectName": "fit",
        "runId": 7,
        "logType": "INFO",
        "time": NOW_MS,
        "lineNumber": 1,
        "message": "hello",
        "step": 0.0,
    }


def test_a_data_line_becomes_a_row():
    (row,) = rows(decode(json.dumps(DATA), StreamKind.DATA))
    assert row == {
        "tenantId": "acme",
        "projectName": "fit",
        "runId": 7,
        "logGroup": "a",
        "logName": "a/h",
        "dataType": "HISTOGRAM",
        "time": NOW_MS,
        "step": 2.0,
        "data": '{"v":1}',
    }


@pytest.mark.parametrize("message", ["", " ", "\0", "[rank0] },\n{", "é 😀", "x" * 1_000_000])
def test_a_message_may_be_any_text(message):
    (row,) = rows(decode(json.dumps(changed(LOG, "message", message)), StreamKind.LOGS))
    assert row["message"] == message


@pytest.mark.parametrize(
    ("sent", "stored"), [(0, 0), (2**64 - 1, 2**64 - 1), (5.0, 5), (2**63, 2**63)]
)
def test_line_numbers_take_64_bits(sent, stored):
    (row,) = rows(decode(json.dumps(changed(LOG, "lineNumber", sent)), StreamKind.LOGS))
    assert row["lineNumber"] == stored


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("time", value) for value in (MISSING, None, "1", 1_764_423_221, True, 1.5)),
        *(("message", value) for value in (MISSING, None, 5, [], {}, False)),
        *(
            ("lineNumber", value)
            for value in (MISSING, None, "1", -1, 2**64, 1.5, True, float("nan"))
        ),
        *(("logType", value) for value in (MISSING, None, "", " \n", 5)),
    ],
)
def test_a_bad_field_refuses_its_log_line_alone(field, value):
    decoded = decode(lines([LOG, changed(LOG, field, value), LOG]), StreamKind.LOGS)
    assert (decoded.accepted, decoded.rejected, errors(decoded)) == (2, 1, [(2, field)])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("time", value) for value in (MISSING, None, "1", 0)),
        *(("step", value) for value in ("1", True, [], float("inf"), 2**53 + 1)),
        *(("data", value) for value in (MISSING, None, 5, [], {})),
        *(("dataType", value) for value in (MISSING, None, "", " ", 5, "x" * 65_537)),
        *(("logName", value) for value in (MISSING, None, "", "\t", 5, "x" * 65_537)),
    ],
)
def test_a_bad_field_refuses_its_data_line_alone(field, value):
    decoded = decode(lines([DATA, changed(DATA, field, value), DATA]), StreamKind.DATA)
    assert (decoded.accepted, decoded.rejected, errors(decoded)) == (2, 1, [(2, field)])


def test_a_missing_or_null_step_of_data_is_zero():
    body = lines([changed(DATA, "step", MISSING), changed(DATA, "step", None)])
    assert [row["step"] for row in rows(decode(body, StreamKind.DATA))] == [0.0, 0.0]


def test_a_line_with_several_bad_fields_is_one_refusal():
    decoded = decode('{"time":5,"message":5}', StreamKind.LOGS)
    assert (decoded.rejected, errors(decoded)) == (1, [(1, "time")])


def test_lone_surrogates_of_texts_become_replacement_characters():
    body = json.dumps({**LOG, "message": "a\ud800b"}) + "\n" + json.dumps({**LOG, "message": "😀"})
    assert [row["message"] for row in rows(decode(body, StreamKind.LOGS))] == ["a\ufffdb", "😀"]


def test_unknown_fields_of_logs_are_counted():
    decoded = decode(json.dumps({**LOG, "step": 1, "host": "n1"}), StreamKind.LOGS)
    assert (decoded.accepted, decoded.unknown_fields) == (1, 2)


def test_times_a_day_ahead_are_counted_in_logs_and_data():
    ahead = NOW_MS + 10 * 86_400_000
    for document, kind in ((LOG, StreamKind.LOGS), (DATA, StreamKind.DATA)):
        decoded = decode(json.dumps({**document, "time": ahead}), kind)
        assert (decoded.accepted, decoded.future_rows) == (1, 1)


def test_rows_of_megabytes_split_into_frames_that_hold_at_least_one():
    sizes = [3_000_000, 2_000_000, 6_000_000, 10]
    body = lines({**DATA, "data": "é" * (size // 2)} for size in sizes)
    decoded = decode(body.encode("unicode_escape").decode(), StreamKind.DATA)
    assert decoded.accepted == 0, "escapes of the wrong kind: not JSON"
    raw = "\n".join(
        json.dumps({**DATA, "data": "é" * (size // 2)}, ensure_ascii=False) for size in sizes
    )
    decoded = decode(raw, StreamKind.DATA)
    assert [len(row["data"].encode()) for row in rows(decoded)] == sizes
    assert [chunks.row_count for chunks in decoded.chunks] == [1, 1, 1, 1]


def test_more_log_lines_than_a_frame_holds_make_several_frames():
    body = "\n".join([json.dumps(LOG)] * 70_000)
    decoded = decode(body, StreamKind.LOGS)
    assert decoded.accepted == 70_000
    assert all(chunks.row_count <= 65_536 for chunks in decoded.chunks)


def test_files_do_not_come_in_lines():
    with pytest.raises(ValueError, match="FILES"):
        decode("", StreamKind.FILES)
