"""A shard that this process holds: its lock, files and threads, opened and closed in one order."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from buffer.disk import ThreadDisk
from buffer.errors import Damaged, ShardTaken
from buffer.fs import make_dir_durably
from buffer.journal import DIRECTORY_NAME as JOURNAL_NAME
from buffer.journal import Journal
from buffer.quarantine import Quarantine
from buffer.recovery import recover
from buffer.resend import requests_of
from buffer.shard import QUARANTINE_NAME, RESEND_NAME, Shard, list_free
from buffer.surroundings import Hold, ShardParts

if TYPE_CHECKING:
    from pathlib import Path

    from buffer.checkpoint import Checkpoint
    from buffer.clock import Clock
    from buffer.disk import Disk
    from buffer.fs import FileSystem
    from buffer.log import Log
    from buffer.lsn import Lsn
    from buffer.metrics import Metrics
    from buffer.options import BufferOptions
    from buffer.repeats import Remembered

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Storage:
    """Where shards are, and what opening one takes."""

    root: Path
    fs: FileSystem
    options: BufferOptions
    clock: Clock
    metrics: Metrics


@dataclass(frozen=True, slots=True)
class Threads:
    """A shard's three threads: a long read holds up no sync, and no sync a checkpoint."""

    committing: Disk
    side: Disk
    """Checkpoint, and looks at the room."""
    reading: Disk
    """The flushers' reads, and the quarantine."""

    @classmethod
    def start(cls) -> Threads:
        """Threads start with their first work."""
        return cls(ThreadDisk("commit"), ThreadDisk("side"), ThreadDisk("read"))

    def close(self) -> None:
        """Lets what was given to them finish; does not wait."""
        for disk in (self.committing, self.side, self.reading):
            disk.close()


@dataclass(frozen=True, slots=True)
class OpenShard:
    """A shard whose lock is held; `close` or `remove` ends it."""

    shard: Shard
    threads: Threads
    checkpoint: Checkpoint
    log: Log
    quarantine: Quarantine
    journal: Journal
    hold: Hold
    remembered: tuple[Remembered, ...]

    @property
    def name(self) -> str:
        """The id, hex: the directory's name and the first part of every token."""
        return self.shard.id.hex()

    def parts(self) -> ShardParts:
        """What flushers need of it."""
        return ShardParts(
            shard=self.name,
            tag=self.shard.tag,
            log=self.log,
            checkpoint=self.checkpoint,
            quarantine=self.quarantine,
            disk=self.threads.reading,
            journal=self.journal,
            hold=self.hold,
        )

    async def close(self) -> None:
        """Ends the log in order and gives the lock back; a failing step skips no other."""
        async with AsyncExitStack() as steps:
            steps.callback(self.threads.close)
            steps.callback(self.shard.release)
            steps.callback(self.journal.close)
            steps.push_async_callback(self.checkpoint.close)
            steps.push_async_callback(self.log.close)

    async def remove(self, heir: OpenShard) -> None:
        """Deletes the shard, all of which is delivered.

        Its quarantined rows and its journal go to the heir.

        Raises:
            OSError: some of it is still there; a later claim finds it.
        """
        async with AsyncExitStack() as steps:
            steps.callback(self.threads.close)
            steps.callback(self.shard.release)
            await self.log.close()
            await self.checkpoint.close()
            if self.quarantine.names():
                await heir.threads.reading.run(heir.quarantine.take_over, self.quarantine)
            await heir.threads.reading.run(heir.journal.take_over, self.journal)
            await self.threads.side.run(self.shard.remove)


async def open_shard(storage: Storage, shard: Shard) -> OpenShard:
    """Recovers a shard whose lock is held.

    Raises:
        Damaged, UnknownFormat, OSError: it cannot be opened; the lock is given back.

    Durability: all that the log shows survives a power cut.
    """
    threads = Threads.start()
    try:
        return await threads.side.run(_open, storage, shard, threads)
    except BaseException:
        threads.close()
        shard.release()
        raise


async def claim_or_create(storage: Storage) -> OpenShard:
    """A shard to append to: a free one that is there already, or else a new one.

    A free shard that cannot be read is left where it is, loudly: it must not keep new rows out.

    Raises:
        UnknownFormat: the log was written by a release that this one does not know.
        OSError: the directory cannot be used.
    """
    for directory in await asyncio.to_thread(_free, storage):
        try:
            shard = await asyncio.to_thread(Shard.claim, storage.fs, directory)
            return await open_shard(storage, shard)
        except ShardTaken:
            continue
        except Damaged as error:
            storage.metrics.count("shards_unreadable")
            _log.error("shard_unreadable", directory=str(directory), reason=str(error))
    shard = await asyncio.to_thread(Shard.create, storage.fs, storage.root)
    return await open_shard(storage, shard)


def _free(storage: Storage) -> list[Path]:
    make_dir_durably(storage.fs, storage.root)
    with contextlib.suppress(OSError):  # the data directory's own name: its parent may be private
        storage.fs.fsync_dir(storage.root.parent.parent)
    return list_free(storage.fs, storage.root)


def _open(storage: Storage, shard: Shard, threads: Threads) -> OpenShard:
    checkpoint = shard.open_checkpoint(threads.side)
    recovered = recover(
        storage.fs,
        shard.directory,
        shard.id,
        checkpoint,
        options=storage.options,
        disk=threads.committing,
        clock=storage.clock,
        metrics=storage.metrics,
    )
    if recovered.torn_bytes:
        _log.warning("torn_tail_cut", shard=shard.id.hex(), bytes=recovered.torn_bytes)
    for line in recovered.damage:
        _log.error("damage_found", shard=shard.id.hex(), where=line)
    quarantine = Quarantine(
        storage.fs,
        shard.directory / QUARANTINE_NAME,
        shard=shard.id.hex(),
        bytes_max=storage.options.quarantine_bytes_max,
        clock=storage.clock,
    )
    quarantine.open()
    journal = Journal(
        storage.fs,
        shard.directory / JOURNAL_NAME,
        shard=shard.id.hex(),
        clock=storage.clock,
        metrics=storage.metrics,
    )
    journal.open()
    return OpenShard(
        shard=shard,
        threads=threads,
        checkpoint=checkpoint,
        log=recovered.log,
        quarantine=quarantine,
        journal=journal,
        hold=Hold(_held(storage.fs, shard, journal)),
        remembered=recovered.remembered,
    )


def _held(fs: FileSystem, shard: Shard, journal: Journal) -> Lsn | None:
    """Where what may be sent again begins, until the first comparison of this life says more."""
    wanted = [request.delivered for request in requests_of(fs, shard.directory / RESEND_NAME)]
    return min(
        (one.first for one in (*wanted, *journal.recent) if one.number >> 32 == shard.tag),
        default=None,
    )
