"""Cuts a body that arrives in any slices into blocks of whole lines.

At most one unfinished line is kept, and never more of it than a line may have: a longer one is
thrown away as it arrives and reported by its number alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

from schema.limits import LINE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

START_BYTES = 64
BLANKS = b" \t\r\n"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines, at least one, with their newlines (the body's last may have none).

    Attributes:
        first_line: the number of the first, counted from 1.
    """

    first_line: int
    lines: list[bytes]


@dataclass(frozen=True, slots=True)
class LongLine:
    """A line of more bytes than are taken: its number and how it starts; the rest is gone."""

    line: int
    start: bytes


class LineCutter:
    """Takes slices, gives blocks. A byte order mark at the start of the body is dropped.

    Slices of blank lines alone are dropped too, but for their number.

    Args:
        line_bytes_max: longest line that is taken, with its newline.
    """

    def __init__(self, line_bytes_max: int = LINE_BYTES_MAX) -> None:
        self._line_bytes_max = line_bytes_max
        self._held = bytearray()
        self._is_skipping = False
        self._start_of_long = b""
        self._next_line = 1

    def cut(self, slice_: bytes, *, is_last: bool = False) -> Iterator[Block | LongLine]:
        """The lines that this slice ends, and with `is_last` the line that the body ends.

        Args:
            slice_: the next bytes of the body; a block is at most as long as the longer of slice
                and line.
            is_last: nothing follows.
        """
        start = 0
        if self._held or self._is_skipping:
            start = slice_.find(b"\n") + 1
            self._hold(slice_[:start] if start else slice_)
            if not (start or is_last):
                return
            yield self._end_of_held()
            start = start or len(slice_)
        end = len(slice_) if is_last else slice_.rfind(b"\n", start) + 1
        if end > start:
            yield from self._blocks(slice_[start:end])
        self._hold(slice_[max(start, end) :])

    def _hold(self, piece: bytes) -> None:
        if self._is_skipping:
            return
        if len(self._held) + len(piece) > self._line_bytes_max:
            self._start_of_long = bytes(self._held[:START_BYTES]) or piece[:START_BYTES]
            self._held.clear()
            self._is_skipping = True
        else:
            self._held += piece

    def _end_of_held(self) -> Block | LongLine:
        if self._is_skipping:
            self._is_skipping = False
            return self._long(self._start_of_long)
        line = bytes(self._held)
        self._held.clear()
        return self._block([line])

    def _blocks(self, text: bytes) -> Iterator[Block | LongLine]:
        if len(text) <= self._line_bytes_max and not text.strip(BLANKS):
            # Newlines alone, of which 2 KB of zstd hold 60 million: counted and not looked at.
            self._next_line += text.count(b"\n") + (not text.endswith(b"\n"))
            return
        # readlines() looks for newlines with memchr: a third of the time that split() takes.
        lines = BytesIO(text).readlines()
        if len(text) <= self._line_bytes_max:
            yield self._block(lines)
            return
        # Only a slice that is longer than the longest line gets here: look at each line's length.
        for line in lines:
            if len(line) <= self._line_bytes_max:
                yield self._block([line])
            else:
                yield self._long(line[:START_BYTES])

    def _block(self, lines: list[bytes]) -> Block:
        first = self._next_line
        self._next_line += len(lines)
        if first == 1 and lines[0].startswith(_BYTE_ORDER_MARK):
            lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
        return Block(first, lines)

    def _long(self, start: bytes) -> LongLine:
        self._next_line += 1
        return LongLine(self._next_line - 1, start)
