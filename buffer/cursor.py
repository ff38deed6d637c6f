"""One table's way through the log: what comes next, and what a pending batch held.

A cursor moves in memory; the checkpoint says what is delivered. Reading is done on a disk thread.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from buffer.batch import block_bytes
from buffer.frame import Frame
from schema.errors import MalformedChunks

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from buffer.checkpoint import Pending
    from buffer.clock import Clock
    from buffer.disk import Disk
    from buffer.log import Damage, Log, Reader
    from buffer.lsn import Lsn
    from buffer.options import BufferOptions
    from schema.streams import StreamKind

READS_AN_AGE = 4
"""Readings while a batch ripens: each scans what was appended since, on a thread that is shared."""


@dataclass(slots=True)
class Gathered:
    """What was read for one batch.

    Attributes:
        frames: of the table, in LSN order; there may be none, when only the place has moved.
        damages: ranges that could not be read, found on the way.
        rows: of all frames.
        bytes: about what the frames take in a block.
        next_lsn: where the next reading begins; other tables' frames below it are passed.
    """

    next_lsn: Lsn
    frames: list[Frame] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0


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
        gathered = Gathered(self.next_lsn)
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
                ripe_at = now + self._age_left(gathered.frames[0])
            left = ripe_at - now
            if left <= 0:
                break
            await self._pause(min(left, pause), closing)
        return gathered

    def move_to(self, lsn: Lsn) -> None:
        """Makes `lsn` the next frame to be considered."""
        self._reader.close()
        self._reader = self._log.reader(lsn, self._kind)

    def close(self) -> None:
        """Closes the file that is open, if one is."""
        self._reader.close()

    async def _read_more(self, gathered: Gathered) -> bool:
        """Reads until the batch is full (true) or the log is read up (false)."""
        rows_max, bytes_max = self._options.batch_rows_max, self._options.batch_bytes_max
        while gathered.rows < rows_max and gathered.bytes < bytes_max:
            items = await self._disk.run(
                _read_sized, self._reader, rows_max - gathered.rows, bytes_max - gathered.bytes
            )
            gathered.next_lsn = self.next_lsn
            if not items:
                return False
            for item, size in items:
                if not isinstance(item, Frame):
                    gathered.damages.append(item)
                elif gathered.frames and gathered.bytes + size > bytes_max:
                    # A block is larger than its payloads: what does not fit begins the next one.
                    self.move_to(item.lsn)
                    gathered.next_lsn = item.lsn
                    return True
                else:
                    gathered.frames.append(item)
                    gathered.rows += item.chunks.row_count
                    gathered.bytes += size
        return True

    def _is_caught_up(self) -> bool:
        return self.next_lsn >= self._log.durable_lsn

    def _age_left(self, oldest: Frame) -> float:
        """Seconds until the batch is old enough; a clock that was set back does not add to them."""
        age_max = self._options.batch_age_seconds_max
        age = (self._clock.wall_ns() - oldest.received_at_ns) / 1e9
        return min(age_max - age, age_max)

    async def _wait_for_growth(self, closing: asyncio.Event) -> bool:
        """Whether there is more to read; false when `closing` came first."""
        if closing.is_set():
            return False
        await _first_of(self._log.grown(self.next_lsn), closing.wait())
        return not self._is_caught_up()

    async def _pause(self, seconds: float, closing: asyncio.Event) -> None:
        await _first_of(self._clock.sleep(seconds), closing.wait())


async def reread(log: Log, kind: StreamKind, pending: Pending, disk: Disk) -> list[Frame | Damage]:
    """The frames of a batch whose bounds are fixed, and what damage there is among them.

    Raises:
        OSError: the log could not be read.
    """
    return await disk.run(_read_batch, log, kind, pending)


async def _first_of(*awaitables: Coroutine[object, object, object]) -> None:
    """Waits for one of them, and ends the others."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _read_sized(
    reader: Reader, rows_max: int, bytes_max: int
) -> Sequence[tuple[Frame | Damage, int]]:
    return [(item, _size_of(item)) for item in reader.read(rows_max, bytes_max)]


def _size_of(item: Frame | Damage) -> int:
    if not isinstance(item, Frame):
        return 0
    try:
        return block_bytes(item.chunks)
    except MalformedChunks:  # found again, and set aside, when its block is built
        return len(item.chunks.payload)


def _read_batch(log: Log, kind: StreamKind, pending: Pending) -> list[Frame | Damage]:
    """Every item from the batch's first frame to its last. Bounded by what was bounded before."""
    reader = log.reader(pending.first, kind)
    try:
        return _read_to_last(reader, pending)
    finally:
        reader.close()


def _read_to_last(reader: Reader, pending: Pending) -> list[Frame | Damage]:
    found: list[Frame | Damage] = []
    rows = 0
    while reader.lsn <= pending.last:
        items = reader.read(max(pending.rows - rows, 1), 2**62)
        if not items and reader.lsn <= pending.last:
            break  # the log ends before the batch does: what is left of it is what there is
        for item in items:
            if not isinstance(item, Frame):
                if item.first_lsn <= pending.last:
                    found.append(item)
            elif item.lsn <= pending.last:
                found.append(item)
                rows += item.chunks.row_count
    return found
