"""Remembers the encoded names of lines by their keys, since most lines of a run have the same keys.

Looking a line up costs one tuple and one dictionary access, instead of an encoding a name. What
must not happen is that a run with ever-new names (a million of them) fills memory, or drives the
useful entries out: so a set of keys is only kept when it is seen again, and what is known of those
seen once is a bounded set of hashes. While the cache is full, what is known stays: to make room for
each would leave nothing of key sets that come round in turn, as those of many runs do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingest.decode_fields import NAME_BYTES_MAX
from schema.names import SHAPE_NAMES_MAX, name_shape

if TYPE_CHECKING:
    from schema.names import NameShape

ENTRIES_MAX = 32_768
BYTES_MAX = 16 * 2**20
"""Estimated bytes of all entries. One worker has one cache, so this counts once a worker."""
ENTRY_BYTES_MAX = BYTES_MAX // 16
"""Of one entry; a wider line is encoded each time, which costs its sender and no one else."""
SEEN_ONCE_MAX = 16_384
"""Fewer than the entries there is room for: names that come round in turn, but too many to keep,
are forgotten before they return."""
LEFT_OUT_MAX = 4_096
"""Shapes that would have been kept, had there been room; then all is forgotten, and what is in use
is soon known again: runs end, and their names with them."""

PIECE_BYTES_MAX = 2**20
"""Names of one piece of a line: a wider line is cut, so that a piece always fits a frame."""

_BYTES_A_NAME = 70
"""A str object's head and its slot in the key's tuple; measured 57 and 8, rounded up."""
_BYTES_AN_ENTRY = 400


class ShapeCache:
    """Bounded in entries and bytes. One thread uses it."""

    def __init__(self, *, entries_max: int = ENTRIES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._shapes: dict[tuple[str, ...], NameShape] = {}
        self._seen_once: set[int] = set()
        self._bytes = 0
        self._left_out = 0
        self.find = self._shapes.get
        """The shape of keys that are known, else None. Names of a known shape are good."""

    @property
    def byte_count(self) -> int:
        """Estimated bytes held."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._shapes)

    def shape(self, names: tuple[str, ...]) -> NameShape:
        """The shape of keys whose names were checked, known or not; kept at the second sight."""
        shape = self._shapes.get(names)
        if shape is None:
            shape = name_shape(names)
            if self._is_second_sight(names):
                self._keep(names, shape)
        return shape

    def new_shape(self, names: tuple[str, ...]) -> NameShape | None:
        """The shape of keys not known yet; None where they are not good or not few enough.

        What is wrong with which name is not for the hot path to find out.
        """
        size = sum(map(len, names))
        if not names or len(names) > SHAPE_NAMES_MAX or 8 * size > PIECE_BYTES_MAX:
            return None
        if size > NAME_BYTES_MAX // 4 or not all(names) or any(map(str.isspace, names)):
            return None
        return self.shape(names)

    def _is_second_sight(self, names: tuple[str, ...]) -> bool:
        mark = hash(names)
        if mark in self._seen_once:
            self._seen_once.discard(mark)
            return True
        if len(self._seen_once) >= SEEN_ONCE_MAX:
            self._seen_once.clear()
        self._seen_once.add(mark)
        return False

    def _keep(self, names: tuple[str, ...], shape: NameShape) -> None:
        size = _size(names, shape)
        if size > min(ENTRY_BYTES_MAX, self._bytes_max):
            return
        if self._bytes + size > self._bytes_max or len(self._shapes) >= self._entries_max:
            self._left_out += 1
            if self._left_out < LEFT_OUT_MAX:
                return
            self._shapes.clear()
            self._bytes = self._left_out = 0
        self._shapes[names] = shape
        self._bytes += size


def _size(names: tuple[str, ...], shape: NameShape) -> int:
    """Estimated bytes of an entry. A name's text is at most 4 bytes a byte of its UTF-8."""
    wide = 1 if all(map(str.isascii, names)) else 4
    text = wide * len(shape.names)
    return _BYTES_AN_ENTRY + _BYTES_A_NAME * len(names) + text + len(shape.names)
