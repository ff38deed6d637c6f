"""A shard without its request side: frames are committed by hand, flushers run for real."""

from __future__ import annotations

import asyncio
import os
import time

from buffer.building import BlockBuilder
from buffer.checkpoint import Checkpoint
from buffer.delivery import Delivery
from buffer.disk import ThreadDisk
from buffer.frame import Submission, framed_bytes
from buffer.fs import RealFileSystem
from buffer.journal import Journal
from buffer.log import Entry, Log
from buffer.lsn import Lsn
from buffer.metrics import NoMetrics
from buffer.options import BufferOptions
from buffer.quarantine import Quarantine
from buffer.surroundings import ShardParts, Surroundings
from schema.rows import LogsRows, MetricsRows, name_shape
from schema.streams import StreamKind

SHARD = bytes(range(16))
TAG = int.from_bytes(SHARD[:4], "big")


class LeapingClock:
    """Sleeping takes no time and moves the clock: backoffs cost nothing, and are written down."""

    def __init__(self):
        self.offset = 0.0
        self.sleeps = []

    def monotonic(self):
        return time.monotonic() + self.offset

    def wall_ns(self):
        return time.time_ns() + int(self.offset * 1e9)

    async def sleep(self, seconds):
        self.sleeps.append(seconds)
        self.offset += seconds
        await asyncio.sleep(0.0005)


class Rig:
    """One shard's log and checkpoint in a directory; `crash` forgets all that is in memory."""

    def __init__(self, directory, sink, *, clock=None, **options):
        self.directory = directory
        self.sink = sink
        self.clock = clock or LeapingClock()
        options = {"batch_age_seconds_max": 0.02} | options
        self.options = BufferOptions(**options)
        self.fs = RealFileSystem()
        self.disk = ThreadDisk("rig")
        self.log = Log(
            self.fs,
            directory,
            SHARD,
            views=(),
            next_lsn=Lsn(0),
            options=self.options,
            disk=self.disk,
            clock=self.clock,
            metrics=NoMetrics(),
        )
        self.checkpoint = Checkpoint.create(self.fs, directory, self.disk, SHARD)
        self.quarantine = self._quarantine()
        self.journal = Journal(
            self.fs,
            directory / "delivered",
            shard=SHARD.hex(),
            clock=self.clock,
            metrics=NoMetrics(),
        )
        self.delivery = None

    def _quarantine(self):
        quarantine = Quarantine(
            self.fs,
            self.directory / "quarantine",
            shard=SHARD.hex(),
            bytes_max=self.options.quarantine_bytes_max,
            clock=self.clock,
        )
        quarantine.open()
        return quarantine

    def append(self, *chunks):
        submission = Submission(
            tuple(chunks), os.urandom(16), sum(item.row_count for item in chunks), 0
        )
        entry = Entry(submission, self.clock.wall_ns(), framed_bytes(submission))
        outcome = self.log.commit([entry])
        assert not outcome.failures
        self.log.announce()

    def start(self):
        parts = ShardParts(
            shard=SHARD.hex(),
            tag=TAG,
            log=self.log,
            checkpoint=self.checkpoint,
            quarantine=self.quarantine,
            disk=self.disk,
            journal=self.journal,
        )
        around = Surroundings(
            sink=self.sink,
            builder=BlockBuilder(),
            options=self.options,
            clock=self.clock,
            metrics=NoMetrics(),
            random=lambda: 0.0,
        )
        self.delivery = Delivery(parts, around)
        self.delivery.start()

    async def kill(self):
        """Ends the tasks as a crash does, and reads the checkpoint back from disk."""
        self.delivery.terminate()
        await self.delivery.wait()
        await self.checkpoint.close()
        self.checkpoint = Checkpoint.open(self.fs, self.directory, self.disk, SHARD)
        self.quarantine = self._quarantine()

    async def drain(self, seconds=10.0):
        """Returns when all that was appended is delivered or set aside."""
        async with asyncio.timeout(seconds):
            while not self.delivery.is_drained:
                await asyncio.sleep(0.002)

    async def until(self, condition, seconds=10.0):
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.002)

    def table(self, kind=StreamKind.METRICS):
        return self.sink.tables[kind]

    def statistics(self, kind=StreamKind.METRICS):
        from schema.streams import STREAMS

        return self.delivery.statistics()[STREAMS[kind].table]

    def set_aside(self):
        """Every quarantined entry, read back."""
        return [self.quarantine.read(name) for name in self.quarantine.names()]

    async def close(self):
        if self.delivery is not None:
            self.delivery.terminate()
            await self.delivery.wait()
        self.journal.close()
        await self.log.close()
        await self.checkpoint.close()
        self.disk.close()


def metrics(*values, step=0.0, name="loss", run=7):
    """One frame, a line for each value; steps count up from `step`."""
    rows = MetricsRows("acme", "proj", run)
    shape = name_shape([name])
    for index, value in enumerate(values):
        rows.add_line(1_764_423_221_000 + index, step + index, shape, [value])
    return rows.finish()


def logs(*messages, run=7):
    rows = LogsRows("acme", "proj", run)
    for index, message in enumerate(messages):
        rows.add(1_764_423_221_000 + index, "INFO", index, message)
    return rows.finish()
