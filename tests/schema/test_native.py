import struct
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schema.errors import MalformedNative, SchemaError, UnknownType
from schema.native import decode_blocks, encode_block
from tests.schema.frames import TEXTS

STRATEGIES = {
    "UInt8": st.integers(0, 2**8 - 1),
    "UInt16": st.integers(0, 2**16 - 1),
    "UInt32": st.integers(0, 2**32 - 1),
    "UInt64": st.integers(0, 2**64 - 1),
    "Int8": st.integers(-(2**7), 2**7 - 1),
    "Int16": st.integers(-(2**15), 2**15 - 1),
    "Int32": st.integers(-(2**31), 2**31 - 1),
    "Int64": st.integers(-(2**63), 2**63 - 1),
    "Float32": st.floats(width=32),
    "Float64": st.floats(),
    "Bool": st.booleans(),
    "DateTime64(3, 'UTC')": st.integers(0, 10_413_791_999_999),
    "DateTime64(6)": st.integers(0, 10_413_791_999_999_999),
    "String": TEXTS,
    "Nullable(String)": st.none() | TEXTS,
    "Nullable(Float64)": st.none() | st.floats(),
    "Nullable(UInt32)": st.none() | st.integers(0, 2**32 - 1),
    "LowCardinality(String)": TEXTS,
    "LowCardinality(Nullable(String))": st.none() | TEXTS,
}
TYPES = tuple(STRATEGIES)
COLUMNS_SQL = ", ".join(f"c{place} {name}" for place, name in enumerate(TYPES))


@st.composite
def blocks(draw, max_rows=20):
    rows = draw(st.integers(0, max_rows))
    return [
        (f"c{place}", name, draw(st.lists(STRATEGIES[name], min_size=rows, max_size=rows)))
        for place, name in enumerate(TYPES)
    ]


def exact(values):
    """Values with every bit of a float in sight."""
    return [struct.pack("<d", value) if isinstance(value, float) else value for value in values]


def assert_equal(block, columns):
    assert block.names == [name for name, _, _ in columns]
    assert block.types == [type_name for _, type_name, _ in columns]
    for (_, type_name, values), decoded in zip(columns, block.columns, strict=True):
        assert exact(decoded) == exact(values), type_name


@given(st.lists(blocks(max_rows=5), max_size=3))
def test_blocks_of_every_type_come_back(written):
    data = b"".join(map(encode_block, written))
    read = decode_blocks(data)
    assert len(read) == len(written)
    for block, columns in zip(read, written, strict=True):
        assert_equal(block, columns)


@pytest.mark.parametrize(
    ("type_name", "values", "golden"),
    [
        ("UInt8", [1, 255], "01ff"),
        ("UInt32", [1], "01000000"),
        ("Int64", [-2], "feffffffffffffff"),
        ("Float64", [1.0, float("-inf")], "000000000000f03f" + "000000000000f0ff"),
        ("Bool", [True, False], "0100"),
        ("DateTime64(3, 'UTC')", [1_764_423_221_123], "83bfd1cf9a010000"),
        ("String", ["", "é", "x" * 128], "00" + "02c3a9" + "8001" + "78" * 128),
        ("Nullable(String)", [None, "a"], "0100" + "00" + "0161"),
        (
            "LowCardinality(String)",
            ["b", "a", "b"],
            "0100000000000000" + "0006000000000000" + "0200000000000000" + "0162" + "0161"
            "0300000000000000" + "000100",
        ),
        (
            "LowCardinality(Nullable(String))",
            [None, "a"],
            "0100000000000000" + "0006000000000000" + "0200000000000000" + "00" + "0161"
            "0200000000000000" + "0001",
        ),
    ],
)
def test_a_column_has_these_bytes(type_name, values, golden):
    block = encode_block([("c", type_name, values)])
    head = bytes([1, len(values), 1]) + b"c" + bytes([len(type_name)]) + type_name.encode()
    assert block.hex() == head.hex() + golden
    assert decode_blocks(block)[0].columns == [values]


