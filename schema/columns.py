"""A frame's rows as columns, and the payload that holds them.

``docs/chunk-format.md`` draws the payload. In short::

    u8  format   u32 lines (0: each row is a line)   u32 rows of line 1, 2, ...
    then a column, in the order of the stream's chunk columns:   u8 encoding   u32 length   body

What is constant in a line (time, step, its names) is stored once a line, so that 100 lines of 20
metrics take about 9.6 bytes a point, and a block is made of them by joins alone.
"""

from __future__ import annotations

import struct
import sys
from array import array
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from schema.coltypes import fixed_width, is_nullable
from schema.errors import MalformedChunks
from schema.streams import STREAMS
from schema.varint import is_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schema.ids import RunId, TenantId
    from schema.streams import Column, StreamKind

PAYLOAD_FORMAT = 2
"""First byte of a payload. Format 1, which a log may still hold, is the same without GROUPS."""
_KNOWN_FORMATS = frozenset({1, PAYLOAD_FORMAT})

if sys.byteorder != "little":  # pragma: no cover
    raise ImportError(
        "charon writes arrays as they lie in memory: it needs a little-endian machine"
    )


class Encoding(IntEnum):
    """How a column's body holds its rows. Part of the log's format."""

    PLAIN = 0
    """Native bytes of all rows (LowCardinality as String; Nullable: null map, then values)."""
    RUNS = 1
    """One fixed-width value a line."""
    SHAPES = 2
    """Distinct pieces of Native Strings, one String a row of the line, and a u32 index a line."""
    DICT = 3
    """At most 256 distinct Native Strings and a u8 index a row."""
    GROUPS = 4
    """``logGroup``, of each ``logName`` what is before its last slash: nothing is stored."""


@dataclass(slots=True)
class Chunks:
    """One frame's rows of one stream, as columns. A value: nobody changes one.

    Not frozen, because one is made a frame: 0.14 µs, and 1.0 µs where each field of it is frozen.

    Attributes:
        row_count: 0 <= rows <= FRAME_ROWS_MAX.
        payload: the chunk columns, as this module's table says.
    """

    kind: StreamKind
    tenant: TenantId
    project: str
    run_id: RunId
    row_count: int
    payload: bytes


@dataclass(slots=True)
class ChunkColumn:
    """One column of a parsed payload; which of the fields are filled depends on the encoding.

    A value, not frozen for the same reason as `Chunks`.

    PLAIN and RUNS fill ``body``; SHAPES and DICT fill ``pieces`` and ``indices``.
    """

    encoding: Encoding
    body: bytes
    pieces: list[bytes]
    indices: Sequence[int]


@dataclass(slots=True)
class ParsedChunks:
    """A payload taken apart, a value: ``counts`` is None where each row is a line of its own."""

    chunks: Chunks
    counts: Sequence[int] | None
    columns: dict[str, ChunkColumn]

    @property
    def line_count(self) -> int:
        """Lines that the rows came in."""
        return self.chunks.row_count if self.counts is None else len(self.counts)


_HEAD = struct.Struct("<BI")
_U32 = struct.Struct("<I")
_NO_PIECES: list[bytes] = []
_GROUPS = ChunkColumn(Encoding.GROUPS, b"", _NO_PIECES, ())
_CHUNK_COLUMNS = {kind: stream.chunk_columns for kind, stream in STREAMS.items()}
_NAMES = frozenset({"String", "LowCardinality(String)"})


