from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schema.block import build_block, layout_of
from schema.columns import parse_chunks
from schema.cut import cut
from schema.errors import MalformedChunks
from schema.reading import rows_of
from schema.rows import LogsRows, MetricsRows, name_shape
from schema.streams import STREAMS
from tests.schema.frames import FRAMES, training_frame

_GROUPS_1 = "00 18000000 05747261696e 05747261696e 05747261696e 05747261696e"  # logGroup: PLAIN
GOLDEN_METRICS = "".join(
    [
        "02 02000000 02000000 02000000",  # format 2; two lines, of two rows each
        "04 00000000",  # logGroup: GROUPS
        "02 25000000 01000000 15000000",  # logName: SHAPES: one piece of 21 bytes
        "0a747261696e2f6c6f7373 09747261696e2f616363",  # "train/loss", "train/acc"
        "00000000 00000000",  # both lines have piece 0
        "01 10000000 00e8764817000000 01e8764817000000",  # time: RUNS
        "01 10000000 0000000000000000 000000000000f03f",  # step: RUNS: 0 (for -0.0), 1
        "00 20000000 000000000000f03f 0000000000000040",  # value: PLAIN: 1, 2,
        "000000000000f87f 000000000000f0ff",  # NaN, -inf
    ]
).replace(" ", "")
GOLDEN_METRICS_1 = "01" + GOLDEN_METRICS[2:26] + _GROUPS_1.replace(" ", "") + GOLDEN_METRICS[36:]
GOLDEN_LOGS = "".join(
    [
        "02 00000000",  # format 2; each row is a line
        "03 19000000 02000000 05000000 06000000",  # logType: DICT: two pieces
        "04494e464f 054552524f52 00 01",  # INFO, ERROR; first the one, then the other
        "00 10000000 00e8764817000000 00e8764817000000",  # time: PLAIN
        "00 10000000 0100000000000000 0200000000000000",  # lineNumber: PLAIN
        "00 04000000 026869 00",  # message: PLAIN: "hi", ""
    ]
).replace(" ", "")


def metrics_frame():
    builder = MetricsRows("acme", "vision", 7)
    shape = name_shape(["train/loss", "train/acc"])
    builder.add_line(10**11, -0.0, shape, [1, 2])
    builder.add_line(10**11 + 1, 1, shape, [float("nan"), float("-inf")])
    return builder.finish()


def logs_frame():
    builder = LogsRows("acme", "vision", 7)
    builder.add(10**11, "INFO", 1, "hi")
    builder.add(10**11, "ERROR", 2, "")
    return builder.finish()


def test_the_payload_of_metrics_has_these_bytes():
    payload = metrics_frame().payload
    assert payload.hex() == GOLDEN_METRICS


def test_the_payload_of_logs_has_these_bytes():
    assert logs_frame().payload.hex() == GOLDEN_LOGS


def test_a_log_of_the_first_format_is_read_as_before():
    first = replace(metrics_frame(), payload=bytes.fromhex(GOLDEN_METRICS_1))
    assert repr(list(rows_of(first))) == repr(list(rows_of(metrics_frame())))
    layout = layout_of(STREAMS[first.kind])
    assert build_block(layout, [first], 1) == build_block(layout, [metrics_frame()], 1)
    assert list(rows_of(cut(first, [3]))) == list(rows_of(cut(metrics_frame(), [3])))


def read_all(chunks):
    list(rows_of(chunks))
    build_block(layout_of(STREAMS[chunks.kind]), [chunks], 1)
    cut(chunks, range(0, chunks.row_count, 2))


@pytest.mark.parametrize("chunks", [metrics_frame(), logs_frame()], ids=["metrics", "logs"])
def test_a_payload_cut_off_anywhere_is_refused(chunks):
    for length in range(len(chunks.payload)):
        with pytest.raises(MalformedChunks):
            parse_chunks(replace(chunks, payload=chunks.payload[:length]))
    with pytest.raises(MalformedChunks, match="behind the last column"):
        parse_chunks(replace(chunks, payload=chunks.payload + b"\0"))


@given(FRAMES, st.data())
def test_damaged_bytes_are_refused_or_read_but_never_crash(frame, draw):
    chunks = frame[0].finish()
    payload = bytearray(chunks.payload)
    for _ in range(draw.draw(st.integers(1, 3))):
        at = draw.draw(st.integers(0, len(payload) - 1))
        payload[at] = draw.draw(st.integers(0, 255))
    with suppress(MalformedChunks):
        read_all(replace(chunks, payload=bytes(payload)))


def test_an_unknown_format_is_refused_by_its_number():
    chunks = metrics_frame()
    with pytest.raises(MalformedChunks, match="format 3 is unknown"):
        parse_chunks(replace(chunks, payload=b"\3" + chunks.payload[1:]))


def test_a_row_count_that_the_payload_does_not_have_is_refused():
    with pytest.raises(MalformedChunks):
        parse_chunks(replace(training_frame(lines=3), row_count=59))
