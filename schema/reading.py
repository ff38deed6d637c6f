"""A frame's rows for people and tests: slow, and complete."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from schema.coltypes import fixed_code, is_nullable
from schema.columns import parse_chunks
from schema.errors import MalformedChunks
from schema.expand import expand_fixed, row_pieces
from schema.streams import STREAMS, Origin
from schema.varint import text_content

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from schema.columns import Chunks, ParsedChunks
    from schema.streams import Column


def rows_of(chunks: Chunks) -> Iterator[dict[str, object]]:
    """Each row as a dict, every column of the table by name but ``batch``, which a frame has not.

    Times are integer milliseconds, steps and values floats, nulls None.

    Raises:
        MalformedChunks: the payload is not of the format, down to the last string.
    """
    parsed = parse_chunks(chunks)
    columns = [
        column for column in STREAMS[chunks.kind].columns if column.origin is not Origin.BLOCK
    ]
    names = [column.name for column in columns]
    values = [_values(parsed, column) for column in columns]
    for row in zip(*values, strict=True):
        yield dict(zip(names, row, strict=True))


def _values(parsed: ParsedChunks, column: Column) -> Sequence[object]:
    count = parsed.chunks.row_count
    if column.origin is Origin.FRAME:
        return [_constant(parsed.chunks, column.name)] * count
    if column.origin is Origin.ZERO:
        return [0.0] * count
    code = fixed_code(column.type)
    if code:
        return struct.unpack(f"<{count}{code}", expand_fixed(parsed, column))
    try:
        strings = [text_content(piece).decode() for piece in row_pieces(parsed, column)]
    except UnicodeDecodeError as error:
        raise MalformedChunks(f"column {column.name}: {error}") from error
    if not is_nullable(column.type):
        return strings
    nulls = parsed.columns[column.name].body
    return [None if nulls[row] else string for row, string in enumerate(strings)]


def _constant(chunks: Chunks, name: str) -> object:
    return {
        "tenantId": chunks.tenant,
        "projectName": chunks.project,
        "runId": chunks.run_id,
    }[name]
