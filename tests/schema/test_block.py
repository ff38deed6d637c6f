"""Blocks, without the engine: the bytes, and that nothing is lost, moved or changed."""

import struct
import time
from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schema.block import build_block
from schema.errors import MalformedChunks, RowsUnfit
from schema.layout import layout_of, live_layout
from schema.native import decode_blocks
from schema.rows import LogsRows, MetricsRows, name_shape
from schema.streams import FILES, LOGS, METRICS, STREAMS
from tests.schema.frames import (
    STEPS,
    WHOLE_STEPS,
    bits,
    data,
    files,
    logs,
    metrics,
    training_frame,
)

BATCH = 0xDEADBEEF00000001
FRAMES_OF_ONE_STREAM = (
    st.lists(metrics(), max_size=4)
    | st.lists(logs(), max_size=4)
    | st.lists(data(), max_size=4)
    | st.lists(files(), max_size=4)
)
FOREIGN_METRICS = live_layout(
    METRICS,
    {column.name: column.type for column in METRICS.columns if column.name != "batch"}
    | {"step": "UInt64"},
)

GOLDEN = (
    b"\x09\x02"
    b"\x08tenantId\x16LowCardinality(String)"
    b"\1\0\0\0\0\0\0\0\0\6\0\0\0\0\0\0\1\0\0\0\0\0\0\0\4acme\2\0\0\0\0\0\0\0\0\0"
    b"\x0bprojectName\x16LowCardinality(String)"
    b"\1\0\0\0\0\0\0\0\0\6\0\0\0\0\0\0\1\0\0\0\0\0\0\0\6vision\2\0\0\0\0\0\0\0\0\0"
    b"\x05runId\x06UInt64\7\0\0\0\0\0\0\0\7\0\0\0\0\0\0\0"
    b"\x08logGroup\x16LowCardinality(String)"
    b"\1\0\0\0\0\0\0\0\0\6\0\0\0\0\0\0\2\0\0\0\0\0\0\0\0\5train\2\0\0\0\0\0\0\0\0\1"
    b"\x07logName\x16LowCardinality(String)"
    b"\1\0\0\0\0\0\0\0\0\6\0\0\0\0\0\0\2\0\0\0\0\0\0\0\4loss\ttrain/acc\2\0\0\0\0\0\0\0\0\1"
    b"\x04time\x14DateTime64(3, 'UTC')\0\xe8\x76\x48\x17\0\0\0\0\xe8\x76\x48\x17\0\0\0"
    b"\x04step\x07Float64\0\0\0\0\0\0\xe0\x3f\0\0\0\0\0\0\xe0\x3f"
    b"\x05value\x07Float64\0\0\0\0\0\0\xf0\x3f\0\0\0\0\0\0\xf8\x7f"
    b"\x05batch\x06UInt64\1\0\0\0\xef\xbe\xad\xde\1\0\0\0\xef\xbe\xad\xde"
)  # fmt: skip


def body(block):
    joined = b"".join(block.pieces)
    assert len(joined) == block.size
    return joined


def decoded(block):
    [read] = decode_blocks(body(block))
    assert read.row_count == block.rows
    names = read.names
    return [dict(zip(names, row, strict=True)) for row in zip(*read.columns, strict=True)]


def test_a_block_of_metrics_has_these_bytes():
    builder = MetricsRows("acme", "vision", 7)
    builder.add_line(10**11, 0.5, name_shape(["loss", "train/acc"]), [1.0, float("nan")])
    assert body(build_block(layout_of(METRICS), [builder.finish()], BATCH)) == GOLDEN


@given(FRAMES_OF_ONE_STREAM)
def test_a_block_has_the_rows_of_its_frames_in_order(frames):
    chunks = [builder.finish() for builder, _ in frames]
    stream = STREAMS[chunks[0].kind] if chunks else METRICS
    block = build_block(layout_of(stream), chunks, BATCH)
    expected = [row | {"batch": BATCH} for _, rows in frames for row in rows]
    assert bits(decoded(block)) == bits(expected)


@given(FRAMES_OF_ONE_STREAM, st.data())
def test_a_range_of_rows_is_that_part_of_the_whole_wherever_it_cuts(frames, draw):
    chunks = [builder.finish() for builder, _ in frames]
    stream = STREAMS[chunks[0].kind] if chunks else METRICS
    expected = [row | {"batch": BATCH} for _, rows in frames for row in rows]
    end = draw.draw(st.integers(0, len(expected)))
    first = draw.draw(st.integers(0, end))
    block = build_block(layout_of(stream), chunks, BATCH, first_row=first, end_row=end)
    assert bits(decoded(block)) == bits(expected[first:end])


