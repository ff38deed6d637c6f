"""The Native format, revision 0, as ClickHouse speaks it over HTTP: any block to bytes and back.

===============  =================================================================================
part of a block  bytes
===============  =================================================================================
head             varint number of columns, varint number of rows
each column      its name and its type as Strings, then, where there are rows, prefix and data
===============  =================================================================================

Blocks follow each other until the data end. `schema.block` makes the blocks that are delivered;
this is the general form, for tests, tools and answers to queries. Values are Python's: integers,
floats, strings, None; a DateTime64 is its raw integer, so milliseconds for DateTime64(3).

Source: ClickHouse ``src/Formats/NativeWriter.cpp``, ``NativeReader.cpp``; both directions are
tested against the engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from schema.coltypes import column_type
from schema.errors import MalformedNative
from schema.varint import read_varint, split_texts, text, text_content, varint

if TYPE_CHECKING:
    from collections.abc import Sequence

COLUMNS_MAX = 10_000
"""More columns than any table has: a head that says so is not a head."""


@dataclass(frozen=True, slots=True)
class DecodedBlock:
    """One block, by columns: names, types and values have the same length and order."""

    names: list[str]
    types: list[str]
    columns: list[list[object]]
    row_count: int


def encode_block(columns: Sequence[tuple[str, str, Sequence[object]]]) -> bytes:
    """One block of columns given as name, type and values, all of one length.

    Raises:
        UnknownType: a type that this package does not write.
        ValueError: columns of different lengths.
    """
    row_count = len(columns[0][2]) if columns else 0
    out = [varint(len(columns)), varint(row_count)]
    for name, type_name, values in columns:
        if len(values) != row_count:
            raise ValueError(f"column {name} has {len(values)} rows, the first {row_count}")
        out.append(text(name) + text(type_name))
        kind = column_type(type_name)
        if row_count:
            out.append(kind.encode(values))
    return b"".join(out)


def decode_blocks(data: bytes) -> list[DecodedBlock]:
    """All blocks that the data hold.

    Raises:
        MalformedNative: the data are cut off or not of the format; says the byte offset.
        UnknownType: a column of a type that this package does not read.
    """
    blocks: list[DecodedBlock] = []
    offset = 0
    while offset < len(data):
        try:
            block, offset = _decode_block(data, offset)
        except (ValueError, UnicodeDecodeError) as error:
            raise MalformedNative(f"block {len(blocks)} at byte {offset}: {error}") from error
        blocks.append(block)
    return blocks


def _decode_block(data: bytes, offset: int) -> tuple[DecodedBlock, int]:
    column_count, offset = read_varint(data, offset)
    row_count, offset = read_varint(data, offset)
    if column_count > COLUMNS_MAX or (column_count and row_count > len(data) - offset):
        raise ValueError(f"{column_count} columns of {row_count} rows in {len(data)} bytes")
    block = DecodedBlock([], [], [], row_count)
    for _ in range(column_count):
        header, offset = split_texts(data, 2, offset)
        name, type_name = (text_content(piece).decode() for piece in header)
        kind = column_type(type_name)
        values: list[object] = []
        if row_count:
            values, offset = kind.decode(data, offset, row_count)
        block.names.append(name)
        block.types.append(type_name)
        block.columns.append(values)
    return block, offset
