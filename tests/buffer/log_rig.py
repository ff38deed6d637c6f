"""A shard's log on a fake disk, opened as the buffer opens it, and small frames for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from buffer.disk import InlineDisk
from buffer.errors import Unavailable
from buffer.frame import Frame, Submission, framed_bytes
from buffer.log import Entry, GroupOutcome, Log
from buffer.lsn import Lsn
from buffer.metrics import NoMetrics
from buffer.options import BufferOptions
from buffer.reader import Damage
from buffer.recovery import Recovered, recover
from buffer.shard import Shard, list_free
from schema.columns import Chunks
from schema.ids import RunId, TenantId
from schema.streams import StreamKind
from tests.fakes.clock import FakeClock
from tests.fakes.disk import FakeFileSystem

if TYPE_CHECKING:
    from buffer.checkpoint import Checkpoint

ROOT = Path("/log")
SMALL = BufferOptions(
    segment_bytes_max=8_192, ahead_bytes=0, log_bytes_max=2**20, disk_free_bytes_min=0
)
"""Nothing is written ahead, so that a file is as long as what was committed to it."""
EVERYTHING = 2**60


def chunks(
    number: int = 0, size: int = 40, kind: StreamKind = StreamKind.METRICS, rows: int = 3
) -> Chunks:
    payload = number.to_bytes(8, "little").ljust(size, b"p")
    return Chunks(kind, TenantId("acme"), "projekt-ü", RunId(7), rows, payload)


def request(
    number: int = 0,
    *,
    frames: int = 1,
    size: int = 40,
    kinds: tuple[StreamKind, ...] = (StreamKind.METRICS,),
) -> Submission:
    """One request, known again by its number."""
    parts = tuple(chunks(number, size, kinds[i % len(kinds)]) for i in range(frames))
    return Submission(parts, number.to_bytes(16, "little"), 3 * frames, number % 5)


def number_of(frame: Frame) -> int:
    return int.from_bytes(frame.digest, "little")


@dataclass
class LogRig:
    """One shard, opened and reopened on the same disk."""

    fs: FakeFileSystem = field(default_factory=FakeFileSystem)
    clock: FakeClock = field(default_factory=FakeClock)
    options: BufferOptions = SMALL
    disk: InlineDisk = field(default_factory=InlineDisk)
    shard: Shard | None = None

    def open(self) -> LogRig:
        """Claims the shard that is there, or makes one; recovers its log."""
        self.fs.make_dir(ROOT)
        there = list_free(self.fs, ROOT)
        if there:
            self.shard = Shard.claim(self.fs, there[0])
        else:
            self.shard = Shard.create(self.fs, ROOT, lambda count: bytes(range(count)))
        self.checkpoint: Checkpoint = self.shard.open_checkpoint(self.disk)
        self.recovered: Recovered = recover(
            self.fs,
            self.shard.directory,
            self.shard.id,
            self.checkpoint,
            options=self.options,
            disk=self.disk,
            clock=self.clock,
            metrics=NoMetrics(),
        )
        return self

    @property
    def log(self) -> Log:
        return self.recovered.log

    @property
    def directory(self) -> Path:
        assert self.shard is not None
        return self.shard.directory

    def kill(self) -> LogRig:
        """kill -9 and a start."""
        self.fs.kill()
        return self.open()

    def commit(self, *requests: Submission) -> GroupOutcome:
        stamp = self.clock.wall_ns()
        return self.log.commit([Entry(one, stamp, framed_bytes(one)) for one in requests])

    def read(
        self, kind: StreamKind = StreamKind.METRICS, from_lsn: int | None = None
    ) -> list[Frame | Damage]:
        start = self.checkpoint.state(kind).delivered if from_lsn is None else Lsn(from_lsn)
        reader = self.log.reader(start, kind)
        found = reader.read(EVERYTHING, EVERYTHING)
        reader.close()
        return found

    def numbers(self, kind: StreamKind = StreamKind.METRICS, from_lsn: int = 0) -> list[int]:
        """Numbers of the requests whose frames are read; no damage among them."""
        found = self.read(kind, from_lsn)
        assert not [item for item in found if isinstance(item, Damage)]
        return [number_of(item) for item in found if isinstance(item, Frame)]

    def deliver(self, to_lsn: int, kinds: tuple[StreamKind, ...] = tuple(StreamKind)) -> bool:
        """Stores the tables' positions; False when the disk would not have it."""

        async def store() -> None:
            for kind in kinds:
                state = replace(self.checkpoint.state(kind), delivered=Lsn(to_lsn))
                await self.checkpoint.store(kind, state)

        try:
            asyncio.run(store())
        except Unavailable:
            return False
        return True

    def release(self, *, keep: bool = False) -> int:
        return asyncio.run(self.log.release(self.checkpoint.delivered, keep=keep))

    def close(self) -> None:
        asyncio.run(self.log.close())
        asyncio.run(self.checkpoint.close())
        assert self.shard is not None
        self.shard.release()

    def segments(self) -> list[Path]:
        return [
            self.directory / name
            for name in sorted(self.fs.list_dir(self.directory))
            if name.endswith(".seg")
        ]
