"""Everything that takes one shard's rows to their tables: a flusher a stream, and the deletion.

Used for the shard that a worker appends to, and for each shard that it has adopted.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from buffer.flusher import Flusher
from buffer.statistics import TableCondition
from buffer.tasks import SupervisedTask
from schema.streams import STREAMS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from buffer.statistics import TableStatistics, TaskStatistics
    from buffer.surroundings import ShardParts, Surroundings

RELEASE_SECONDS = 5.0
"""Between two looks for segments that may go: the repeat window lets them go by time alone."""

HOPELESS_SECONDS = 2.0
"""At a stop, a table that has been in trouble for this long is not waited for: what it has not
taken is on disk, and it is the next start's."""

LOOK_SECONDS = 0.05


class Delivery:
    """One shard's way out. `start` once; then `close`, or `terminate` and `wait`."""

    def __init__(
        self,
        parts: ShardParts,
        around: Surroundings,
        *,
        keeps_repeats: Callable[[], bool] = lambda: True,
    ) -> None:
        """`keeps_repeats` says whether delivered segments may stay for the repeat window now."""
        self._parts = parts
        self._keeps_repeats = keeps_repeats
        self._clock = around.clock
        self._closing = asyncio.Event()
        self._moved = asyncio.Event()
        self._flushers = {
            stream.table: Flusher(kind, parts, around, closing=self._closing, moved=self._moved.set)
            for kind, stream in STREAMS.items()
        }
        self._tasks = {
            table: SupervisedTask(
                f"flusher {table} {parts.shard[:8]}",
                flusher.run,
                clock=around.clock,
                metrics=around.metrics,
                random=around.random,
            )
            for table, flusher in self._flushers.items()
        }
        self._release = SupervisedTask(
            f"release {parts.shard[:8]}",
            self._release_segments,
            clock=around.clock,
            metrics=around.metrics,
            random=around.random,
        )

    @property
    def is_drained(self) -> bool:
        """Whether every table has everything that the log holds."""
        checkpoint, end = self._parts.checkpoint, self._parts.log.durable_lsn
        return all(
            checkpoint.state(kind).pending is None and checkpoint.state(kind).delivered >= end
            for kind in STREAMS
        )

    @property
    def is_running(self) -> bool:
        """Whether a flusher has not come to its end yet."""
        return not all(task.is_done for task in self._tasks.values())

    def start(self) -> None:
        """Starts to deliver. Damage and backlog are met on the way."""
        for task in (*self._tasks.values(), self._release):
            task.start()

    def finish(self) -> None:
        """Says that nothing more is appended: flushers end when everything is delivered."""
        self._closing.set()

    async def drained(self) -> None:
        """Returns when all flushers have ended; after `finish`."""
        for task in self._tasks.values():
            await task.join()

    async def close(self, grace_seconds: float) -> None:
        """Delivers what it can within the grace period, and ends.

        Cancellation: ends at once; what is not delivered is the next start's.
        """
        self.finish()
        deadline = self._clock.monotonic() + grace_seconds
        try:
            while self._clock.monotonic() < deadline and self._is_hopeful():
                await self._clock.sleep(LOOK_SECONDS)
        finally:
            self.terminate()
            await self.wait()

    def terminate(self) -> None:
        """Ends all tasks without waiting for anything."""
        self._closing.set()
        for task in (*self._tasks.values(), self._release):
            task.cancel()

    async def wait(self) -> None:
        """Returns when all tasks have ended."""
        for task in (*self._tasks.values(), self._release):
            await task.join()

    def statistics(self) -> Mapping[str, TableStatistics]:
        """How each table is doing, by its name."""
        return {table: flusher.statistics() for table, flusher in self._flushers.items()}

    def tasks(self) -> tuple[TaskStatistics, ...]:
        """How the tasks live."""
        return tuple(task.statistics() for task in (*self._tasks.values(), self._release))

    def _is_hopeful(self) -> bool:
        """Whether some table still moves."""
        for table, task in self._tasks.items():
            if not task.statistics().is_alive:
                continue
            flusher = self._flushers[table].statistics()
            if flusher.condition is TableCondition.OK or (
                flusher.condition is TableCondition.RETRYING
                and flusher.since_seconds < HOPELESS_SECONDS
            ):
                return True
        return False

    async def _release_segments(self) -> None:
        while True:
            self._moved.clear()
            delivered, held = self._parts.checkpoint.delivered, self._parts.hold.from_lsn
            keep = self._keeps_repeats()
            if keep and held is not None:
                delivered = min(delivered, held)
            await self._parts.log.release(delivered, keep=keep, disk=self._parts.disk)
            try:
                async with asyncio.timeout(RELEASE_SECONDS):
                    await self._moved.wait()
            except TimeoutError:
                pass
