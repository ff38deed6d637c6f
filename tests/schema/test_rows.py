import math
import struct

import pytest
from hypothesis import given

from schema.columns import Encoding, parse_chunks
from schema.reading import rows_of
from schema.rows import DataRows, FilesRows, LogsRows, MetricsRows, name_shape
from tests.schema.frames import FRAMES, bits, training_frame


@given(FRAMES)
def test_rows_come_back_bit_for_bit_and_in_order(frame):
    builder, rows = frame
    chunks = builder.finish()
    assert chunks.row_count == builder.row_count == len(rows)
    assert bits(rows_of(chunks)) == bits(rows)


@given(FRAMES)
def test_the_byte_count_bounds_the_payload(frame):
    builder, _ = frame
    assert len(builder.finish().payload) <= builder.byte_count


def test_a_hundred_lines_of_twenty_metrics_take_less_than_twelve_bytes_a_point():
    chunks = training_frame()
    assert len(chunks.payload) / chunks.row_count < 12


def test_names_of_a_shape_are_stored_once_and_distinct_names_plainly():
    repeated = parse_chunks(training_frame(lines=50)).columns["logName"]
    assert (repeated.encoding, len(repeated.pieces)) == (Encoding.SHAPES, 1)
    builder = MetricsRows("acme", "vision", 7)
    for number in range(1_000):
        builder.add_line(10**12, number, name_shape([f"metric_{number}"]), [1.0])
    parsed = parse_chunks(builder.finish())
    assert parsed.columns["logName"].encoding is Encoding.PLAIN
    assert parsed.columns["step"].encoding is Encoding.PLAIN
    assert parsed.counts is None


def test_equal_shapes_that_are_different_objects_are_stored_once():
    builder = MetricsRows("acme", "vision", 7)
    for number in range(9):
        builder.add_line(10**12, number, name_shape(["train/loss", "train/accuracy"]), [1.0, 2.0])
    assert len(parse_chunks(builder.finish()).columns["logName"].pieces) == 1


def test_a_negative_zero_step_is_zero():
    metrics = MetricsRows("acme", "vision", 7)
    metrics.add_line(10**12, -0.0, name_shape(["loss"]), [-0.0])
    data = DataRows("acme", "vision", 7)
    data.add(10**12, -0.0, "text", "string-series", "x")
    files = FilesRows("acme", "vision", 7)
    files.add(10**12, -0.0, "image", "a.png", "png", 1, None, 0, None)
    [point] = rows_of(metrics.finish())
    assert math.copysign(1, point["value"]) == -1, "a value keeps its sign"
    for builder in (metrics, data, files):
        [row] = rows_of(builder.finish())
        assert math.copysign(1, row["step"]) == 1


@pytest.mark.parametrize("pattern", [0x7FF8000000000001, 0xFFF8DEADBEEF0000, 0x7FF0000000000000])
def test_nan_payloads_and_infinities_keep_their_bits(pattern):
    value = struct.unpack("<d", struct.pack("<Q", pattern))[0]
    builder = MetricsRows("acme", "vision", 7)
    builder.add_line(10**12, 0, name_shape(["x"]), [value])
    assert builder.finish().payload[-8:] == struct.pack("<Q", pattern)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ((10**12, 0, [1.0]), ValueError),
        ((10**12, 0, [1.0, "x"]), TypeError),
        ((10**12, 10**400, [1.0, 2.0]), OverflowError),
        ((2**63, 0, [1.0, 2.0]), OverflowError),
        ((10**12, 0, [1.0, 10**400]), OverflowError),
    ],
)
def test_a_line_that_does_not_fit_leaves_the_builder_as_it_was(line, error):
    shape = name_shape(["a", "b"])
    builder = MetricsRows("acme", "vision", 7)
    builder.add_line(10**12, 1, shape, [1.0, 2.0])
    time_ms, step, values = line
    with pytest.raises(error):
        builder.add_line(time_ms, step, shape, values)
    builder.add_line(10**12, 2, shape, [3.0, 4.0])
    assert [row["value"] for row in rows_of(builder.finish())] == [1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("line_number", [-1, 2**64])
def test_a_line_number_out_of_range_leaves_the_builder_as_it_was(line_number):
    builder = LogsRows("acme", "vision", 7)
    with pytest.raises(OverflowError):
        builder.add(10**12, "INFO", line_number, "lost")
    builder.add(10**12, "INFO", 2**64 - 1, "kept")
    assert [row["message"] for row in rows_of(builder.finish())] == ["kept"]


def test_more_than_256_labels_in_a_frame_are_kept():
    builder = LogsRows("acme", "vision", 7)
    for number in range(300):
        builder.add(10**12, f"type{number}", number, "x")
    chunks = builder.finish()
    assert parse_chunks(chunks).columns["logType"].encoding is Encoding.PLAIN
    assert [row["logType"] for row in rows_of(chunks)] == [f"type{n}" for n in range(300)]


def test_the_group_is_all_before_the_last_slash():
    names = ["loss", "a/b/c", "/x", "y/", "ü/é", "long" * 50 + "/x"]
    shape = name_shape(names)
    assert shape.count == 6
    assert shape.names.startswith(b"\4loss\5a/b/c\2/x\2y/")
    metrics = MetricsRows("acme", "vision", 7)
    metrics.add_line(10**12, 1, shape, [1.0] * 6)
    data = DataRows("acme", "vision", 7)
    for name in names:
        data.add(10**12, 1, name, "string-series", "x")
    for builder in (metrics, data):
        groups = [row["logGroup"] for row in rows_of(builder.finish())]
        assert groups == ["", "a/b", "", "y", "ü", "long" * 50]
