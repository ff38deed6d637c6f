"""Every journal of a data directory against ClickHouse, a few hundred blocks at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from buffer.inspection import frames_of, segments_of
from buffer.journal import DIRECTORY_NAME, RECORD_BYTES, files_of, read_file
from buffer.reconcile import ASKED_MAX, BlockState, compare, is_replaced
from buffer.resend import ask, requests_of
from buffer.shard import RESEND_NAME, id_of, list_shards
from schema.streams import STREAMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from buffer.frame import Frame
    from buffer.fs import FileSystem
    from buffer.journal import Delivered
    from buffer.reconcile import Compared
    from buffer.sink import Sink
    from schema.block import Layout
    from schema.ids import BlockNumber
    from schema.streams import StreamKind

NOTED_MAX = 10_000
"""Blocks that are missing or short and are listed, so that memory is bounded; all are counted."""


@dataclass(slots=True)
class Noted:
    """A block that is missing or short.

    Attributes:
        shard: the directory in whose log its batch is, when that is kept whole; else None.
        is_asked: somebody has asked for it to be sent again.
    """

    compared: Compared
    shard: Path | None
    is_asked: bool


@dataclass(slots=True)
class Reconciliation:
    """What was found: blocks by table and state, and those that are not as they should be."""

    counts: dict[StreamKind, dict[BlockState, int]] = field(default_factory=dict)
    noted: dict[tuple[StreamKind, BlockNumber], Noted] = field(default_factory=dict)

    def of(self, state: BlockState) -> list[Noted]:
        """The noted blocks of a state."""
        return [one for one in self.noted.values() if one.compared.state is state]

    def count(self, state: BlockState) -> int:
        """All blocks of a state."""
        return sum(counts.get(state, 0) for counts in self.counts.values())


class Comparison:
    """One comparison of everything; reads files alone, until `resend`."""

    def __init__(
        self, fs: FileSystem, root: Path, sink: Sink, *, since_ns: int, until_ns: int
    ) -> None:
        """Blocks that were delivered from ``since_ns`` up to ``until_ns`` are compared."""
        self._fs = fs
        self._root = root
        self._sink = sink
        self._since_ns = since_ns
        self._until_ns = until_ns
        self._layouts: dict[StreamKind, Layout] = {}
        self._done = 0
        self.result = Reconciliation()

    def records(self) -> int:
        """About how many there are to read, for a progress bar."""
        return sum(self._fs.size_of(path) // RECORD_BYTES for path in self._files())

    async def run(self, reached: Callable[[int], None]) -> Reconciliation:
        """Compares all of them.

        Raises:
            SinkError: ClickHouse did not answer.
            OSError: a journal could not be read.
        """
        for path in self._files():
            waiting: dict[StreamKind, dict[BlockNumber, Delivered]] = {kind: {} for kind in STREAMS}
            for record in self._records(path):
                some = waiting[record.kind]
                some[record.number] = record
                if len(some) >= ASKED_MAX:
                    await self._compare(record.kind, some)
                    waiting[record.kind] = {}
                reached(self._done)
            for kind, some in waiting.items():
                await self._compare(kind, some)
        return self.result

    async def look_again(self) -> None:
        """Compares those that were missing or short once more."""
        noted, self.result = self.result.noted, Reconciliation()
        for kind in STREAMS:
            records = [one.compared.delivered for one in noted.values()]
            some = {record.number: record for record in records if record.kind is kind}
            await self._compare(kind, some)

    def resend(self, states: Iterable[BlockState]) -> list[Noted]:
        """Asks the worker that holds the log for each block of these states; returns those asked.

        Raises:
            OSError: a request could not be written.

        Durability: the requests survive a power cut once this returns.
        """
        asked = []
        for state in states:
            for one in self.result.of(state):
                if one.shard is None:
                    continue
                compared = one.compared
                ask(self._fs, one.shard / RESEND_NAME, compared.delivered, compared.stored_rows)
                one.is_asked = True
                asked.append(one)
        return asked

    def waiting(self) -> int:
        """Requests that have not been worked off."""
        return sum(
            len(requests_of(self._fs, shard / RESEND_NAME))
            for shard in list_shards(self._fs, self._root)
        )

    def _files(self) -> list[Path]:
        return [
            path
            for shard in list_shards(self._fs, self._root)
            for path in files_of(self._fs, shard / DIRECTORY_NAME)
        ]

    def _records(self, path: Path) -> Iterator[Delivered]:
        try:
            for record in read_file(self._fs, path):
                self._done += 1
                if self._since_ns <= record.delivered_at_ns < self._until_ns:
                    yield record
        except FileNotFoundError:
            return  # handed on to another shard just now

    async def _compare(self, kind: StreamKind, some: dict[BlockNumber, Delivered]) -> None:
        if not some:
            return
        layout = self._layouts.get(kind)
        if layout is None:
            layout = self._layouts[kind] = await self._sink.layout(kind)
        counts = self.result.counts.setdefault(kind, {})
        for one in await compare(self._sink, layout, list(some.values())):
            found = await self._placed(layout, one)
            state = found.compared.state
            counts[state] = counts.get(state, 0) + 1
            if state in {BlockState.MISSING, BlockState.SHORT}:
                if len(self.result.noted) < NOTED_MAX:
                    self.result.noted[one.delivered.key] = found
            else:
                self.result.noted.pop(one.delivered.key, None)

    async def _placed(self, layout: Layout, compared: Compared) -> Noted:
        """Where the block's batch is; a missing one whose rows came in other blocks is replaced."""
        if compared.state not in {BlockState.MISSING, BlockState.SHORT}:
            return Noted(compared, None, is_asked=False)
        record = compared.delivered
        shard = self._shard_of(record)
        frames = [] if shard is None else _frames(self._fs, shard, record)
        if shard is None or sum(one.chunks.row_count for one in frames) != record.batch_rows:
            return Noted(compared, None, is_asked=False)
        if compared.state is BlockState.MISSING and await is_replaced(
            self._sink, layout, record, frames
        ):
            compared = type(compared)(record, BlockState.REPLACED, 0)
        asked = {one.delivered.key for one in requests_of(self._fs, shard / RESEND_NAME)}
        return Noted(compared, shard, record.key in asked)

    def _shard_of(self, record: Delivered) -> Path | None:
        for shard in list_shards(self._fs, self._root):
            shard_id = id_of(shard.name)
            if shard_id and int.from_bytes(shard_id[:4], "big") == record.number >> 32:
                return shard
        return None


def _frames(fs: FileSystem, shard: Path, record: Delivered) -> list[Frame]:
    """The frames of a block's batch that the log still has."""
    found = []
    for segment in segments_of(fs, shard):
        is_before = segment.next_lsn is not None and segment.next_lsn <= record.first
        if is_before or segment.first_lsn > record.last:
            continue
        items = frames_of(fs, segment, first=record.first, last=record.last, kind=record.kind)
        found += [item.frame for item in items if item.frame is not None and item.fault is None]
    return found
