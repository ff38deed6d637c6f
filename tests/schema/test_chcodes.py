import re

import pytest

from schema.chcodes import NAMES, SERVER_CODES, ErrorClass, classify
from schema.native import encode_block

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
        *((code, O) for code in (6, 60, 81, 16, 50, 53, 115, 164, 192, 193, 194, 497, 516)),
        *((code, U) for code in (27, 33, 117, 62)),
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


BLOCK = encode_block([("s", "String", ["x", "1"]), ("n", "UInt64", [1, 2])])
PLAIN = "s String, n UInt64"


@pytest.mark.parametrize(
    ("columns", "block", "expected"),
    [
        (PLAIN, BLOCK[:-3], U),
        (PLAIN, b"\xff" * 50, U),
        (PLAIN, b"hello, this is no block", U),
        ("s String", BLOCK, U),
        (PLAIN, BLOCK.replace(b"UInt64", b"UInt65"), O),
        ("s UInt64, n UInt64", BLOCK, O),
        ("s UUID, n UInt64", BLOCK, O),
        ("s Array(UInt64), n Array(UInt64)", BLOCK, O),
        (f"{PLAIN}, CONSTRAINT few CHECK n < 2", BLOCK, R),
        ("s Enum8('a' = 7), n UInt64", BLOCK, R),
        (
            "t DateTime64(9)",
            encode_block([("t", "DateTime64(3, 'UTC')", [10_413_791_999_999])]),
            R,
        ),
    ],
)
def test_what_the_engine_says_of_a_bad_block_has_the_right_class(
    engine, database, columns, block, expected
):
    engine.rows(f"CREATE TABLE {database}.t ({columns}) ENGINE = MergeTree ORDER BY tuple()")
    assert failure(engine, f"INSERT INTO {database}.t", block) is expected
    assert engine.value(f"SELECT count() FROM {database}.t") == 0


def failure(engine, target, block=BLOCK, **settings):
    """The class of the error that an insert ends with."""
    with pytest.raises(RuntimeError) as caught:
        engine.insert(target, block, **settings)
    return classify(int(re.search(r"Code: (\d+)", str(caught.value))[1]), 500)


def test_what_the_engine_says_of_a_bad_statement_is_the_operators(engine, database):
    engine.rows(f"CREATE TABLE {database}.t (s String, n UInt64 MATERIALIZED 1) ENGINE = Memory")
    for target in (
        "no_such_database.t",
        f"{database}.no_such_table",
        f"{database}.t (s, no_such_column)",
        f"{database}.t (s, n)",
    ):
        assert failure(engine, f"INSERT INTO {target}") is O, target
    assert failure(engine, f"INSERT INTO {database}.t (s)", no_such_setting=1) is O


def test_an_error_of_a_view_is_the_operators_because_the_source_has_the_rows(engine, database):
    window = "SETTINGS non_replicated_deduplication_window = 100"
    engine.rows(f"CREATE TABLE {database}.t ({PLAIN}) ENGINE = MergeTree ORDER BY n {window}")
    engine.rows(f"CREATE TABLE {database}.u (v UInt64) ENGINE = MergeTree ORDER BY v {window}")
    view = f"CREATE MATERIALIZED VIEW {database}.view TO {database}.u AS SELECT"
    for expression in ("toUInt64(s)", "throwIf(n = 2)"):
        engine.rows(f"{view} {expression} AS v FROM {database}.t")
        assert failure(engine, f"INSERT INTO {database}.t", token="same") is O
        engine.rows(f"DROP VIEW {database}.view SYNC")
    assert engine.value(f"SELECT count() FROM {database}.t") == 2
    engine.rows(f"{view} n AS v FROM {database}.t")
    engine.insert(f"INSERT INTO {database}.t", BLOCK, token="same")
    assert engine.value(f"SELECT count() FROM {database}.t") == 2
    assert engine.value(f"SELECT count() FROM {database}.u") == 2


def test_too_many_parts_is_transient(engine, database):
    engine.rows(
        f"CREATE TABLE {database}.t ({PLAIN}) ENGINE = MergeTree ORDER BY n SETTINGS"
        " parts_to_throw_insert = 1, parts_to_delay_insert = 1"
    )
    engine.rows(f"SYSTEM STOP MERGES {database}.t")
    engine.insert(f"INSERT INTO {database}.t", BLOCK)
    assert failure(engine, f"INSERT INTO {database}.t") is T