def pack_payload(
    counts: Sequence[int] | None, bodies: Sequence[tuple[Encoding, Sequence[bytes]]]
) -> bytes:
    """The payload of columns given as encoding and pieces of body, in the stream's order."""
    lines = b"" if counts is None else array("I", counts).tobytes()
    parts = [_HEAD.pack(PAYLOAD_FORMAT, len(lines) // 4), lines]
    for encoding, body in bodies:
        parts.append(_HEAD.pack(encoding, sum(map(len, body))))
        parts.extend(body)
    return b"".join(parts)


def pieces_body(pieces: Sequence[bytes], indices: bytes) -> list[bytes]:
    """Body of SHAPES or DICT: number of pieces, their lengths, the pieces, the indices."""
    lengths = array("I", map(len, pieces)).tobytes()
    return [_U32.pack(len(pieces)), lengths, *pieces, indices]


def parse_chunks(chunks: Chunks) -> ParsedChunks:
    """Take a payload apart. Every length is checked against what is there before it is used.

    That strings end where their column does is not checked here (the frame's CRC was), but by all
    that looks at single rows: `cut` and `rows_of`.

    Raises:
        MalformedChunks: the payload is not of the format, says which column and what was found.
    """
    payload, row_count = chunks.payload, chunks.row_count
    if len(payload) < _HEAD.size:
        raise MalformedChunks(f"a payload of {len(payload)} bytes has no head")
    version, line_count = _HEAD.unpack_from(payload)
    if version not in _KNOWN_FORMATS:
        raise MalformedChunks(f"payload format {version} is unknown; known is {PAYLOAD_FORMAT}")
    counts, offset = _parse_counts(payload, line_count, row_count)
    lines = row_count if counts is None else line_count
    columns: dict[str, ChunkColumn] = {}
    for column in _CHUNK_COLUMNS[chunks.kind]:
        columns[column.name], offset = _column_at(column, payload, offset, row_count, lines)
    if offset != len(payload):
        raise MalformedChunks(f"{len(payload) - offset} bytes behind the last column")
    return ParsedChunks(chunks, counts, columns)


def parse_head(
    columns: Sequence[Column], head: bytes, row_count: int
) -> tuple[array[int] | None, list[ChunkColumn]]:
    """The beginning of a payload, which ends behind its first columns: line counts, and those.

    Raises:
        MalformedChunks: it does not end there, or is not of the format.
    """
    version, line_count = _HEAD.unpack_from(head)
    if version not in _KNOWN_FORMATS:
        raise MalformedChunks(f"payload format {version} is unknown; known is {PAYLOAD_FORMAT}")
    counts, offset = _parse_counts(head, line_count, row_count)
    lines = row_count if counts is None else line_count
    parsed: list[ChunkColumn] = []
    for column in columns:
        chunk, offset = _column_at(column, head, offset, row_count, lines)
        parsed.append(chunk)
    if offset != len(head):
        raise MalformedChunks(f"{len(head) - offset} bytes behind the columns")
    return counts, parsed


def _column_at(
    column: Column, payload: bytes, offset: int, row_count: int, lines: int
) -> tuple[ChunkColumn, int]:
    """The column that begins at an offset, and the offset behind it."""
    if len(payload) - offset < _HEAD.size:
        raise MalformedChunks(f"column {column.name}: the payload ends before it")
    encoding, length = _HEAD.unpack_from(payload, offset)
    offset += _HEAD.size
    if length > len(payload) - offset:
        raise MalformedChunks(
            f"column {column.name}: {length} bytes announced, {len(payload) - offset} left"
        )
    body = payload[offset : offset + length]
    return _parse_column(column, encoding, body, row_count, lines), offset + length


def _parse_counts(payload: bytes, line_count: int, row_count: int) -> tuple[array[int] | None, int]:
    if not line_count:
        return None, _HEAD.size
    end = _HEAD.size + 4 * line_count
    if end > len(payload):
        raise MalformedChunks(f"{line_count} line counts announced, {len(payload)} bytes in all")
    counts = array("I", payload[_HEAD.size : end])
    if sum(counts) != row_count:
        raise MalformedChunks(f"lines have {sum(counts)} rows, the frame {row_count}")
    return counts, end


def _parse_column(
    column: Column, encoding: int, body: bytes, row_count: int, line_count: int
) -> ChunkColumn:
    width = fixed_width(column.type)
    if encoding == Encoding.PLAIN:
        least = row_count * (width or (2 if is_nullable(column.type) else 1))
        if len(body) < least or (width is not None and len(body) != least):
            raise MalformedChunks(f"column {column.name}: {len(body)} bytes for {row_count} rows")
        return ChunkColumn(Encoding.PLAIN, body, _NO_PIECES, ())
    if encoding == Encoding.RUNS and width is not None:
        if len(body) != width * line_count:
            raise MalformedChunks(f"column {column.name}: {len(body)} bytes for {line_count} lines")
        return ChunkColumn(Encoding.RUNS, body, _NO_PIECES, ())
    if encoding == Encoding.SHAPES and column.type in _NAMES:
        pieces, end = _parse_pieces(column, body)
        if len(body) - end != 4 * line_count:
            raise MalformedChunks(f"column {column.name}: {len(body) - end} bytes of indices")
        return ChunkColumn(Encoding.SHAPES, b"", pieces, array("I", body[end:]))
    if encoding == Encoding.DICT and column.type == "LowCardinality(String)":
        pieces, end = _parse_pieces(column, body)
        if len(body) - end != row_count or len(pieces) > 256:
            raise MalformedChunks(f"column {column.name}: {len(body) - end} bytes of indices")
        if not all(map(is_text, pieces)):  # few, and each becomes a key of a block's dictionary
            raise MalformedChunks(f"column {column.name}: a piece that is not one string")
        return ChunkColumn(Encoding.DICT, b"", pieces, body[end:])
    if encoding == Encoding.GROUPS and column.name == "logGroup" and not body:
        return _GROUPS
    raise MalformedChunks(f"column {column.name}: encoding {encoding} does not suit {column.type}")


def _parse_pieces(column: Column, body: bytes) -> tuple[list[bytes], int]:
    """The pieces and the offset of the indices behind them."""
    count = _U32.unpack_from(body)[0] if len(body) >= 4 else 0
    offset = 4 + 4 * count
    if offset > len(body):
        raise MalformedChunks(f"column {column.name}: {count} pieces in {len(body)} bytes")
    lengths = array("I", body[4:offset])
    if sum(lengths) > len(body) - offset:
        raise MalformedChunks(f"column {column.name}: pieces pass the end of {len(body)} bytes")
    pieces: list[bytes] = []
    for length in lengths:
        pieces.append(body[offset : offset + length])
        offset += length
    return pieces, offset
