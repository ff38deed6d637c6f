"""One column of one frame as Native bytes of all its rows: what a block is joined of."""

from __future__ import annotations

import struct
from array import array
from itertools import repeat
from operator import mul
from typing import TYPE_CHECKING

from schema.coltypes import fixed_width, is_nullable
from schema.columns import Encoding
from schema.errors import MalformedChunks
from schema.names import group_piece
from schema.streams import STREAMS
from schema.varint import split_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from schema.columns import ChunkColumn, ParsedChunks
    from schema.streams import Column


def expand_fixed(parsed: ParsedChunks, column: Column) -> bytes:
    """All values of a column of fixed width: ``row_count`` of them."""
    chunk = parsed.columns[column.name]
    if chunk.encoding is Encoding.PLAIN or parsed.counts is None:
        return chunk.body
    return repeat_values(chunk.body, fixed_width(column.type) or 0, parsed.counts)


def repeat_values(body: bytes, width: int, counts: Sequence[int]) -> bytes:
    """Each value as often as its line has rows."""
    if width == 8:
        return repeat_lines(body, counts[0] if len(set(counts)) == 1 else 0, lambda: counts)
    return b"".join(
        [body[at * width : (at + 1) * width] * count for at, count in enumerate(counts)]
    )


def repeat_lines(body: bytes, even: int, counts: Callable[[], Iterable[int]]) -> bytes:
    """Values of eight bytes, each as often as its line has rows.

    Args:
        body: a value a line.
        even: rows of every line where all have as many, else 0: then ``counts`` tells.
        counts: gives the rows of each line.
    """
    if even == 1:
        return body
    lines = len(body) // 8
    if 0 < even <= lines:
        # Every even-th place at once, as often as there are rows in a line: 3 ns a row.
        source = array("Q", body)
        target = source * even  # of the right size; what is in it does not matter
        for place in range(even):
            target[place::even] = source
        return target.tobytes()
    values = struct.unpack("8s" * lines, body)
    return b"".join(map(mul, values, repeat(even) if even else counts()))


def expand_texts(parsed: ParsedChunks, column: Column) -> bytes:
    """All rows of a String column as Native Strings, joined.

    Raises:
        MalformedChunks: an index without a piece.
    """
    chunk = parsed.columns[column.name]
    if chunk.encoding is Encoding.PLAIN:
        return chunk.body
    return b"".join(pieces_of(chunk, column))


def row_pieces(parsed: ParsedChunks, column: Column) -> list[bytes]:
    """Each row of a column of strings, as a Native String; nulls are empty strings.

    Raises:
        MalformedChunks: the strings do not fill the column, or an index has no piece.
    """
    chunk = parsed.columns[column.name]
    row_count = parsed.chunks.row_count
    if chunk.encoding is Encoding.GROUPS:
        [names] = [
            one for one in STREAMS[parsed.chunks.kind].chunk_columns if one.name == "logName"
        ]
        return list(map(group_piece, row_pieces(parsed, names)))
    if chunk.encoding is Encoding.DICT:
        return pieces_of(chunk, column)
    if chunk.encoding is Encoding.PLAIN:
        start = row_count if is_nullable(column.type) else 0
        return split_column(column, chunk.body[start:], row_count)
    counts = parsed.counts or [1] * row_count
    rows: list[bytes] = []
    for piece, count in zip(pieces_of(chunk, column), counts, strict=True):
        rows.extend(split_column(column, piece, count))
    return rows


def split_column(column: Column, body: bytes, count: int) -> list[bytes]:
    """So many Native Strings, which must be all there is.

    Raises:
        MalformedChunks: they are not.
    """
    try:
        strings, end = split_texts(body, count)
    except ValueError as error:
        raise MalformedChunks(f"column {column.name}: {error}") from error
    if end != len(body):
        raise MalformedChunks(f"column {column.name}: {len(body) - end} bytes too many")
    return strings


def pieces_of(chunk: ChunkColumn, column: Column) -> list[bytes]:
    """The piece of each line of a SHAPES column, or of each row of a DICT column.

    Raises:
        MalformedChunks: an index without a piece.
    """
    pieces = chunk.pieces
    try:
        return [pieces[index] for index in chunk.indices]
    except IndexError as error:
        raise MalformedChunks(
            f"column {column.name}: an index of {max(chunk.indices)} for {len(pieces)} pieces"
        ) from error
