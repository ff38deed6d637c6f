"""The slow check in the background: is what the server confirmed there?

Twice a minute a worker asks for the blocks that it delivered at least half a minute ago, some
hundreds in one question that looks into new parts alone. A block that is not there is asked for
again in the next round, and then it is **missing**: told in the log and in the metrics within two
minutes, unless its rows are found under other blocks. From then on it is asked for every five
minutes, because such a look reads a whole column, for a day; so long its log is kept, while there
is room. One that was sent again is asked for at once.

It sends nothing by itself: rows may be gone because somebody deleted them. It works off the
requests of ``buffer.resend``, and looks whether somebody took entries out of the quarantine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from buffer.checkpoint import Pending
from buffer.cursor import reread
from buffer.reconcile import BlockState, compare, is_replaced
from buffer.resend import Resender
from buffer.shard import RESEND_NAME
from buffer.sink import SinkError
from schema.streams import STREAMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from buffer.frame import Frame
    from buffer.journal import Delivered
    from buffer.lsn import Lsn
    from buffer.opening import OpenShard
    from buffer.resend import ResendRequest
    from buffer.surroundings import Surroundings
    from schema.block import Layout
    from schema.ids import BlockNumber
    from schema.streams import StreamKind

    _Key = tuple[StreamKind, BlockNumber]

_log = structlog.get_logger()

TICK_SECONDS = 5.0
"""Between looks for requests to send again."""
ROUND_TICKS = 6
"""Between rounds of comparing: 30 s."""
SETTLED_SECONDS = 30.0
"""Before a block is compared: a replica that answers may be behind."""
MISSING_MAX = 1_000
"""Missing blocks that are remembered; a server that loses all is told of, not counted exactly."""
MISSING_ROUNDS = 10
"""Between looks for blocks that are known to be missing."""
HOLD_SECONDS = 24 * 3600.0
"""A missing block is remembered, and its log kept, for so long."""
HOLD_SHARE = 4
"""And at most this part of the log's cap."""


class Reconciler:
    """Compares one worker's blocks; `run` is a task of the owner's."""

    def __init__(self, own: OpenShard, around: Surroundings) -> None:
        self._own = own
        self._around = around
        self._parts = own.parts()
        self._resender = Resender(
            self._parts, around, own.shard.fs, own.shard.directory / RESEND_NAME
        )
        self._waiting: list[ResendRequest] = []
        self._suspects: dict[_Key, Delivered] = {}
        self._missing: dict[_Key, Delivered] = {}
        self._round = 0

    async def run(self) -> None:
        """Looks for requests every five seconds, and compares twice a minute, until cancelled."""
        while True:
            await self.resend()
            for _ in range(ROUND_TICKS):
                await self._around.clock.sleep(TICK_SECONDS)
                await self.resend()
            await self.compare()

    async def resend(self) -> None:
        """Works off the requests that wait; what fails stays for the next tick."""
        self._waiting = await self._resender.work_off()
        self._hold()

    async def compare(self) -> None:
        """One round."""
        await self._parts.disk.run(self._own.quarantine.open)
        now_ns = self._around.clock.wall_ns()
        due = self._own.journal.due(now_ns - int(SETTLED_SECONDS * 1e9))
        self._round += 1
        self._forget(now_ns - int(HOLD_SECONDS * 1e9))
        for kind in STREAMS:
            fresh = [one for one in due if one.kind is kind]
            try:
                await self._compare_table(kind, fresh)
            except SinkError as error:
                self._own.journal.put_back(fresh)
                self._around.metrics.count("reconcile_failures", table=STREAMS[kind].table)
                _log.info("reconcile_waits", table=STREAMS[kind].table, reason=str(error))
        self._around.metrics.gauge("batches_missing", len(self._missing))
        self._hold()

    async def _compare_table(self, kind: StreamKind, fresh: list[Delivered]) -> None:
        suspects = [one for one in self._suspects.values() if one.kind is kind]
        is_turn = self._round % MISSING_ROUNDS == 0
        missing = [one for one in self._missing.values() if is_turn and one.kind is kind]
        records = [*fresh, *suspects, *missing]
        if not records:
            return
        layout = await self._around.sink.layout(kind)
        compared = await compare(self._around.sink, layout, records)
        is_there = 0
        for index, one in enumerate(compared):
            key = one.delivered.key
            if one.state is not BlockState.MISSING:
                is_there += one.state is not BlockState.NOT_COMPARED and key not in self._missing
                self._found(key)
            elif index < len(fresh):
                if len(self._suspects) < MISSING_MAX:
                    self._suspects[key] = one.delivered
            elif key in self._suspects:
                await self._miss(layout, one.delivered)
        if is_there:
            table = STREAMS[kind].table
            self._around.metrics.count("reconciled_batches", is_there, table=table)

    def _forget(self, before_ns: int) -> None:
        """Lets go of what has been missing for so long that nobody will have it sent again."""
        for key, one in list(self._missing.items()):
            if one.delivered_at_ns < before_ns:
                del self._missing[key]

    def _found(self, key: _Key) -> None:
        self._suspects.pop(key, None)
        missed = self._missing.pop(key, None)
        if missed is not None:
            table = STREAMS[missed.kind].table
            _log.info("missing_batch_found", table=table, number=missed.number)

    async def _miss(self, layout: Layout, record: Delivered) -> None:
        """A block that was twice not there."""
        frames = await self._frames(record)
        if frames and await is_replaced(self._around.sink, layout, record, frames):
            del self._suspects[record.key]
            return
        del self._suspects[record.key]
        table = STREAMS[record.kind].table
        self._around.metrics.count("missing_batches", table=table)
        _log.error(
            "batch_missing",
            table=table,
            shard=self._parts.shard,
            number=record.number,
            rows=record.rows,
            first_lsn=record.first,
            last_lsn=record.last,
            is_in_log=bool(frames),
            advice="if nobody deleted these rows: charon reconcile --resend",
        )
        while len(self._missing) >= MISSING_MAX:
            self._missing.pop(next(iter(self._missing)))
        self._missing[record.key] = record

    async def _frames(self, record: Delivered) -> Sequence[Frame]:
        """All frames of its batch; none where the log has not all of them."""
        if record.number >> 32 != self._parts.tag:
            return []
        rows, number = record.batch_rows, record.number
        pending = Pending(record.first, record.last, rows, number, record.generation, None)
        try:
            frames, _ = await reread(self._parts.log, record.kind, pending, self._parts.disk)
        except OSError:
            return []
        return frames if frames.rows == rows else []

    def _hold(self) -> None:
        """Keeps the log of what may have to be sent again, within bounds."""
        wanted = [
            *self._suspects.values(),
            *self._missing.values(),
            *(request.delivered for request in self._waiting),
        ]
        held: Lsn | None = min(
            (one.first for one in wanted if one.number >> 32 == self._parts.tag), default=None
        )
        if held is not None:
            bytes_max = self._around.options.log_bytes_max // HOLD_SHARE
            if self._parts.log.bytes_from(held) > bytes_max:
                held = None
        self._parts.hold.from_lsn = held
