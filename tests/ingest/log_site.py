"""A data directory with a real log in it, made by the buffer itself, without a server."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from buffer import BufferOptions, Submission, WriteAheadBuffer
from buffer.clock import SystemClock
from buffer.fs import RealFileSystem
from buffer.metrics import NoMetrics

if TYPE_CHECKING:
    from pathlib import Path

OPTIONS = BufferOptions(
    batch_age_seconds_max=0.02,
    disk_free_bytes_min=0,
    segment_bytes_max=8_192,
    log_bytes_max=2**20,
)


@dataclass
class Site:
    """The directory, and the sink that its rows go to."""

    data_dir: Path
    sink: object

    @property
    def log(self) -> Path:
        return self.data_dir / "log"

    @asynccontextmanager
    async def serving(self):
        """A buffer at work on the directory, as a worker's is."""
        buffer = await WriteAheadBuffer.open(
            self.log,
            OPTIONS,
            sink=self.sink,
            clock=SystemClock(),
            fs=RealFileSystem(),
            metrics=NoMetrics(),
        )
        await buffer.start()
        try:
            yield buffer
        finally:
            await buffer.close(1.0)

    async def send(self, buffer, *requests):
        """Rows on their way in, and in their tables."""
        for chunks in requests:
            await buffer.append(Submission((chunks,), os.urandom(16), chunks.row_count, 0))
        async with asyncio.timeout(15):
            while any(one.backlog_frames for one in buffer.statistics().tables.values()):
                await asyncio.sleep(0.01)

    def shards(self):
        return sorted(path for path in self.log.iterdir() if len(path.name) == 32)
