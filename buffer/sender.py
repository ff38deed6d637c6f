"""One pending batch on its way: tried, doubted, narrowed down, until its table has all of it.

A batch's life, each arrow out of a state that is in the checkpoint first::

    pending(number, generation 0) ─▶ insert ─▶ taken ─▶ delivered
        ▲             │ unknown: settle, ask for a row of the block
        │             ├─ there ─▶ the same insert once more, for views ─▶ taken
        │             └─ absent ─▶ generation + 1 ─▶ insert
        └── refused for a row: the next span of the bisection, under a number of its own

``docs/delivery.md`` has the table of errors and what is done about each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from buffer import bisection
from buffer.aside import note_delivered, put_damage, put_rows
from buffer.batch import block_number, names_of, query_id_of, raised
from buffer.building import set_aside
from buffer.checkpoint import Pending
from buffer.condition import Condition
from buffer.cursor import let_go, reread
from buffer.errors import Unavailable
from buffer.lsn import Lsn
from buffer.quarantine import QuarantineFull
from buffer.sink import LiveTable, SinkError
from buffer.statistics import TableCondition
from schema.chcodes import ErrorClass
from schema.streams import STREAMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from buffer.batch import RowSpan
    from buffer.building import Built
    from buffer.checkpoint import Bisection, TableState
    from buffer.frames import Frames
    from buffer.log import Damage
    from buffer.quarantine import SetAside
    from buffer.surroundings import ShardParts, Surroundings
    from schema.streams import StreamKind

_log = structlog.get_logger()

_STORED_CLASSES = frozenset({ErrorClass.ROWS, ErrorClass.OURS})
"""Before the rows or we are blamed: were they stored? Then it was a view that failed."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """An insert whose outcome is not known.

    Attributes:
        is_refusal: the server said that it failed; if its rows are there all the same, a view did.
    """

    is_refusal: bool


class TableStopped(Exception):
    """The server cannot read what we send: nothing more goes to this table until a restart."""


class Sender:
    """Sends the batches of one stream of one shard, one after the other. Used by one task."""

    def __init__(self, kind: StreamKind, parts: ShardParts, around: Surroundings) -> None:
        self._kind = kind
        self._table = STREAMS[kind].table
        self._parts = parts
        self._around = around
        self._live: LiveTable | None = None
        self._doubt: Doubt | None = None
        self._found: int | None = None
        self._frames: Frames | None = None
        self._after_batch = Lsn(0)
        self._bad_frame: Lsn | None = None
        self._aside_in_a_row = 0
        self.condition = Condition(
            self._table,
            parts.shard,
            clock=around.clock,
            metrics=around.metrics,
            random=around.random,
        )
        self.oldest_received_ns: int | None = None
        self.delivered_rows = 0
        self.delivered_batches = 0

    @property
    def state(self) -> TableState:
        """The table's place, as it is on disk."""
        return self._parts.checkpoint.state(self._kind)

    async def resume(self) -> None:
        """Finishes the batch that is pending in the checkpoint, if one is; its outcome is unknown.

        Raises:
            TableStopped: the server cannot read the block.
        """
        self._live, self._frames, self._doubt = None, None, None
        self._aside_in_a_row = self.state.aside_in_a_row
        pending = self.state.pending
        if pending is None:
            return
        self._after_batch = Lsn(pending.last + 1)
        self._doubt = Doubt(is_refusal=False)
        await self._reread(pending)  # for the age of its oldest row
        await self._deliver()

    async def send(self, frames: Frames, after: Lsn) -> None:
        """Makes frames a batch, its bounds on disk first, and delivers it.

        Args:
            frames: given away: the caller keeps none, so that a wait can let go of them.
            after: the next frame to be considered once the batch is delivered.

        Raises:
            TableStopped: the server cannot read the block.
        """
        self._frames = frames
        self._after_batch = after
        self.oldest_received_ns = frames[0].received_at_ns
        await self._fix(
            Pending(
                first=frames.first_lsn,
                last=frames.last_lsn,
                rows=frames.rows,
                number=block_number(self._parts.tag, self.state.next_number),
                generation=0,
                path=None,
            )
        )
        del frames
        await self._deliver()

    async def pass_by(self, lsn: Lsn) -> None:
        """Moves the table's place over frames that are not for it."""
        if lsn > self.state.delivered:
            await self._store(replace(self.state, delivered=lsn))

    async def set_damage_aside(self, damage: Damage) -> None:
        """Puts a damaged range into the quarantine, waiting for room there."""
        has_waited = False
        while True:
            try:
                await put_damage(self._parts, self._around.metrics, damage)
            except QuarantineFull as full:
                has_waited = True
                await self._wait(TableCondition.WAITING, str(full), None)
            else:
                break
        if has_waited:
            self.condition.worked()

    async def _deliver(self) -> None:
        """Sends the pending batch until all of it is stored or set aside."""
        self._bad_frame = None
        while (pending := self.state.pending) is not None:
            try:
                await self._step(pending)
            except SinkError as error:
                await self._failed(error)
            except QuarantineFull as error:
                await self._wait(TableCondition.WAITING, str(error), None)
        self.oldest_received_ns = None
        await self._let_go()

    async def _step(self, pending: Pending) -> None:
        """One try: settles a doubt, or sends the next span.

        Raises:
            SinkError: not taken, for a reason that is waited out. QuarantineFull: likewise.
        """
        live = self._live
        if live is None:
            live = await self._read_live()
        if self._doubt is not None:
            await self._settle(pending, live, self._doubt)
            return
        frames = self._frames
        if frames is None:
            frames = self._frames = await self._reread(pending)
            if frames.rows != pending.rows:
                if self._found == pending.number and bisection.is_last(pending):
                    await self._go_on(pending, None)  # stored to its end, before the damage
                else:
                    await self._shrink(pending, frames)
                return
        span = bisection.span_of(pending)
        built = await self._around.builder.build(live.layout, frames, pending.number, span)
        for unsendable in built.unsendable:
            await self._put(unsendable.reason, None, unsendable.rows)
        if built.block is not None:
            try:
                await self._insert(pending, live, frames, span, built)
            except SinkError as error:
                if not await self._narrow(error, pending, live, frames, built):
                    raise
                return
        await self._taken(pending, span, 0 if built.block is None else built.block.rows)

    async def _taken(self, pending: Pending, span: RowSpan, rows: int) -> None:
        """All of a span is stored or set aside; ``rows`` of it are stored."""
        self.condition.worked()
        if rows:
            self._aside_in_a_row = 0
            self.delivered_rows += rows
            self._around.metrics.count("delivery_rows", rows, table=self._table)
            await note_delivered(self._parts, self._around.clock, self._kind, pending, span, rows)
        path = pending.path
        left = None if path is None else bisection.after_taken(path, pending.rows)
        await self._go_on(pending, left)

    async def _insert(
        self,
        pending: Pending,
        live: LiveTable,
        frames: Frames,
        span: RowSpan,
        built: Built,
    ) -> None:
        assert built.block is not None, "an empty block is not sent"
        names = names_of(self._parts.shard, self._table, pending, frames, span, built.left_out)
        clock = self._around.clock
        begun = clock.monotonic()
        try:
            await self._around.sink.insert(
                live.layout, built.block, token=names.token, query_id=names.query_id
            )
        except SinkError as error:
            if error.is_outcome_unknown:
                self._doubt = Doubt(is_refusal=error.code is not None)
                self._around.metrics.count("delivery_unknown", table=self._table)
            raise
        self._around.metrics.observe(
            "delivery_seconds", clock.monotonic() - begun, table=self._table
        )

    async def _read_live(self) -> LiveTable:
        sink = self._around.sink
        layout = await sink.layout(self._kind)
        self._live = LiveTable(layout, await sink.is_replicated(self._kind))
        return self._live

    async def _settle(self, pending: Pending, live: LiveTable, doubt: Doubt) -> None:
        """Finds out what became of the last insert, and decides what is sent next."""
        sink = self._around.sink
        await sink.settle(query_id_of(self._parts.shard, self._table, pending))
        is_there = live.layout.has_batch and await sink.has_batch(live.layout, pending.number)
        if is_there and not doubt.is_refusal and self._found == pending.number:
            self._doubt = None
            span = bisection.span_of(pending)
            await self._taken(pending, span, span.count)
            return
        # There: a view failed, or the insert ended between the table's part and a view's. The same
        # token fills the view and adds nothing here; if that answer is lost too, it is enough.
        # Absent: a replicated table keeps its token, because it commits both together; in any
        # other the token may be noted without the part, and would make the next 200 a lie.
        if is_there and not doubt.is_refusal:
            self._found = pending.number
            _log.info("batch_found_stored", table=self._table, number=pending.number)
        elif not is_there and not live.is_replicated:
            await self._store(replace(self.state, pending=raised(pending, self._around.random())))
            self._around.metrics.count("delivery_generations", table=self._table)
        self._doubt = None

    async def _narrow(
        self,
        error: SinkError,
        pending: Pending,
        live: LiveTable,
        frames: Frames,
        built: Built,
    ) -> bool:
        """Looks for the rows that an error is about; false when the error is about something else.

        Raises:
            SinkError: it is the operator's: a view, or too much of the batch, is what is wrong.
        """
        if error.error_class not in _STORED_CLASSES:
            return False
        sink = self._around.sink
        is_there = live.layout.has_batch and await sink.has_batch(live.layout, pending.number)
        self._doubt = None  # the server has spoken, and we have looked
        if is_there:
            raise error.for_operator("the rows are stored; a view on the table refuses them")
        if error.error_class is not ErrorClass.ROWS:
            return False
        if bisection.is_exhausted(pending):
            raise error.for_operator(f"not found in {bisection.INSERTS_MAX} inserts")
        path = pending.path or bisection.begun(pending)
        hint = error.bad_row
        bad_row = None if hint is None or hint >= len(built.kept) else built.kept[hint]
        narrowed = bisection.after_refused(path, bad_row)
        if narrowed is not None:
            await self._move(pending, narrowed)
            return True
        [found] = set_aside(frames, [path.next_row])
        is_new_frame = found.frame.lsn != self._bad_frame
        if bisection.looks_like_the_table(
            path, pending.rows, is_new_frame=is_new_frame, in_a_row=self._aside_in_a_row
        ):
            raise error.for_operator("too much is refused for rows to be at fault")
        await self._put(error.message, error.code, [found])
        self._bad_frame = found.frame.lsn
        self._aside_in_a_row += is_new_frame
        after = bisection.after_quarantine(path, pending.rows, is_new_frame=is_new_frame)
        await self._go_on(pending, after)
        return True

    async def _go_on(self, pending: Pending, path: Bisection | None) -> None:
        """To the next span of a bisection, or past the batch."""
        if path is not None:
            await self._move(pending, path)
            return
        delivered = max(self._after_batch, Lsn(pending.last + 1))
        await self._store(replace(self.state, delivered=delivered, pending=None))
        self.condition.worked()
        self.delivered_batches += 1
        self._around.metrics.count("delivery_batches", table=self._table)

    async def _move(self, pending: Pending, path: Bisection) -> None:
        """Fixes the next span of a bisection: a block of its own, so a number of its own."""
        number = block_number(self._parts.tag, self.state.next_number)
        path = bisection.counted(path, pending.rows)
        await self._fix(replace(pending, number=number, generation=0, path=path))

    async def _shrink(self, pending: Pending, frames: Frames) -> None:
        """A frame of a pending batch was damaged since: what is left of it goes as a block anew."""
        rows = frames.rows
        _log.error("batch_shrunk", table=self._table, former_rows=pending.rows, rows=rows)
        if rows:
            number = block_number(self._parts.tag, self.state.next_number)
            await self._fix(replace(pending, rows=rows, number=number, generation=0, path=None))
        else:
            await self._go_on(pending, None)

    async def _fix(self, pending: Pending) -> None:
        """Stores a block's bounds and number before its first try."""
        state, pending = self.state, replace(pending, is_numbered=True)
        await self._store(replace(state, next_number=state.next_number + 1, pending=pending))

    async def _failed(self, error: SinkError) -> None:
        """Waits as the error's class wants it, and lets go of what is held meanwhile."""
        if error.error_class is ErrorClass.OURS:
            self.condition.failed(TableCondition.STOPPED, error.message, error.code)
            self._frames = None
            raise TableStopped from error
        if error.error_class is ErrorClass.TRANSIENT:
            await self._wait(TableCondition.RETRYING, error.message, error.code)
        else:
            self._live = None
            await self._wait(TableCondition.WAITING, error.message, error.code)

    async def _wait(self, state: TableCondition, reason: str, code: int | None) -> None:
        await self._let_go()  # read again from the log: memory does not wait with us
        await self._around.clock.sleep(self.condition.failed(state, reason, code))

    async def _let_go(self) -> None:
        frames, self._frames = self._frames, None
        await let_go(frames, self._parts.disk)

    async def _reread(self, pending: Pending) -> Frames:
        parts = self._parts
        frames, damages = await reread(parts.log, self._kind, pending, parts.disk)
        for damage in damages:
            await self.set_damage_aside(damage)
        self.oldest_received_ns = frames[0].received_at_ns if frames else None
        return frames

    async def _store(self, state: TableState) -> None:
        """Stores the table's state, however often it takes: nothing goes on without it."""
        state = replace(state, aside_in_a_row=self._aside_in_a_row)
        has_failed = False
        while True:
            try:
                await self._parts.checkpoint.store(self._kind, state)
            except Unavailable as error:
                has_failed = True
                wait = self.condition.failed(TableCondition.RETRYING, str(error))
                await self._around.clock.sleep(wait)
            else:
                break
        if has_failed:  # said here, for there may be no batch whose delivery would say it
            self.condition.worked()

    async def _put(self, reason: str, code: int | None, rows: Sequence[SetAside]) -> None:
        await put_rows(self._parts, self._around.metrics, self._table, reason, code, rows)
