"""Columns of a payload while rows are being added: text, labels and repeated pieces.

Each chooses the smallest encoding when the frame is finished.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from schema.columns import Encoding, pieces_body

if TYPE_CHECKING:
    from collections.abc import Sequence

DICT_PIECES_MAX = 256
"""An index of DICT is one byte."""

GROUPS_BODY: tuple[Encoding, list[bytes]] = (Encoding.GROUPS, [])
"""The column ``logGroup`` of every frame: it follows from the names."""


def runs_body(
    values: array[int] | array[float], *, has_counts: bool
) -> tuple[Encoding, list[bytes]]:
    """Fixed-width values, one a line; where each row is a line that is the plain form."""
    return (Encoding.RUNS if has_counts else Encoding.PLAIN), [values.tobytes()]


def shapes_body(pieces: Sequence[bytes], indices: array[int]) -> tuple[Encoding, list[bytes]]:
    """Pieces of Native Strings, an index a line: with the distinct pieces once, or all in a row.

    Args:
        pieces: not necessarily distinct; equal ones are stored once.
        indices: typecode "I", one a line.
    """
    distinct: dict[bytes, int] = {}
    places = [distinct.setdefault(piece, len(distinct)) for piece in pieces]
    if len(distinct) != len(pieces):
        indices = array("I", [places[index] for index in indices])
    shared_size = 4 + sum(map(len, distinct)) + 4 * len(distinct) + 4 * len(indices)
    sizes = [len(piece) for piece in distinct]
    if sum([sizes[index] for index in indices]) > shared_size:
        return Encoding.SHAPES, pieces_body(list(distinct), indices.tobytes())
    ordered = list(distinct)
    return Encoding.PLAIN, [ordered[index] for index in indices]


class Labels:
    """A LowCardinality column: few distinct strings, an index a row."""

    __slots__ = ("_indices", "_places")

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}
        self._indices: list[int] = []

    def add(self, piece: bytes) -> None:
        """One row, as a Native String."""
        self._indices.append(self._places.setdefault(piece, len(self._places)))

    def body(self) -> tuple[Encoding, list[bytes]]:
        """The column's encoding and body."""
        pieces = list(self._places)
        if len(pieces) <= DICT_PIECES_MAX:
            return Encoding.DICT, pieces_body(pieces, bytes(self._indices))
        return Encoding.PLAIN, [pieces[index] for index in self._indices]


class Names:
    """``logGroup`` and ``logName`` of rows that have one name each."""

    __slots__ = ("_indices", "_places")

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}
        self._indices = array("I")

    def add(self, name: bytes) -> None:
        """One row."""
        self._indices.append(self._places.setdefault(name, len(self._places)))

    def bodies(self) -> tuple[tuple[Encoding, list[bytes]], tuple[Encoding, list[bytes]]]:
        """The bodies of ``logGroup`` and ``logName``, in the order of the declarations."""
        return GROUPS_BODY, shapes_body(list(self._places), self._indices)


class OptionalTexts:
    """A Nullable(String) column."""

    __slots__ = ("_nulls", "_pieces")

    def __init__(self) -> None:
        self._nulls = bytearray()
        self._pieces: list[bytes] = []

    def add(self, piece: bytes | None) -> None:
        """One row, as a Native String or null."""
        self._nulls.append(piece is None)
        self._pieces.append(b"\0" if piece is None else piece)

    def body(self) -> tuple[Encoding, list[bytes]]:
        """The column's encoding and body: the null map, then the strings."""
        return Encoding.PLAIN, [bytes(self._nulls), *self._pieces]
