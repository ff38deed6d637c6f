"""Blocks of ours in the real engine: every bit arrives, one block is one part and one token."""

import struct
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schema.block import build_block
from schema.ddl import create_table
from schema.layout import layout_of, live_layout
from schema.rows import MetricsRows, name_shape
from schema.streams import LOGS, METRICS, STREAMS
from tests.schema.frames import bits, data, files, logs, metrics, training_frame

BATCHES = count(1 << 32)


@pytest.fixture
def tables(engine, database):
    for stream in STREAMS.values():
        engine.rows(create_table(stream, database))
    return database


def parts(engine, database, table):
    return engine.rows(
        "SELECT name, rows FROM system.parts WHERE active AND"
        f" database = '{database}' AND table = '{table}' ORDER BY name"
    )


def tokens(engine, database, table):
    """The tokens that a table has noted, from the log that the engine keeps beside its parts."""
    [[path]] = engine.rows(
        "SELECT arrayElement(data_paths, 1) FROM system.tables WHERE"
        f" database = '{database}' AND name = '{table}'"
    )
    lines = []
    for log in sorted(Path(path, "deduplication_logs").glob("*")):
        lines += log.read_text().splitlines()
    return lines


@pytest.mark.parametrize(
    ("stream", "frames"),
    list(zip(STREAMS.values(), (metrics(), logs(), data(), files()), strict=True)),
    ids=[stream.table for stream in STREAMS.values()],
)
def test_every_row_of_every_stream_arrives_bit_for_bit(engine, tables, stream, frames):
    layout = layout_of(stream)
    names = [column.name for column in stream.columns]
    listed = ", ".join(names)

    @settings(max_examples=15, deadline=None)
    @given(st.lists(frames, min_size=1, max_size=3))
    def deliver(written):
        batch = next(BATCHES)
        block = build_block(layout, [builder.finish() for builder, _ in written], batch)
        engine.insert_block(layout, tables, block, token=str(batch))
        read = [
            dict(zip(names, row, strict=True))
            for row in engine.rows(
                f"SELECT {listed} FROM {tables}.{stream.table} WHERE batch = {batch}"
            )
        ]
        expected = [row | {"batch": batch} for _, rows in written for row in rows]
        assert sorted(map(repr, bits(read))) == sorted(map(repr, bits(expected)))

    deliver()


def test_nan_and_infinities_have_the_same_bits_in_the_engine(engine, tables):
    patterns = [0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000000, 0xFFF0000000000000]
    patterns += [0x7FEFFFFFFFFFFFFF, 0x8000000000000000, 0x0000000000000001]
    builder = MetricsRows("acme", "vision", 7)
    values = [struct.unpack("<d", struct.pack("<Q", pattern))[0] for pattern in patterns]
    builder.add_line(10**12, 0, name_shape([f"m{n}" for n in range(len(patterns))]), values)
    layout = layout_of(METRICS)
    engine.insert_block(layout, tables, build_block(layout, [builder.finish()], 1))
    rows = engine.rows(
        f"SELECT reinterpretAsUInt64(value) FROM {tables}.mlop_metrics ORDER BY logName"
    )
    assert [pattern for (pattern,) in rows] == patterns


def test_times_and_steps_mean_what_they_say(engine, tables):
    builder = MetricsRows("acme", "vision", 7)
    for time_ms, step in [(1_764_423_221_123, 2.5), (10**11, -5), (10_413_791_999_999, 2**53)]:
        builder.add_line(time_ms, step, name_shape(["x"]), [1.0])
    layout = layout_of(METRICS)
    engine.insert_block(layout, tables, build_block(layout, [builder.finish()], 1))
    text = engine.text(f"SELECT time, step FROM {tables}.mlop_metrics ORDER BY time", "CSV")
    assert text.splitlines() == [
        '"1973-03-03 09:46:40.000",-5',
        '"2025-11-29 13:33:41.123",2.5',
        '"2299-12-31 23:59:59.999",9007199254740992',
    ]


