"""Whether the log has room: its cap, the disk's free space, and what the disk itself said.

Two sources. Figures are read about once a second (four times while there is no room): all shards'
segments against ``log_bytes_max``, free space against ``disk_free_bytes_min``; what this shard has
written since counts too. And when a write has found no room, no matter what the figures say (a
quota does not show in them), requests of that size or more are refused until a probe of that size
succeeds; smaller ones may try.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from buffer.fs import TEMPORARY_SUFFIX, create_durably
from buffer.segment import SUFFIX

if TYPE_CHECKING:
    from pathlib import Path

    from buffer.clock import Clock
    from buffer.disk import Disk
    from buffer.fs import FileSystem
    from buffer.metrics import Metrics
    from buffer.options import BufferOptions

_log = structlog.get_logger()

POLL_SECONDS = 1.0
POLL_FULL_SECONDS = 0.25

PROBE_BYTES_MAX = 16 * 2**20
"""A probe is written and removed again; a larger request is let through to try by itself."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Figures of one look at the disk."""

    log_bytes: int
    free_bytes: int
    is_probe_taken: bool


@dataclass(frozen=True, slots=True)
class RoomStatistics:
    """The room at one moment; ``reason`` says what there is no room for."""

    is_full: bool
    reason: str | None
    log_bytes: int
    free_bytes: int


class Room:
    """One shard's view of the room for its log."""

    def __init__(
        self,
        fs: FileSystem,
        root: Path,
        directory: Path,
        *,
        options: BufferOptions,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """Args: ``root`` holds all shards, ``directory`` is this one's."""
        self._fs = fs
        self._root = root
        self._directory = directory
        self._options = options
        self._clock = clock
        self._metrics = metrics
        self._reading = Reading(0, 2**63, is_probe_taken=True)
        self._written = 0
        self._no_room_bytes: int | None = None
        self._no_room_reason = ""
        self._was_full = False

    def refusal(self, size: int) -> str | None:
        """Why a request of ``size`` log bytes has no room; None: it has, as far as is known."""
        log_bytes = self._reading.log_bytes + self._written
        if log_bytes + size > self._options.log_bytes_max:
            return f"the log has {log_bytes} of at most {self._options.log_bytes_max} bytes"
        free_bytes = self._reading.free_bytes - self._written
        if free_bytes - size < self._options.disk_free_bytes_min:
            return (
                f"the disk has {max(free_bytes, 0)} bytes free, of which "
                f"{self._options.disk_free_bytes_min} are kept free"
            )
        if self._no_room_bytes is not None and size >= self._no_room_bytes:
            return self._no_room_reason
        return None

    @property
    def is_full(self) -> bool:
        """Whether even a small request has no room; then nothing delivered is kept for repeats."""
        return self.refusal(1) is not None or self._no_room_bytes is not None

    def note_written(self, size: int) -> None:
        """The log has grown since the last look."""
        self._written += size

    def note_no_room(self, size: int, reason: str) -> None:
        """A write of this size found none."""
        known = self._no_room_bytes
        self._no_room_bytes = size if known is None else min(known, size)
        self._no_room_reason = reason

    async def wait(self, timeout_seconds: float, size: int = 1) -> bool:
        """Waits until a request of ``size`` bytes has room; False: it had none in that time.

        Cancellation: leaves nothing behind.
        """
        deadline = self._clock.monotonic() + timeout_seconds
        while self.refusal(size) is not None:
            left = deadline - self._clock.monotonic()
            if left <= 0:
                return False
            await self._clock.sleep(min(left, POLL_FULL_SECONDS))
        return True

    async def run(self, disk: Disk) -> None:
        """Looks again and again; a task of the owner's.

        Args:
            disk: not the committing thread: a look must not wait for a sync, nor hold one up.
        """
        while True:
            await self.look(disk)
            await self._clock.sleep(POLL_FULL_SECONDS if self.is_full else POLL_SECONDS)

    async def look(self, disk: Disk) -> None:
        """Reads the figures once; an error of the disk leaves the former ones."""
        counted, probe_bytes = self._written, self._no_room_bytes
        try:
            reading = await disk.run(self._read, probe_bytes)
        except OSError:
            self._metrics.count("log_looks_failed")
            return
        self._written -= counted
        self._reading = reading
        if reading.is_probe_taken and self._no_room_bytes == probe_bytes:
            self._no_room_bytes = None
        self._metrics.gauge("log_all_bytes", reading.log_bytes)
        self._metrics.gauge("disk_free_bytes", reading.free_bytes)
        self._tell()

    def statistics(self) -> RoomStatistics:
        """The room now."""
        reason = self.refusal(1)
        if reason is None and self._no_room_bytes is not None:
            reason = self._no_room_reason
        return RoomStatistics(
            is_full=reason is not None,
            reason=reason,
            log_bytes=self._reading.log_bytes + self._written,
            free_bytes=self._reading.free_bytes - self._written,
        )

    def _tell(self) -> None:
        """One log line a change of state."""
        now = self.statistics()
        if now.is_full and not self._was_full:
            _log.error("log_full", reason=now.reason)
        elif self._was_full and not now.is_full:
            _log.info("log_has_room", log_bytes=now.log_bytes, free_bytes=now.free_bytes)
        self._was_full = now.is_full

    def _read(self, probe_bytes: int | None) -> Reading:
        log_bytes = sum(
            self._fs.size_of(self._root / shard / name)
            for shard in self._fs.list_dir(self._root)
            for name in self._fs.list_dir(self._root / shard)
            if name.endswith(SUFFIX)
        )
        free_bytes = self._fs.free_bytes(self._directory)
        is_probe_taken = probe_bytes is None or self._probe(min(probe_bytes, PROBE_BYTES_MAX))
        return Reading(log_bytes, free_bytes, is_probe_taken)

    def _probe(self, size: int) -> bool:
        """Whether so many bytes can be written beside the log; they are removed again."""
        path = self._directory / f"probe{TEMPORARY_SUFFIX}"
        try:
            fd = create_durably(self._fs, path, [bytes(size)])
        except OSError:
            return False
        self._fs.close(fd)
        with contextlib.suppress(OSError):
            self._fs.unlink(path)
        return True
