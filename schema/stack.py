"""Chunks of many frames of one stream, by field: no object a frame but what the log holds of it.

A batch of small frames has 20,000 of them. As lists of payloads they cost the collector of cycles
nothing, and a `Chunks` is made of one when somebody looks at it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

from schema.columns import Chunks

if TYPE_CHECKING:
    from schema.ids import RunId, TenantId
    from schema.streams import StreamKind


@dataclass(frozen=True, slots=True, eq=False)
class Owner:
    """Whose rows a frame has.

    Compared and hashed by identity: it is a key, many times a frame.
    """

    tenant: TenantId
    project: str
    run_id: RunId


class ChunkStack(Sequence[Chunks]):
    """Frames' chunks in order. Whoever fills it appends to the three lists, which are equally long.

    Attributes:
        row_counts: rows of each frame.
    """

    __slots__ = ("kind", "owners", "payloads", "row_counts")

    def __init__(self, kind: StreamKind) -> None:
        self.kind = kind
        self.owners: list[Owner] = []
        self.row_counts: list[int] = []
        self.payloads: list[bytes] = []

    @classmethod
    def of(cls, kind: StreamKind, frames: Sequence[Chunks]) -> ChunkStack:
        """The same chunks as a stack."""
        if isinstance(frames, ChunkStack):
            return frames
        stack = cls(kind)
        for frame in frames:
            stack.add(frame)
        return stack

    def add(self, frame: Chunks) -> None:
        """One more frame, of the same stream."""
        self.owners.append(Owner(frame.tenant, frame.project, frame.run_id))
        self.row_counts.append(frame.row_count)
        self.payloads.append(frame.payload)

    def __len__(self) -> int:
        return len(self.payloads)

    @overload
    def __getitem__(self, index: int) -> Chunks: ...
    @overload
    def __getitem__(self, index: slice) -> list[Chunks]: ...
    def __getitem__(self, index: int | slice) -> Chunks | list[Chunks]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        owner = self.owners[index]
        rows, payload = self.row_counts[index], self.payloads[index]
        return Chunks(self.kind, owner.tenant, owner.project, owner.run_id, rows, payload)
