"""Many frames of one table, by field. A `Frame` is made of one when somebody asks for it.

A batch of requests of ten points has 20,000 frames. As objects each costs 2 µs to make, a
microsecond to let go, and the attention of the collector of cycles; as entries in lists, next to
nothing. What is done with all of them (a block, a token, counts) works on the lists; what is done
with one (quarantine, a search for bad rows) asks for a `Frame`.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from buffer.frame import Frame, frame_at
from buffer.lsn import Lsn
from schema.stack import ChunkStack
from schema.streams import STREAMS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from schema.streams import StreamKind


LET_GO_AT_ONCE = 1_024
"""Frames whose memory is given back in one step, in 0.1 ms."""


class Frames(Sequence[Frame]):
    """Frames in LSN order.

    Attributes:
        stack: their chunks.
        headers: of each frame the fixed part of its header, or the frame itself.
        proofs: LSN and payload CRC of each frame, in turn: what a batch's token is made of.
        rows: of all frames.
        bytes: about what they take in a block, by `row_bytes` and the payloads.
    """

    __slots__ = ("bytes", "headers", "proofs", "rows", "stack")

    def __init__(self, kind: StreamKind) -> None:
        self.stack = ChunkStack(kind)
        self.headers: list[bytes | Frame] = []
        self.proofs = array("Q")
        self.rows = 0
        self.bytes = 0

    @classmethod
    def of(cls, kind: StreamKind, frames: Iterable[Frame]) -> Frames:
        """These frames."""
        if isinstance(frames, Frames):
            return frames
        collected = cls(kind)
        for frame in frames:
            collected.add(frame)
        return collected

    @property
    def first_lsn(self) -> Lsn:
        """Of the first frame; there must be one."""
        return Lsn(self.proofs[0])

    @property
    def last_lsn(self) -> Lsn:
        """Of the last frame; there must be one."""
        return Lsn(self.proofs[-2])

    def add(self, frame: Frame) -> None:
        """One more frame, behind the last."""
        self.stack.add(frame.chunks)
        self.headers.append(frame)
        self.proofs.extend((frame.lsn, frame.payload_crc))
        self.rows += frame.chunks.row_count
        self.bytes += frame_bytes(frame)

    def let_go(self) -> None:
        """Becomes empty, step by step, on a thread: nobody looks at it any more.

        A list that goes takes all of its items with it and holds Python's lock meanwhile: for 2 to
        4 ms with those of 20,000 frames.
        """
        for items in (self.headers, self.stack.payloads, self.stack.owners, self.stack.row_counts):
            while items:
                del items[-LET_GO_AT_ONCE:]

    def __len__(self) -> int:
        return len(self.headers)

    @overload
    def __getitem__(self, index: int) -> Frame: ...
    @overload
    def __getitem__(self, index: slice) -> list[Frame]: ...
    def __getitem__(self, index: int | slice) -> Frame | list[Frame]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        header = self.headers[index]
        return header if isinstance(header, Frame) else frame_at(header, self.stack[index])


def row_bytes(kind: StreamKind) -> int:
    """What a row takes in a block, beside the strings of its payload, at most.

    Names and the like are in a block once, and eight bytes hold an index or a value of any column.
    """
    return 8 * len(STREAMS[kind].columns)


def frame_bytes(frame: Frame) -> int:
    """About what a frame takes in a block."""
    chunks = frame.chunks
    return row_bytes(chunks.kind) * chunks.row_count + len(chunks.payload)
