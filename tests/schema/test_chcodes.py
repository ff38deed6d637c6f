import pytest

from schema.chcodes import NAMES, SERVER_CODES, ErrorClass, classify

T, O, R, U = ErrorClass.TRANSIENT, ErrorClass.OPERATOR, ErrorClass.ROWS, ErrorClass.OURS  # noqa: E741


def test_every_name_is_the_engines_own(engine):
    codes = ", ".join(map(str, NAMES))
    rows = engine.rows(f"SELECT arrayJoin([{codes}]) AS code, toString(errorCodeToName(code))")
    assert dict(rows) == dict(NAMES)


def test_every_code_says_where_its_class_is_known_from():
    assert all(len(row.source) > 10 for row in SERVER_CODES)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        *((code, T) for code in (252, 241, 242, 225, 999, 319, 159, 209, 210, 243, 394)),
        *((code, O) for code in (60, 81, 16, 50, 53, 115, 164, 192, 193, 194, 497, 516)),
        *((code, U) for code in (27, 33, 117)),
        (469, R),
        (123_456, O),
    ],
)
def test_a_code_has_its_class_whatever_the_status(code, expected):
    assert {classify(code, status) for status in (None, 200, 400, 404, 500, 503)} == {expected}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        *((status, T) for status in (None, 408, 429, 500, 502, 503, 504, 599)),
        *((status, O) for status in (200, 301, 307, 400, 401, 403, 404, 405, 413)),
    ],
)
def test_an_answer_without_a_code_is_judged_by_its_status(status, expected):
    assert classify(None, status) is expected
    assert classify(0, status) is expected
