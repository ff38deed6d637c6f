"""Many frames' chunks become one Native block, column by column, by joins.

One batch is one block: one part and one token in ClickHouse. Frames of metrics take the short way
of `schema.joining`; those of the other streams, and any frame of an unusual form, are parsed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from schema.coltypes import fixed_width
from schema.columns import parse_chunks
from schema.cut import cut
from schema.expand import expand_fixed, expand_texts
from schema.heads import Heads
from schema.joining import constant, join_metrics
from schema.layout import Layout, LayoutColumn, layout_of, live_layout
from schema.lowcardinality import low_cardinality
from schema.reading import rows_of
from schema.stack import ChunkStack
from schema.steps import integer_steps, steps_unfit
from schema.streams import Origin, StreamKind
from schema.varint import text, varint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schema.columns import Chunks, ParsedChunks
    from schema.ids import BlockNumber

__all__ = ["Block", "Layout", "build_block", "cut", "layout_of", "live_layout", "rows_of"]

_U64 = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Block:
    """One Native block: the body of ``INSERT … FORMAT Native``, in pieces to be written in order.

    Attributes:
        size: bytes of all pieces.
    """

    rows: int
    pieces: list[bytes]
    size: int


def build_block(
    layout: Layout,
    frames: Sequence[Chunks],
    batch: BlockNumber,
    *,
    first_row: int = 0,
    end_row: int | None = None,
    heads: Heads | None = None,
) -> Block:
    """Rows ``first_row`` to ``end_row`` (exclusive) of the frames' rows, as one block.

    Args:
        layout: the table's columns.
        frames: of the layout's stream, in the order of their LSNs.
        batch: the value of column ``batch`` in every row, where the table has one.
        first_row: the first row to take; with ``end_row``, a part of the rows, for a bisection.
        end_row: one past the last row to take; None is all that follow.
        heads: what is known from earlier blocks; changes nothing but the time it takes.

    Returns:
        The same bytes for the same arguments, always: the token of a block stands for them.

    Raises:
        RowsUnfit: rows that the table's type of a column cannot hold.
        MalformedChunks: a frame's payload is not of the format.
    """
    kind = layout.stream.kind
    chosen = ChunkStack.of(kind, frames)
    total = sum(chosen.row_counts)
    end = total if end_row is None else end_row
    if not 0 <= first_row <= end <= total:
        raise ValueError(f"rows {first_row} to {end} are not within 0 to {total}")
    rows = end - first_row
    if rows != total:
        chosen = ChunkStack.of(kind, _within(chosen, first_row, end))
    columns: list[list[bytes]] | None = None
    if not rows:
        columns = [[] for _ in layout.columns]
    elif kind is StreamKind.METRICS:
        known = Heads() if heads is None else heads
        columns = join_metrics(layout, chosen, batch, first_row, known)
    if columns is None:
        parsed = [parse_chunks(frame) for frame in chosen if frame.row_count]
        columns = [_column(entry, parsed, rows, batch, first_row) for entry in layout.columns]
    pieces = [varint(len(layout.columns)) + varint(rows)]
    for entry, data in zip(layout.columns, columns, strict=True):
        pieces.append(text(entry.column.name) + text(entry.type))
        pieces.extend(data)
    return Block(rows, pieces, sum(map(len, pieces)))


def _within(frames: ChunkStack, first_row: int, end_row: int) -> list[Chunks]:
    """The frames that have rows in the range, the outermost cut down to it."""
    chosen: list[Chunks] = []
    start = 0
    for index, rows in enumerate(frames.row_counts):
        first = max(first_row - start, 0)
        end = min(end_row - start, rows)
        if first < end:
            is_whole = first == 0 and end == rows
            frame = frames[index]
            chosen.append(frame if is_whole else cut(frame, range(first, end)))
        start += rows
    return chosen


def _column(
    entry: LayoutColumn, frames: Sequence[ParsedChunks], rows: int, batch: int, first_row: int
) -> list[bytes]:
    """The data of one column, in pieces."""
    column = entry.column
    if column.origin is Origin.BLOCK:
        return constant(_U64.pack(batch), rows)
    if column.origin is Origin.ZERO:
        return constant(bytes(fixed_width(entry.type) or 1), rows)
    if column.type == "LowCardinality(String)":
        return low_cardinality(column, frames, rows)
    if column.origin is Origin.FRAME:
        return [_U64.pack(frame.chunks.run_id) * frame.chunks.row_count for frame in frames]
    return _chunk_column(entry, frames, first_row)


def _chunk_column(
    entry: LayoutColumn, frames: Sequence[ParsedChunks], first_row: int
) -> list[bytes]:
    column = entry.column
    if column.type == "Nullable(String)":
        return _optional_texts(entry, frames)
    if column.type == "String":
        return [b"".join([expand_texts(frame, column) for frame in frames])]
    if entry.type != column.type:
        return _integer_steps(entry, frames, first_row)
    return [b"".join([expand_fixed(frame, column) for frame in frames])]


def _optional_texts(entry: LayoutColumn, frames: Sequence[ParsedChunks]) -> list[bytes]:
    """All null maps, then all strings; a table without nulls gets the strings alone."""
    bodies = [(frame.columns[entry.column.name].body, frame.chunks.row_count) for frame in frames]
    strings = [body[count:] for body, count in bodies]
    if entry.type == "String":
        return strings
    return [body[:count] for body, count in bodies] + strings


def _integer_steps(
    entry: LayoutColumn, frames: Sequence[ParsedChunks], first_row: int
) -> list[bytes]:
    """Steps of a table that holds them as integers.

    Raises:
        RowsUnfit: fractional steps, or negative ones for UInt64: all such rows of all frames.
    """
    pieces: list[bytes] = []
    unfit: list[int] = []
    start = first_row
    for frame in frames:
        piece, rows = integer_steps(frame, entry)
        pieces.append(piece)
        unfit.extend([start + row for row in rows])
        start += frame.chunks.row_count
    if unfit:
        raise steps_unfit(unfit, entry.type)
    return pieces
