"""A LowCardinality(String) column of a block: one dictionary for all frames, an index a row."""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING

from schema.coltypes import LOW_CARDINALITY_FLAGS, LOW_CARDINALITY_PREFIX, index_typecode
from schema.columns import Encoding
from schema.errors import MalformedChunks
from schema.expand import row_pieces
from schema.streams import Origin
from schema.varint import text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from schema.columns import ParsedChunks
    from schema.streams import Column

_TWO_U64 = struct.Struct("<QQ")
_U64 = struct.Struct("<Q")
_BYTES = bytes(range(256))
MANY = 16
"""New keys that are cheaper to add together: 0.1 µs each, and 0.3 one by one."""


class Keys(dict[bytes, int]):
    """A block's dictionary: the place of each string, a new one for a string not seen yet.

    Asked by ``keys[string]``, so that a list of known strings is looked up without Python's help.
    """

    def __missing__(self, key: bytes) -> int:
        place = self[key] = len(self)
        return place

    def places(self, keys: tuple[bytes, ...]) -> tuple[int, ...]:
        """The place of each.

        Many that are new, as those of a line with names of its own, are added at once.
        """
        if len(keys) >= MANY and self.keys().isdisjoint(keys):
            distinct = dict.fromkeys(keys)
            added = range(len(self), len(self) + len(distinct))
            self.update(zip(distinct, added, strict=True))
            if len(distinct) == len(keys):
                return tuple(added)
        return tuple(map(self.__getitem__, keys))


def low_cardinality(column: Column, frames: Sequence[ParsedChunks], rows: int) -> list[bytes]:
    """The column's prefix and data; at least one row.

    A frame has a few distinct values: they get places in the block's dictionary, and its indices
    are translated, as bytes by a table while the dictionary has at most 256 keys.

    Raises:
        MalformedChunks: an index without a string, or strings that pass their column's end.
    """
    keys = Keys()
    parts = [_frame_indices(column, frame, keys) for frame in frames]
    number, typecode = index_typecode(len(keys))
    if typecode == "B":
        indices = [_translate(column, local, places) for local, places in parts]
    else:
        indices = [
            array(typecode, _look_up(column, local, places)).tobytes() for local, places in parts
        ]
    return low_cardinality_data(number, keys, rows, indices)


def low_cardinality_data(
    number: int, keys: Iterable[bytes], rows: int, indices: Sequence[bytes]
) -> list[bytes]:
    """Prefix and data of a column of at least one row.

    Args:
        number: of the index's width, by `index_typecode`.
        keys: distinct Native Strings.
        rows: how many indices.
        indices: in pieces.
    """
    joined = list(keys)
    head = _TWO_U64.pack(LOW_CARDINALITY_FLAGS | number, len(joined))
    return [LOW_CARDINALITY_PREFIX + head, b"".join(joined), _U64.pack(rows), *indices]


def _frame_indices(
    column: Column, frame: ParsedChunks, keys: Keys
) -> tuple[Sequence[int], list[int]]:
    """A frame's own indices, and the place in the block's dictionary of each value they mean."""
    if column.origin is Origin.FRAME:
        chunks = frame.chunks
        key = text(chunks.tenant if column.name == "tenantId" else chunks.project)
        return bytes(chunks.row_count), [keys[key]]
    chunk = frame.columns[column.name]
    if chunk.encoding is Encoding.DICT:
        return chunk.indices, [keys[piece] for piece in chunk.pieces]
    pieces = row_pieces(frame, column)
    places = [keys[piece] for piece in pieces]
    return range(len(pieces)), places


def _translate(column: Column, local: Sequence[int], places: list[int]) -> bytes:
    if not isinstance(local, bytes):
        return bytes(_look_up(column, local, places))
    if local.translate(None, _BYTES[: len(places)]):  # what is left is no index
        raise MalformedChunks(f"column {column.name}: index {max(local)} of {len(places)} strings")
    return local.translate(bytes(places).ljust(256, b"\0"))


def _look_up(column: Column, local: Sequence[int], places: list[int]) -> list[int]:
    try:
        return [places[index] for index in local]
    except IndexError as error:
        raise MalformedChunks(
            f"column {column.name}: index {max(local)} of {len(places)} strings"
        ) from error