def test_the_same_frames_make_the_same_bytes_every_time():
    frames = [training_frame(lines=3, run=run) for run in range(3)]
    layout = layout_of(METRICS)
    assert build_block(layout, frames, BATCH) == build_block(layout, frames, BATCH)


@pytest.mark.parametrize(("first", "end"), [(-1, 2), (3, 2), (0, 61)])
def test_a_range_outside_of_the_rows_is_refused(first, end):
    with pytest.raises(ValueError, match="within"):
        build_block(layout_of(METRICS), [training_frame(3)], 1, first_row=first, end_row=end)


def test_a_block_without_frames_is_an_empty_block():
    block = build_block(layout_of(METRICS), [], BATCH)
    [read] = decode_blocks(body(block))
    assert (block.rows, read.row_count, len(read.names)) == (0, 0, 9)


@given(st.lists(metrics(steps=WHOLE_STEPS), max_size=3))
def test_whole_steps_become_the_integers_of_a_foreign_table(frames):
    block = build_block(FOREIGN_METRICS, [builder.finish() for builder, _ in frames], BATCH)
    expected = [row | {"step": int(row["step"])} for _, rows in frames for row in rows]
    assert bits(decoded(block)) == bits(expected)


@given(st.lists(metrics(steps=STEPS), max_size=3), st.data())
def test_steps_that_do_not_fit_are_named_row_by_row_and_the_others_pass(frames, draw):
    chunks = [builder.finish() for builder, _ in frames]
    rows = [row for _, rows in frames for row in rows]
    first = draw.draw(st.integers(0, len(rows)))
    misfits = [
        place
        for place, row in enumerate(rows)
        if place >= first and (row["step"] < 0 or row["step"] != int(row["step"]))
    ]
    if not misfits:
        assert build_block(FOREIGN_METRICS, chunks, 1, first_row=first).rows == len(rows) - first
        return
    with pytest.raises(RowsUnfit, match="UInt64") as caught:
        build_block(FOREIGN_METRICS, chunks, 1, first_row=first)
    assert caught.value.rows == misfits


def test_negative_steps_fit_a_signed_column():
    layout = live_layout(METRICS, {c.name: c.type for c in METRICS.columns} | {"step": "Int64"})
    builder = MetricsRows("acme", "vision", 7)
    builder.add_line(10**12, -5, name_shape(["x"]), [1.0])
    assert [row["step"] for row in decoded(build_block(layout, [builder.finish()], 1))] == [-5]


@given(st.lists(files(), max_size=3))
def test_a_table_without_nulls_gets_empty_strings_for_them(frames):
    layout = live_layout(FILES, {c.name: c.type for c in FILES.columns} | {"caption": "String"})
    block = build_block(layout, [builder.finish() for builder, _ in frames], 1)
    captions = [row["caption"] for row in decoded(block)]
    assert captions == [row["caption"] or "" for _, rows in frames for row in rows]


@pytest.mark.parametrize("tenants", [1, 256, 257])
def test_any_number_of_tenants_shares_a_block(tenants):
    frames = []
    for number in range(tenants):
        builder = LogsRows(f"tenant{number}", "vision", number + 1)
        builder.add(10**12, f"type{number}", number, "x")
        builder.add(10**12, "INFO", number, "y")
        frames.append(builder.finish())
    rows = decoded(build_block(layout_of(LOGS), frames, 1))
    seen = defaultdict(list)
    for row in rows:
        seen[row["tenantId"]].append(row["logType"])
    assert seen == {f"tenant{n}": [f"type{n}", "INFO"] for n in range(tenants)}


def test_the_unused_step_of_logs_is_zero():
    builder = LogsRows("acme", "vision", 7)
    builder.add(10**12, "INFO", 1, "x")
    assert decoded(build_block(layout_of(LOGS), [builder.finish()], 1))[0]["step"] == 0.0


def test_an_index_without_a_piece_is_malformed():
    chunks = training_frame(lines=2)
    index = struct.pack("<II", 0, 0)
    place = chunks.payload.rindex(index, 0, chunks.payload.index(b"\x01\x10\x00\x00\x00"))
    damaged = chunks.payload[:place] + struct.pack("<II", 0, 1) + chunks.payload[place + 8 :]
    with pytest.raises(MalformedChunks, match="logName: an index of 1 for 1 pieces"):
        build_block(layout_of(METRICS), [replace(chunks, payload=damaged)], 1)


def test_blocks_are_built_at_more_than_two_million_rows_a_second():
    frames = [training_frame(seed=seed) for seed in range(50)]
    layout = layout_of(METRICS)
    rates = []
    for _ in range(5):
        started = time.process_time()
        block = build_block(layout, frames, BATCH)
        rates.append(block.rows / (time.process_time() - started))
    assert max(rates) > 2_000_000, rates
