"""Some rows of a frame, as a frame of their own: for a bisection's edges and for quarantine.

Lines stay lines, so that a cut frame is about as dense as the one it came from.
"""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import TYPE_CHECKING

from schema.bodies import GROUPS_BODY, Labels, shapes_body
from schema.coltypes import fixed_width, is_nullable
from schema.columns import Chunks, Encoding, pack_payload, parse_chunks
from schema.errors import MalformedChunks
from schema.expand import row_pieces, split_column
from schema.streams import STREAMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schema.columns import ParsedChunks
    from schema.streams import Column

    KeptLine = tuple[int, list[int]]
    """A line's number and the rows kept of it, counted from the line's first."""


def cut(chunks: Chunks, rows: Sequence[int]) -> Chunks:
    """Only these rows of a frame; whose they are stays the same.

    Args:
        chunks: the frame.
        rows: ascending indices, each once, 0 <= row < row_count.

    Raises:
        ValueError: the rows are not ascending or not of the frame.
        MalformedChunks: the payload is not of the format.
    """
    if any(second <= first for first, second in pairwise(rows)):
        raise ValueError("the rows to cut out are not in ascending order")
    if rows and not 0 <= rows[0] <= rows[-1] < chunks.row_count:
        raise ValueError(f"rows {rows[0]} to {rows[-1]} are not within {chunks.row_count}")
    parsed = parse_chunks(chunks)
    lines = _kept_lines(parsed, rows)
    counts = None if len(lines) == len(rows) else [len(kept) for _, kept in lines]
    bodies = [
        _cut_column(parsed, column, rows, lines, has_counts=counts is not None)
        for column in STREAMS[chunks.kind].chunk_columns
    ]
    return Chunks(
        kind=chunks.kind,
        tenant=chunks.tenant,
        project=chunks.project,
        run_id=chunks.run_id,
        row_count=len(rows),
        payload=pack_payload(counts, bodies),
    )


def _kept_lines(parsed: ParsedChunks, rows: Sequence[int]) -> list[KeptLine]:
    """The lines that keep a row at least."""
    if parsed.counts is None:
        return [(row, [0]) for row in rows]
    lines: list[KeptLine] = []
    wanted = iter(rows)
    row = next(wanted, None)
    start = 0
    for line, count in enumerate(parsed.counts):
        kept: list[int] = []
        while row is not None and row < start + count:
            kept.append(row - start)
            row = next(wanted, None)
        if kept:
            lines.append((line, kept))
        if row is None:
            break
        start += count
    return lines


def _cut_column(
    parsed: ParsedChunks,
    column: Column,
    rows: Sequence[int],
    lines: list[KeptLine],
    *,
    has_counts: bool,
) -> tuple[Encoding, Sequence[bytes]]:
    chunk = parsed.columns[column.name]
    if chunk.encoding is Encoding.GROUPS:
        return GROUPS_BODY
    width = fixed_width(column.type)
    if width is not None:
        if chunk.encoding is Encoding.PLAIN:
            return Encoding.PLAIN, _cut_fixed(chunk.body, width, rows)
        values = _cut_fixed(chunk.body, width, [line for line, _ in lines])
        return (Encoding.RUNS if has_counts else Encoding.PLAIN), values
    if chunk.encoding is Encoding.SHAPES:
        return _cut_shapes(parsed, column, lines)
    pieces = row_pieces(parsed, column)
    if column.type == "LowCardinality(String)":
        labels = Labels()
        for row in rows:
            labels.add(pieces[row])
        return labels.body()
    kept = [pieces[row] for row in rows]
    if is_nullable(column.type):
        nulls = chunk.body
        kept = [bytes([nulls[row] for row in rows]), *kept]
    return Encoding.PLAIN, kept


def _cut_fixed(body: bytes, width: int, places: Sequence[int]) -> list[bytes]:
    return [body[place * width : (place + 1) * width] for place in places]


def _cut_shapes(
    parsed: ParsedChunks, column: Column, lines: list[KeptLine]
) -> tuple[Encoding, list[bytes]]:
    """Whole lines keep their piece; of others the names that stay make a new one."""
    chunk = parsed.columns[column.name]
    pieces: list[bytes] = []
    places: dict[tuple[int, tuple[int, ...]], int] = {}
    indices: list[int] = []
    for line, kept in lines:
        source = chunk.indices[line]
        key = (source, tuple(kept))
        if key not in places:
            if source >= len(chunk.pieces):
                raise MalformedChunks(f"column {column.name}: no piece {source}")
            count = 1 if parsed.counts is None else parsed.counts[line]
            strings = split_column(column, chunk.pieces[source], count)
            places[key] = len(pieces)
            pieces.append(b"".join([strings[row] for row in kept]))
        indices.append(places[key])
    return shapes_body(pieces, array("I", indices))