@pytest.mark.parametrize("rows", [1, 2_000, 1_000_000])
def test_a_block_is_one_part_and_one_token_and_a_retry_adds_nothing(engine, tables, rows):
    """Goal: what the engine must promise for exactly once, at the largest block there is."""
    lines = min(100, rows)
    names = min(20, rows)
    frames = [
        training_frame(lines, run=run, names=names) for run in range(1, rows // (lines * names) + 1)
    ]
    layout = layout_of(METRICS)
    block = build_block(layout, frames, 1)
    assert block.rows == rows
    engine.insert_block(layout, tables, block, token="shard:0-499:mlop_metrics:digest:0")
    [[part, stored]] = parts(engine, tables, "mlop_metrics")
    assert stored == rows
    assert len(tokens(engine, tables, "mlop_metrics")) == 1
    engine.insert_block(layout, tables, block, token="shard:0-499:mlop_metrics:digest:0")
    assert parts(engine, tables, "mlop_metrics") == [(part, rows)]
    assert len(tokens(engine, tables, "mlop_metrics")) == 1
    assert engine.value(f"SELECT count() FROM {tables}.mlop_metrics FINAL") == rows
    assert engine.value(f"SELECT count() FROM {tables}.mlop_metrics WHERE batch = 1") == rows


def test_an_empty_block_adds_no_part(engine, tables):
    layout = layout_of(METRICS)
    engine.insert_block(layout, tables, build_block(layout, [], 1), token="none")
    assert parts(engine, tables, "mlop_metrics") == []


def test_two_blocks_with_two_tokens_are_two_parts(engine, tables):
    engine.rows(f"SYSTEM STOP MERGES {tables}.mlop_metrics")
    layout = layout_of(METRICS)
    block = build_block(layout, [training_frame(1)], 1)
    engine.insert_block(layout, tables, block, token="first")
    engine.insert_block(layout, tables, block, token="second")
    assert [rows for _, rows in parts(engine, tables, "mlop_metrics")] == [20, 20]
    assert engine.value(f"SELECT count() FROM {tables}.mlop_metrics FINAL") == 20


def test_a_retry_adds_nothing_to_a_views_target_that_has_a_window(engine, tables):
    """F25: a table, and the target of each of its views, needs a window of its own."""
    engine.rows(
        f"CREATE TABLE {tables}.target (logName String, n UInt64) ENGINE = MergeTree"
        " ORDER BY logName SETTINGS non_replicated_deduplication_window = 10000"
    )
    engine.rows(
        f"CREATE MATERIALIZED VIEW {tables}.view TO {tables}.target AS SELECT logName,"
        f" count() AS n FROM {tables}.mlop_metrics GROUP BY logName"
    )
    layout = layout_of(METRICS)
    block = build_block(layout, [training_frame(10)], 1)
    for _ in range(3):
        engine.insert_block(layout, tables, block, token="once")
    assert engine.value(f"SELECT sum(n) FROM {tables}.target") == 200


def test_exact_repeats_collapse_and_a_step_logged_again_stays(engine, tables):
    shape = name_shape(["loss"])
    builder = MetricsRows("acme", "vision", 7)
    nan = float("nan")
    points = [(10**12, 1, 0.5), (10**12, 1, 0.5), (10**12 + 9, 1, 0.25), (10**12, 2, nan)]
    for time_ms, step, value in [*points, points[-1]]:
        builder.add_line(time_ms, step, shape, [value])
    layout = layout_of(METRICS)
    engine.insert_block(layout, tables, build_block(layout, [builder.finish()], 1))
    rows = engine.rows(f"SELECT step, value FROM {tables}.mlop_metrics FINAL ORDER BY step, time")
    assert repr(rows) == repr([(1.0, 0.5), (1.0, 0.25), (2.0, nan)])


def test_a_pluto_table_takes_our_blocks(engine, database):
    engine.rows(
        f"CREATE TABLE {database}.mlop_metrics (tenantId LowCardinality(String), projectName"
        " String, runId UInt64, logGroup LowCardinality(String), logName Nullable(String),"
        " time DateTime64(6), step UInt64, value Float64) ENGINE = MergeTree ORDER BY runId"
    )
    live = dict(
        engine.rows(
            "SELECT name, type FROM system.columns WHERE"
            f" database = '{database}' AND table = 'mlop_metrics'"
        )
    )
    layout = live_layout(METRICS, live)
    engine.insert_block(layout, database, build_block(layout, [training_frame(2, names=2)], 1))
    rows = engine.rows(
        "SELECT tenantId, logGroup, logName, toUnixTimestamp64Milli(time), step FROM"
        f" {database}.mlop_metrics ORDER BY step, logName"
    )
    assert rows == [
        ("acme", f"train/layer{n}", f"train/layer{n}/loss", 1_764_423_221_123 + step, step)
        for step in range(2)
        for n in range(2)
    ]


def test_a_column_that_the_table_has_not_is_an_error_and_never_dropped(engine, database):
    engine.rows(f"CREATE TABLE {database}.mlop_logs (message String) ENGINE = Memory")
    layout = layout_of(LOGS)
    with pytest.raises(RuntimeError, match="Code: 16"):
        engine.insert_block(layout, database, build_block(layout, [], 1))
