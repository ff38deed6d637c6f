"""Cuts a body that arrives in any slices into blocks of whole lines.

At most one unfinished line is kept, and never more of it than a line may have: a longer one is
thrown away as it arrives and reported by its number alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from schema.limits import LINE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines, without the last newline, and the number of the first, counted from 1."""

    first_line: int
    text: bytes


@dataclass(frozen=True, slots=True)
class LongLine:
    """A line of more bytes than are taken; its bytes are gone."""

    line: int


class LineCutter:
    """Takes slices, gives blocks. A byte order mark at the start of the body is dropped.

    Args:
        line_bytes_max: longest line that is taken, without its newline.
    """

    def __init__(self, line_bytes_max: int = LINE_BYTES_MAX) -> None:
        self._line_bytes_max = line_bytes_max
        self._held = bytearray()
        self._is_skipping = False
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
            end = slice_.find(b"\n")
            if end < 0:
                self._hold(slice_)
            else:
                self._hold(slice_[:end])
                yield self._end_of_held()
            start = len(slice_) if end < 0 else end + 1
        end = slice_.rfind(b"\n", start)
        if end >= 0:
            yield from self._block(slice_[start:end])
            start = end + 1
        self._hold(slice_[start:])
        if is_last and (self._held or self._is_skipping):
            yield self._end_of_held()

    def _hold(self, piece: bytes) -> None:
        if self._is_skipping:
            return
        if len(self._held) + len(piece) > self._line_bytes_max:
            self._held.clear()
            self._is_skipping = True
        else:
            self._held += piece

    def _end_of_held(self) -> Block | LongLine:
        line = self._next_line
        self._next_line += 1
        if self._is_skipping:
            self._is_skipping = False
            return LongLine(line)
        text = bytes(self._held)
        self._held.clear()
        return Block(line, _without_mark(line, text))

    def _block(self, text: bytes) -> Iterator[Block | LongLine]:
        first = self._next_line
        if len(text) <= self._line_bytes_max:
            self._next_line += text.count(b"\n") + 1
            yield Block(first, _without_mark(first, text))
            return
        # Only a slice that is longer than the longest line gets here: look at each line's length.
        for number, line in enumerate(text.split(b"\n"), first):
            self._next_line += 1
            is_long = len(line) > self._line_bytes_max
            yield LongLine(number) if is_long else Block(number, _without_mark(number, line))


def _without_mark(line: int, text: bytes) -> bytes:
    return text.removeprefix(_BYTE_ORDER_MARK) if line == 1 else text
