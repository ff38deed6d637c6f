"""Log sequence numbers: the position of a frame in its shard's log, and ranges of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

Lsn = NewType("Lsn", int)
"""A frame's number: rises within a shard, never given twice; numbers may be left out."""

LSN_MAX = 2**63 - 1
"""Above any number in use; leaves room for arithmetic in signed 64 bits."""


@dataclass(frozen=True, slots=True)
class LsnRange:
    """Frames from ``first`` to ``last``, both included."""

    first: Lsn
    last: Lsn

    def __post_init__(self) -> None:
        """Refuse an empty or negative range: a range names at least one frame."""
        if not 0 <= self.first <= self.last:
            raise ValueError(f"no range of frames: {self.first} to {self.last}")

    @property
    def end(self) -> Lsn:
        """One past the last: where the next range begins."""
        return Lsn(self.last + 1)
