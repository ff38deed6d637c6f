"""The loop of one table: read, make it a batch, have it sent, go on.

A table's trouble is met in `buffer.sender`, and holds up no other table: each has a flusher of its
own, a place of its own in the checkpoint, and reads the log by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from buffer.cursor import Cursor
from buffer.frames import Frames
from buffer.sender import Sender, TableStopped
from buffer.statistics import TableStatistics
from schema.streams import STREAMS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from buffer.cursor import Gathered
    from buffer.surroundings import ShardParts, Surroundings
    from schema.streams import StreamKind


class Flusher:
    """Delivers one stream of one shard. `run` belongs to one task; `statistics` to anybody."""

    def __init__(
        self,
        kind: StreamKind,
        parts: ShardParts,
        around: Surroundings,
        *,
        closing: asyncio.Event,
        moved: Callable[[], None],
    ) -> None:
        """`closing` says that nothing more is appended; `moved` is called after each delivery."""
        self._kind = kind
        self._parts = parts
        self._around = around
        self._closing = closing
        self._moved = moved
        self._sender = Sender(kind, parts, around)

    async def run(self) -> None:
        """Delivers until `closing` is set and everything is delivered, or the table has stopped.

        Can be run again after it has raised.

        Cancellation: an insert under way is settled at the next start; nothing is lost.
        """
        try:
            await self._sender.resume()
            self._moved()
            await self._follow()
        except TableStopped:  # until a restart: sending the same bytes again cannot help
            await self._closing.wait()

    def statistics(self) -> TableStatistics:
        """How the table is doing."""
        sender, log = self._sender, self._parts.log
        state, condition = sender.state, sender.condition
        oldest_ns = sender.oldest_received_ns
        now_ns = self._around.clock.wall_ns()
        return TableStatistics(
            table=STREAMS[self._kind].table,
            condition=condition.state,
            reason=condition.reason,
            code=condition.code,
            failures=condition.failures,
            since_seconds=condition.since_seconds,
            backlog_frames=max(log.durable_lsn - state.delivered, 0),
            backlog_bytes=log.bytes_from(state.delivered),
            pending_rows=0 if state.pending is None else state.pending.rows,
            oldest_seconds=0.0 if oldest_ns is None else max(now_ns - oldest_ns, 0) / 1e9,
            delivered_rows=sender.delivered_rows,
            delivered_batches=sender.delivered_batches,
        )

    async def _follow(self) -> None:
        cursor = Cursor(
            self._parts.log,
            self._kind,
            self._sender.state.delivered,
            disk=self._parts.disk,
            clock=self._around.clock,
            options=self._around.options,
        )
        try:
            while (gathered := await cursor.gather(self._closing)) is not None:
                await self._take(gathered)
                self._moved()
        finally:
            cursor.close()

    async def _take(self, gathered: Gathered) -> None:
        for damage in gathered.damages:
            await self._sender.set_damage_aside(damage)
        if gathered.frames:
            frames, gathered.frames = gathered.frames, Frames(self._kind)
            sending = self._sender.send(frames, gathered.next_lsn)
            del frames  # the sender's alone, to let go of
            await sending
        else:
            await self._sender.pass_by(gathered.next_lsn)
