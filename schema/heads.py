"""What frames of metrics with the same keys have in common, taken apart once.

The payload of such a frame has three columns of fixed width at its end, whose places follow from
the numbers of lines and rows. All before them, its *head*, is the same bytes in every frame of a
run that logs the same names in as many lines: it is looked up instead of parsed, which took 9 of
the 20 µs that a frame of one line used to take.

===========  ============================================================================
head         format, rows of each line, ``logGroup`` and ``logName`` with their heads
tail         ``time``, ``step`` (8 bytes a line each) and ``value`` (8 bytes a row), each
             behind 5 bytes of encoding and length
===========  ============================================================================
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from schema.columns import Encoding, parse_head
from schema.errors import MalformedChunks
from schema.expand import split_column
from schema.names import group_piece
from schema.streams import METRICS

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from schema.columns import ChunkColumn

HEADS_BYTES_MAX = 40 * 2**20
"""Estimated, of all heads that are kept: 17,000 of ten names each, or 450 of 500."""
HEAD_BYTES_MAX = 64 * 2**10
"""Of a head that is kept: a longer one is of a frame of many rows, and parsed each time."""
LEFT_OUT_MAX = 4_096
"""Heads that are met while there is no room; then all is forgotten, and what is in use is soon
known again. To make room for each would leave nothing of heads that come round in turn."""

_BYTES_A_HEAD = 500
_BYTES_A_NAME = 96
"""Of objects, beside the bytes of the head, of its names and of their groups."""

TAIL_MARKS_BYTES = 15
"""Encoding and length of three columns."""

_COLUMNS = METRICS.chunk_columns[:2]
_MARK = struct.Struct("<BI")


@dataclass(slots=True, eq=False)
class Head:
    """The head of a frame, and how its tail is cut. Compared and hashed by identity.

    A value; a frozen one would take three times as long to make.

    Attributes:
        counts: rows of each line; None where each row is a line.
        even: rows of every line where all have as many, else 0.
        names: Native Strings, in pieces that lines may share.
        groups: of each name its group, likewise.
        indices: the piece of each line; empty where the only piece is that of all lines together,
            or of each of them.
        tail: cuts mark, times, mark, steps, mark, values.
        line_mark, value_mark: what the marks must be.
    """

    rows: int
    lines: int
    counts: Sequence[int] | None
    even: int
    names: tuple[tuple[bytes, ...], ...]
    groups: tuple[tuple[bytes, ...], ...]
    indices: Sequence[int]
    tail: struct.Struct
    line_mark: bytes
    value_mark: bytes


class Heads:
    """Heads by their bytes; bounded. Used by one thread at a time."""

    def __init__(self) -> None:
        self._known: dict[bytes, Head] = {}
        self._bytes = 0
        self._left_out = 0
        self.find = self._known.get
        """The head of these bytes, if it is known."""

    def __len__(self) -> int:
        return len(self._known)

    @property
    def byte_count(self) -> int:
        """Estimated bytes held."""
        return self._bytes

    def learn(self, raw: bytes, rows: int) -> Head | None:
        """Takes a head apart; None where the bytes are no head of a frame of so many rows."""
        try:
            head = _parse(raw, rows)
        except (MalformedChunks, IndexError):
            return None  # whoever parses the whole payload says what is wrong with it
        if head is None:
            return None
        if len(raw) <= HEAD_BYTES_MAX:
            size = _BYTES_A_HEAD + 3 * len(raw) + _BYTES_A_NAME * sum(map(len, head.names))
            if self._bytes + size > HEADS_BYTES_MAX:
                self._left_out += 1
                if self._left_out < LEFT_OUT_MAX:
                    return head
                self._known.clear()
                self._bytes = self._left_out = 0
            self._known[raw] = head
            self._bytes += size
        return head


def _parse(raw: bytes, rows: int) -> Head | None:
    counts, (groups, names) = parse_head(_COLUMNS, raw, rows)
    if groups.encoding is not Encoding.GROUPS:
        return None  # of a former release
    lines = rows if counts is None else len(counts)
    even = 1
    if counts is not None:
        even = counts[0] if counts.count(counts[0]) == lines else 0
    pieces, indices = _names(names, counts, rows)
    encoding = Encoding.PLAIN if counts is None else Encoding.RUNS
    grouped = tuple([tuple(map(group_piece, piece)) for piece in pieces])
    return Head(rows, lines, counts, even, pieces, grouped, indices, *_tail(lines, rows, encoding))


def _names(
    chunk: ChunkColumn, counts: array[int] | None, rows: int
) -> tuple[tuple[tuple[bytes, ...], ...], Sequence[int]]:
    """Pieces and indices as a `Head` has them.

    Raises:
        MalformedChunks: strings that do not fill their piece, or a piece with more or fewer than
            its line's.
        IndexError: an index without a piece.
    """
    if chunk.encoding is Encoding.PLAIN:
        return (tuple(split_column(_COLUMNS[1], chunk.body, rows)),), ()
    if chunk.encoding is Encoding.DICT:
        return (tuple([chunk.pieces[index] for index in chunk.indices]),), ()
    each = counts or [1] * rows
    sizes = dict(zip(chunk.indices, each, strict=True))
    pieces = tuple(
        [
            tuple(split_column(_COLUMNS[1], piece, sizes.get(place, 0)))
            for place, piece in enumerate(chunk.pieces)
        ]
    )
    if [len(pieces[index]) for index in chunk.indices] != list(each):
        raise MalformedChunks("column logName: a piece has not its line's rows")
    return pieces, (() if len(pieces) == 1 else chunk.indices)


@lru_cache(maxsize=1_024)
def _tail(lines: int, rows: int, encoding: Encoding) -> tuple[struct.Struct, bytes, bytes]:
    """How a tail is cut, and the marks in it."""
    cut = struct.Struct(f"5s{8 * lines}s5s{8 * lines}s5s{8 * rows}s")
    return cut, _MARK.pack(encoding, 8 * lines), _MARK.pack(Encoding.PLAIN, 8 * rows)