def test_an_empty_block_has_names_and_types_and_no_data():
    data = encode_block([("a", "LowCardinality(String)", []), ("b", "Float64", [])])
    assert data == b"\x02\x00\x01a\x16LowCardinality(String)\x01b\x07Float64"
    [block] = decode_blocks(data)
    assert (block.row_count, block.columns) == (0, [[], []])


def test_a_block_cut_off_anywhere_is_refused():
    types = ("String", "LowCardinality(String)", "Nullable(String)")
    data = encode_block([(type_name, type_name, ["x", "y"]) for type_name in types])
    for length in range(1, len(data)):
        with pytest.raises(SchemaError):
            decode_blocks(data[:length])


@given(blocks(max_rows=4), st.data())
def test_damaged_blocks_are_refused_or_read_but_never_crash(columns, draw):
    data = bytearray(encode_block(columns))
    at = draw.draw(st.integers(0, len(data) - 1))
    data[at] = draw.draw(st.integers(0, 255))
    with suppress(SchemaError):
        decode_blocks(bytes(data))


@pytest.mark.parametrize(
    "type_name",
    ["Decimal(9, 2)", "Array(String)", "LowCardinality(UInt8)", "Nullable(Nullable(String))"],
)
def test_a_type_that_is_not_ours_is_named(type_name):
    with pytest.raises(UnknownType, match="not written or read"):
        encode_block([("c", type_name, [1])])


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="b has 1 rows"):
        encode_block([("a", "UInt8", [1, 2]), ("b", "UInt8", [1])])


def test_a_head_that_announces_the_impossible_is_refused():
    with pytest.raises(MalformedNative, match="byte 0"):
        decode_blocks(b"\x01\xff\xff\xff\xff\x7f" + b"\1a\5UInt8")


@pytest.fixture(scope="module")
def table(engine):
    engine.rows("CREATE DATABASE native_test ENGINE = Atomic")
    engine.rows(f"CREATE TABLE native_test.t (n UInt32, {COLUMNS_SQL}) ENGINE = Memory")
    yield "native_test.t"
    engine.rows("DROP DATABASE native_test SYNC")


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(blocks(max_rows=12))
def test_the_engine_reads_what_we_write_and_we_read_what_it_writes(engine, table, columns):
    rows = len(columns[0][2])
    engine.rows(f"TRUNCATE TABLE {table}")
    engine.insert(
        f"INSERT INTO {table}", encode_block([("n", "UInt32", list(range(rows))), *columns])
    )
    assert engine.value(f"SELECT count() FROM {table}") == rows
    answer = decode_blocks(engine.native(f"SELECT * EXCEPT n FROM {table} ORDER BY n"))
    if rows:
        [block] = answer
        assert_equal(block, columns)


def test_the_engine_itself_writes_the_same_bytes_for_the_same_rows(engine):
    """LowCardinality apart, whose dictionary the engine begins with the empty string."""
    answer = engine.native(
        "SELECT toUInt8(number) AS a, if(number = 0, nan, -inf) AS b, toString(number * 1000) AS c,"
        " toDateTime64('2025-11-29 13:33:41.123', 3, 'UTC') AS d"
        " FROM numbers(2)"
    )
    assert answer == encode_block(
        [
            ("a", "UInt8", [0, 1]),
            ("b", "Float64", [float("nan"), float("-inf")]),
            ("c", "String", ["0", "1000"]),
            ("d", "DateTime64(3, 'UTC')", [1_764_423_221_123] * 2),
        ]
    )


def test_the_engine_writes_the_same_bytes_for_nulls(engine):
    answer = engine.native("SELECT d FROM values('d Nullable(String)', (NULL), ('x'))")
    assert answer == encode_block([("d", "Nullable(String)", [None, "x"])])


@pytest.mark.parametrize("distinct", [1, 255, 257, 65_537])
def test_dictionaries_of_every_index_width_pass_through_the_engine(engine, database, distinct):
    engine.rows(f"CREATE TABLE {database}.t (c LowCardinality(String)) ENGINE = Memory")
    values = [f"v{number % distinct}" for number in range(70_000)]
    block = encode_block([("c", "LowCardinality(String)", values)])
    engine.insert(f"INSERT INTO {database}.t", block)
    read = [value for (value,) in engine.rows(f"SELECT c FROM {database}.t")]
    assert read == values
