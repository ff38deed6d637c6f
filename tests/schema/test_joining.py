"""Metrics take a short way into a block; it must be the long one, only shorter."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schema import block as long_way
from schema.block import build_block, cut
from schema.errors import MalformedChunks, RowsUnfit
from schema.heads import HEAD_BYTES_MAX, Heads
from schema.joining import SLICE_ROWS, join_metrics
from schema.layout import layout_of, live_layout
from schema.native import decode_blocks
from schema.rows import MetricsRows, name_shape
from schema.stack import ChunkStack
from schema.streams import METRICS, StreamKind
from tests.schema.frames import WHOLE_STEPS, metrics, training_frame

LAYOUT = layout_of(METRICS)
INTEGERS = live_layout(
    METRICS, {column.name: column.type for column in METRICS.columns} | {"step": "UInt64"}
)
SHARED = Heads()
"""Not new for each example: what is known from other blocks must not matter."""


def rows(block):
    [read] = decode_blocks(b"".join(block.pieces))
    return [list(map(repr, column)) for column in read.columns]


def the_long_way(monkeypatch, layout, frames, **options):
    with monkeypatch.context() as patched:
        patched.setattr(long_way, "join_metrics", lambda *_: None)
        return build_block(layout, frames, 7, **options)


def goes_short(layout, frames):
    return join_metrics(layout, ChunkStack.of(StreamKind.METRICS, frames), 7, 0, Heads())


def frame(lines, names):
    builder = MetricsRows("acme", "vision", 7)
    shape = name_shape([f"n{number}" for number in range(names)])
    for line in range(lines):
        builder.add_line(10**12 + line, line, shape, [line + 0.5] * names)
    return builder.finish()


@pytest.mark.parametrize("layout", [LAYOUT, INTEGERS], ids=["ours", "integer steps"])
@given(draw=st.data())
def test_both_ways_give_the_same_rows_whole_or_cut(layout, draw):
    built = draw.draw(st.lists(metrics(steps=WHOLE_STEPS), min_size=1, max_size=4))
    frames = [builder.finish() for builder, _ in built]
    total = sum(chunks.row_count for chunks in frames)
    first = draw.draw(st.integers(0, total))
    keep = draw.draw(st.sets(st.integers(0, frames[0].row_count)))
    frames[0] = cut(frames[0], sorted(row for row in keep if row < frames[0].row_count))
    first = min(first, sum(chunks.row_count for chunks in frames))
    with pytest.MonkeyPatch.context() as patch:
        expected = the_long_way(patch, layout, frames, first_row=first)
    block = build_block(layout, frames, 7, first_row=first, heads=SHARED)
    assert rows(block) == rows(expected)


@pytest.mark.parametrize(
    ("lines", "names"), [(1, 10), (3, 1), (1, 1), (40, 3), (2, 300), (SLICE_ROWS + 1, 1)]
)
def test_every_proportion_of_lines_and_names_goes_the_short_way(monkeypatch, lines, names):
    frames = [frame(lines, names), frame(1, 4), training_frame(lines=2)]
    assert goes_short(LAYOUT, frames)
    assert rows(build_block(LAYOUT, frames, 7)) == rows(the_long_way(monkeypatch, LAYOUT, frames))


def test_a_block_of_more_than_65536_names_has_indices_of_four_bytes(monkeypatch):
    frames = []
    for number in range(9):
        builder = MetricsRows("acme", "vision", 7)
        shape = name_shape([f"n{number}/{place}" for place in range(8_000)])
        builder.add_line(10**12, 1, shape, [0.5] * 8_000)
        frames.append(builder.finish())
    assert rows(build_block(LAYOUT, frames, 7)) == rows(the_long_way(monkeypatch, LAYOUT, frames))


def test_a_step_that_does_not_fit_is_found_beyond_the_first_slice(monkeypatch):
    builder = MetricsRows("acme", "vision", 7)
    builder.add_line(10**12, 0.5, name_shape(["a", "b"]), [1.0, 2.0])
    frames = [frame(SLICE_ROWS, 1), frame(10, 1), builder.finish(), frame(1, 3)]
    found = []
    for build in (build_block, lambda *args: the_long_way(monkeypatch, *args[:2])):
        with pytest.raises(RowsUnfit) as caught:
            build(INTEGERS, frames, 7)
        found.append((caught.value.rows, caught.value.reason))
    assert found[0] == found[1]
    assert found[0][0] == [SLICE_ROWS + 10, SLICE_ROWS + 11]


def test_a_frame_that_is_broken_anywhere_is_refused_as_before(monkeypatch):
    whole = training_frame(lines=2, names=3)
    heads = Heads()
    build_block(LAYOUT, [whole], 7, heads=heads)  # its head is known
    for place in range(len(whole.payload)):
        payload = bytearray(whole.payload)
        payload[place] ^= 0x41
        broken = type(whole)(whole.kind, "acme", "vision", 7, whole.row_count, bytes(payload))
        outcomes = []
        for build in (build_block, the_long_way):
            arguments = (LAYOUT, [broken, whole])
            try:
                if build is build_block:
                    outcomes.append(rows(build_block(*arguments, 7, heads=heads)))
                else:
                    outcomes.append(rows(the_long_way(monkeypatch, *arguments)))
            except MalformedChunks:
                outcomes.append("malformed")
        assert outcomes[0] == outcomes[1], place


def test_ever_new_keys_do_not_fill_memory_and_leave_what_is_known_for_a_while(monkeypatch):
    monkeypatch.setattr("schema.heads.HEADS_BYTES_MAX", 2 * 2**20)
    monkeypatch.setattr("schema.heads.LEFT_OUT_MAX", 100)
    raws = [raw_head(number, names=200) for number in range(400)]
    heads = Heads()
    counts = []
    tracemalloc.start()
    for raw in raws:
        assert heads.learn(raw, 200) is not None
        assert heads.byte_count <= 2 * 2**20
        counts.append(len(heads))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    full = max(counts)
    assert counts.count(full) >= 100, "nothing is forgotten at once"
    assert full > counts[-1] > 0
    assert held < 1.5 * heads.byte_count + 2**20


def test_a_long_head_is_not_kept():
    heads = Heads()
    rows = HEAD_BYTES_MAX // 5
    assert heads.learn(raw_head(1, names=rows), rows) is not None
    assert len(heads) == 0


def raw_head(number, names):
    builder = MetricsRows("acme", "vision", 7)
    shape = name_shape([f"{number}/{place}" for place in range(names)])
    builder.add_line(10**12, 1, shape, [0.5] * names)
    return builder.finish().payload[: -(15 + 16 + 8 * names)]
