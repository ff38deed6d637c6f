"""Frames of all four streams for tests: as rows that were meant, and as the chunks made of them."""

from __future__ import annotations

import struct

from hypothesis import strategies as st

from schema.rows import DataRows, FilesRows, LogsRows, MetricsRows, name_shape

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
LONG_TEXTS = TEXTS | st.builds(lambda word, times: word * times, TEXTS, st.integers(0, 60))
NAMES = st.sampled_from(["loss", "train/loss", "a/b/c", "/x", "y/", "ü/é"]) | TEXTS
TIMES = st.integers(10**11, 10_413_791_999_999)
STEPS = st.floats(-(2.0**53), 2.0**53) | st.integers(-(2**53), 2**53)
WHOLE_STEPS = st.integers(0, 2**53)
VALUES = st.floats()
UINT64 = st.integers(0, 2**64 - 1)
UINT32 = st.integers(0, 2**32 - 1)

OWNERS = st.tuples(st.sampled_from(["acme", "zeta", ""]) | TEXTS, TEXTS, UINT64)
LINES = st.lists(
    st.tuples(TIMES, STEPS, st.lists(st.tuples(NAMES, VALUES), min_size=1, max_size=4)),
    max_size=12,
)
LABELS = st.sampled_from(["INFO", "ERROR"]) | TEXTS


def group(name):
    return name[: name.rfind("/")] if "/" in name else ""


def owner_columns(owner):
    return dict(zip(("tenantId", "projectName", "runId"), owner, strict=True))


@st.composite
def metrics(draw, steps=STEPS):
    owner = draw(OWNERS)
    builder = MetricsRows(*owner)
    shapes = {}
    rows = []
    lines = draw(LINES)
    for time_ms, _, pairs in lines:
        step = draw(steps)
        names = tuple(name for name, _ in pairs)
        shape = shapes.setdefault(names, name_shape(names))
        builder.add_line(time_ms, step, shape, [value for _, value in pairs])
        rows += [
            owner_columns(owner)
            | {
                "logGroup": group(name),
                "logName": name,
                "time": time_ms,
                "step": float(step) or 0.0,
                "value": value,
            }
            for name, value in pairs
        ]
    return builder, rows


@st.composite
def logs(draw):
    owner = draw(OWNERS)
    builder = LogsRows(*owner)
    rows = []
    for row in draw(st.lists(st.tuples(TIMES, LABELS, UINT64, LONG_TEXTS), max_size=12)):
        builder.add(*row)
        names = ("time", "logType", "lineNumber", "message")
        rows.append(owner_columns(owner) | dict(zip(names, row, strict=True)) | {"step": 0.0})
    return builder, rows


@st.composite
def data(draw):
    owner = draw(OWNERS)
    builder = DataRows(*owner)
    rows = []
    for row in draw(st.lists(st.tuples(TIMES, STEPS, NAMES, LABELS, LONG_TEXTS), max_size=12)):
        builder.add(*row)
        names = ("time", "step", "logName", "dataType", "data")
        columns = dict(zip(names, row, strict=True))
        columns |= {"logGroup": group(row[2]), "step": float(row[1]) or 0.0}
        rows.append(owner_columns(owner) | columns)
    return builder, rows


@st.composite
def files(draw):
    owner = draw(OWNERS)
    builder = FilesRows(*owner)
    rows = []
    optional = st.none() | LONG_TEXTS
    row_values = st.tuples(
        *(TIMES, STEPS, NAMES, TEXTS, LABELS, UINT64, optional, UINT32, optional)
    )
    for row in draw(st.lists(row_values, max_size=12)):
        builder.add(*row)
        names = (
            *("time", "step", "logName", "fileName", "fileType", "fileSize"),
            *("caption", "sampleIndex", "annotations"),
        )
        columns = dict(zip(names, row, strict=True))
        columns |= {"logGroup": group(row[2]), "step": float(row[1]) or 0.0}
        rows.append(owner_columns(owner) | columns)
    return builder, rows


FRAMES = metrics() | logs() | data() | files()


def bits(rows):
    """Rows as text in which each float shows its every bit, and key order does not matter."""
    return [
        {
            name: struct.pack("<d", value).hex() if isinstance(value, float) else value
            for name, value in sorted(row.items())
        }
        for row in rows
    ]


def training_frame(lines=100, *, run=7, first_step=0, names=20, seed=0):
    """What the SDK sends: lines of one time and step and a value for each of the same names."""
    shape = name_shape([f"train/layer{number}/loss" for number in range(names)])
    builder = MetricsRows("acme", "vision", run)
    for line in range(lines):
        step = first_step + line
        values = [(step * 31 + number + seed) * 0.001 for number in range(names)]
        builder.add_line(1_764_423_221_123 + step, step, shape, values)
    return builder.finish()
