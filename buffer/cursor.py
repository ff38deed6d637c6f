"""One table's way through the log: what comes next, and what a pending batch held.

A cursor moves in memory; the checkpoint says what is delivered. Reading is done on a disk thread.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from buffer.frames import LET_GO_AT_ONCE, Frames
from buffer.lsn import Lsn
from buffer.sweep import Limits

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from buffer.checkpoint import Pending
    from buffer.clock import Clock
    from buffer.disk import Disk
    from buffer.log import Damage, Log, Reader
    from buffer.options import BufferOptions
    from schema.streams import StreamKind

READS_AN_AGE = 4
"""Readings while a batch ripens: each scans what was appended since, on a thread that is shared."""


@dataclass(slots=True)
class Gathered:
    """What was read for one batch.

    Attributes:
        next_lsn: where the next reading begins; other tables' frames below it are passed.
        frames: of the table; there may be none, when only the place has moved.
        damages: ranges that could not be read, found on the way.
    """

    next_lsn: Lsn
    frames: Frames
    damages: list[Damage] = field(default_factory=list)


class Cursor:
    """Reads one table's frames, each once, up to a batch's bounds."""

    def __init__(
        self,
        log: Log,
        kind: StreamKind,
        start: Lsn,
        *,
        disk: Disk,
        clock: Clock,
        options: BufferOptions,
    ) -> None:
        self._log = log
        self._kind = kind
        self._disk = disk
        self._clock = clock
        self._options = options
        self._reader: Reader = log.reader(start, kind)

    @property
    def next_lsn(self) -> Lsn:
        """One past the last frame considered."""
        return self._reader.lsn

    async def gather(self, closing: asyncio.Event) -> Gathered | None:
        """The frames of the next batch, once there are enough or the oldest is old enough.

        Args:
            closing: set when no more is appended: nothing is waited for any more.

        Returns:
            None when everything is read and `closing` is set. Without frames when there were only
            other tables' frames, or damage: the caller moves the checkpoint.

        Raises:
            OSError: the log could not be read.

        Cancellation: what was read is lost with this cursor; make another from the checkpoint.
        """
        gathered = Gathered(self.next_lsn, Frames(self._kind))
        if self._is_caught_up() and not await self._wait_for_growth(closing):
            return None
        pause = self._options.batch_age_seconds_max / READS_AN_AGE
        ripe_at: float | None = None
        while not await self._read_more(gathered) and not closing.is_set():
            if not gathered.frames:
                # Else each commit would wake every table. A frame that comes meanwhile is read at
                # that age, and sent at once.
                await self._pause(self._options.batch_age_seconds_max, closing)
                break
            now = self._clock.monotonic()
            if ripe_at is None:  # once: whoever sets the clock back meanwhile must not hold it up
                ripe_at = now + self._age_left(gathered.frames[0].received_at_ns)
            left = ripe_at - now
            if left <= 0:
                break
            await self._pause(min(left, pause), closing)
        return gathered

    def close(self) -> None:
        """Closes the file that is open, if one is."""
        self._reader.close()

    async def _read_more(self, gathered: Gathered) -> bool:
        """Reads until the batch is full (true) or the log is read up (false)."""
        limits = Limits(self._options.batch_rows_max, self._options.batch_bytes_max)
        damages, is_full = await self._disk.run(self._reader.read_into, gathered.frames, limits)
        gathered.damages += damages
        gathered.next_lsn = self.next_lsn
        return is_full

    def _is_caught_up(self) -> bool:
        return self.next_lsn >= self._log.durable_lsn

    def _age_left(self, received_at_ns: int) -> float:
        """Seconds until the batch is old enough; a clock that was set back does not add to them."""
        age_max = self._options.batch_age_seconds_max
        age = (self._clock.wall_ns() - received_at_ns) / 1e9
        return min(age_max - age, age_max)

    async def _wait_for_growth(self, closing: asyncio.Event) -> bool:
        """Whether there is more to read; false when `closing` came first."""
        if closing.is_set():
            return False
        await _first_of(self._log.grown(self.next_lsn), closing.wait())
        return not self._is_caught_up()

    async def _pause(self, seconds: float, closing: asyncio.Event) -> None:
        await _first_of(self._clock.sleep(seconds), closing.wait())


async def reread(
    log: Log, kind: StreamKind, pending: Pending, disk: Disk
) -> tuple[Frames, list[Damage]]:
    """The frames of a batch whose bounds are fixed, and what damage there is among them.

    Raises:
        OSError: the log could not be read.
    """
    return await disk.run(_read_batch, log, kind, pending)


async def let_go(frames: Frames | None, disk: Disk) -> None:
    """Gives back the memory of frames that nobody else has; of many on the disk's thread."""
    if frames is not None and len(frames) > LET_GO_AT_ONCE:
        await disk.run(frames.let_go)


async def _first_of(*awaitables: Coroutine[object, object, object]) -> None:
    """Waits for one of them, and ends the others."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _read_batch(log: Log, kind: StreamKind, pending: Pending) -> tuple[Frames, list[Damage]]:
    """All from the batch's first frame to its last. Bounded by what was bounded before."""
    reader = log.reader(pending.first, kind)
    frames = Frames(kind)
    damages: list[Damage] = []
    limits = Limits(2**62, 2**62, Lsn(pending.last + 1))
    try:
        # A reading that meets an error hands over what it had before: only the next one raises.
        while (place := reader.lsn) <= pending.last:
            damages += reader.read_into(frames, limits)[0]
            if reader.lsn == place:
                break  # the log ends before the batch does: what is left of it is what there is
    finally:
        reader.close()
    return frames, [damage for damage in damages if damage.first_lsn <= pending.last]
