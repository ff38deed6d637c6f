"""Group commit: many requests wait, one write and one sync make them durable, all are answered.

`Committer.append` is the hot step: synchronous, a few microseconds, nothing encoded. While a group
is being synced on the disk's thread the next one gathers, so the slower the disk, the larger the
group. A group belongs to the committer, not to the requests: cancelling one changes nothing for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import structlog

from buffer.errors import Broken, BufferFailure, Closed, LogFull, OutcomeUnknown
from buffer.frame import framed_bytes
from buffer.log import Entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from buffer.clock import Clock
    from buffer.disk import Disk
    from buffer.frame import Submission
    from buffer.log import GroupOutcome, Log
    from buffer.metrics import Metrics
    from buffer.options import BufferOptions
    from buffer.room import Room

    Settle = Callable[[BufferFailure | None], None]

_Waiting: TypeAlias = "tuple[Entry, Settle]"
"""A request and who is told: a plain tuple, since one is made a request."""

_log = structlog.get_logger()

GROUPS_REMEMBERED = 16
"""The largest of so many groups tells how many requests are worth waiting for; one in so many waits
for more."""
SYNC_SLOW_SECONDS = 1.0
"""A warning before it is an outage: a healthy disk takes about a thousandth of this."""


@dataclass(frozen=True, slots=True)
class CommitterStatistics:
    """The committer at one moment.

    Attributes:
        sync_seconds: of the last group that ended; write and sync.
        syncing_seconds: how long the group under way has taken so far; 0 when there is none.
        is_stalled: the group under way takes longer than ``sync_stall_seconds``.
        failure: why nothing can be committed any more, where that is so.
    """

    queue_bytes: int
    queue_requests: int
    sync_seconds: float
    syncing_seconds: float
    is_stalled: bool
    is_closed: bool
    failure: str | None


class Committer:
    """The only writer of a shard's log. `run` is a task of the owner's; all is for one loop."""

    def __init__(
        self,
        log: Log,
        disk: Disk,
        room: Room,
        *,
        options: BufferOptions,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._log = log
        self._disk = disk
        self._room = room
        self._options = options
        self._clock = clock
        self._metrics = metrics
        self._queue: deque[_Waiting] = deque()
        self._queue_bytes = 0
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_closed = False
        self._failure: BufferFailure | None = None
        self._sync_seconds = 0.0
        self._began_at: float | None = None
        self._last_began_at = 0.0
        self._sizes: deque[int] = deque([0], maxlen=GROUPS_REMEMBERED)
        """Requests of the last groups."""
        self._groups = 0
        self._enough = 0
        """Requests for which the next group need not be waited for any longer."""

    def append(self, submission: Submission) -> asyncio.Future[None]:
        """Queues one request for the next group; the future ends when its outcome is known.

        Raises and durability: as `append_then`. The future's errors: `LogFull` and `Closed` as
            there, `OutcomeUnknown` when a sync failed.
        Cancellation: of the future: the request is committed all the same.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle(failure: BufferFailure | None) -> None:
            if future.done():
                return
            if failure is None:
                future.set_result(None)
            else:
                future.set_exception(failure)

        self.append_then(submission, settle)
        return future

    def append_then(self, submission: Submission, settle: Settle) -> None:
        """Queues one request for the next group.

        Args:
            submission: the request.
            settle: called once, on the loop, when the outcome is known: with None once all of its
                frames survive a power cut, else with a failure of its own. A plain call: a future,
                its callback and a task's turn cost 8 us a request, where all the rest of a small
                one takes 60.

        Raises:
            LogFull: no room in the queue, the log or the disk; nothing of it is stored.
            Closed: shutting down or stopped; nothing of it is stored.
            ValueError: the submission cannot be framed; an error of the caller.

        Durability: see `settle`.
        """
        size = framed_bytes(submission)
        if self._is_closed or self._failure is not None:
            raise self._closed()
        if self._queue and self._queue_bytes + size > self._options.queue_bytes_max:
            self._metrics.count("log_requests_refused", reason="queue")
            raise LogFull(f"{self._queue_bytes} bytes wait for the disk already")
        if (reason := self._room.refusal(size)) is not None:
            self._metrics.count("log_requests_refused", reason="room")
            raise LogFull(reason)
        self._queue.append((Entry(submission, self._clock.wall_ns(), size), settle))
        self._queue_bytes += size
        waiting = len(self._queue)
        if waiting == 1:
            self._idle.clear()
            self._wake.set()
        elif waiting == self._enough or self._queue_bytes >= self._options.group_bytes_max:
            self._wake.set()

    async def run(self) -> None:
        """Commits group after group, until closed.

        Raises:
            Broken: the log's state is unknown; all that waited is refused and the worker must stop.

        Cancellation: the group under way is waited for and answered; what is queued is refused.
        """
        try:
            while True:
                if not self._queue:
                    self._idle.set()
                    if self._is_closed:
                        return
                    self._wake.clear()
                    await self._wake.wait()
                    continue
                await self._gather()
                if self._queue:  # `terminate` empties it
                    await self._commit(self._next_group())
        except BaseException as error:
            if self._failure is None and not isinstance(error, asyncio.CancelledError):
                self._failure = Broken(f"the committer ended: {error}")
            self.terminate()
            raise
        finally:
            self._idle.set()

    async def close(self) -> None:
        """Takes no more requests; returns when all that were taken are answered and `run` is idle.

        Cancellation: it stays closed, and what is queued is still committed by `run`.
        """
        self._is_closed = True
        self._wake.set()
        await self._idle.wait()

    def terminate(self) -> None:
        """Takes no more requests and refuses those that are queued; a group under way goes on."""
        self._is_closed = True
        self._wake.set()
        while self._queue:
            waiting = self._queue.popleft()
            _fail(waiting, self._closed())
        self._queue_bytes = 0

    def statistics(self) -> CommitterStatistics:
        """The committer now."""
        began = self._began_at
        syncing = 0.0 if began is None else self._clock.monotonic() - began
        return CommitterStatistics(
            queue_bytes=self._queue_bytes,
            queue_requests=len(self._queue),
            sync_seconds=self._sync_seconds,
            syncing_seconds=syncing,
            is_stalled=syncing > self._options.sync_stall_seconds,
            is_closed=self._is_closed,
            failure=None if self._failure is None else str(self._failure),
        )

    async def _gather(self) -> None:
        """After a group of several requests: let as many come together for the next one.

        As many as lately, for clients that wait for their answers send no more before they have
        them: eight such would else be answered half as often. And no longer than for a group that
        is full: what is left of a queue of many large requests goes at once.
        """
        options = self._options
        if (
            self._sizes[-1] < 2
            or self._is_closed
            or len(self._queue) >= self._enough
            or self._queue_bytes >= options.group_bytes_max
        ):
            return
        left = self._last_began_at + options.group_spacing_seconds - self._clock.monotonic()
        if left <= 0:
            return
        self._wake.clear()
        timer = asyncio.get_running_loop().call_later(left, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    def _note_size(self, requests: int) -> None:
        self._sizes.append(requests)
        self._groups += 1
        self._enough = self._options.group_requests_enough
        if self._groups % GROUPS_REMEMBERED:
            self._enough = min(self._enough, max(self._sizes))

    def _next_group(self) -> list[_Waiting]:
        """From the queue's head as many whole requests as fit one group; the first in any case."""
        group: list[_Waiting] = []
        size = frames = 0
        while self._queue:
            entry, _ = self._queue[0]
            size += entry.frame_bytes
            frames += len(entry.submission.chunks)
            if group and (
                size > self._options.group_bytes_max or frames > self._options.group_frames_max
            ):
                break
            group.append(self._queue.popleft())
            self._queue_bytes -= entry.frame_bytes
        return group

    async def _commit(self, group: list[_Waiting]) -> None:
        self._began_at = self._last_began_at = self._clock.monotonic()
        self._note_size(len(group))
        try:
            work = self._disk.submit(self._log.commit, [entry for entry, _ in group])
        except RuntimeError as error:  # its thread has been closed
            self._failure = Broken(f"the log's disk takes no more work: {error}")
            for waiting in group:
                _fail(waiting, self._closed(), error)
            raise self._failure from error
        cancelled: asyncio.CancelledError | None = None
        while not work.done():
            try:
                await asyncio.wait([work])  # cancelled, it leaves the work alone
            except asyncio.CancelledError as error:
                cancelled = error
        self._sync_seconds = self._clock.monotonic() - self._began_at
        self._began_at = None
        try:
            outcome = work.result()
        except BaseException as error:
            # Whatever it was, it is not known how much of the group is on disk.
            self._failure = error if isinstance(error, Broken) else Broken(f"commit: {error!r}")
            for waiting in group:
                unknown = OutcomeUnknown("the log is broken; the rows may or may not be stored")
                _fail(waiting, unknown, self._failure)
            raise self._failure from error
        self._answer(group, outcome)
        if cancelled is not None:
            raise cancelled

    def _answer(self, group: list[_Waiting], outcome: GroupOutcome) -> None:
        self._log.announce()
        for index, waiting in enumerate(group):
            failure = outcome.failures.get(index)
            if failure is None:
                _settle(waiting, None)
                continue
            if isinstance(failure, LogFull):
                self._room.note_no_room(waiting[0].frame_bytes, str(failure))
            _fail(waiting, failure)
        self._count(group, outcome)

    def _count(self, group: list[_Waiting], outcome: GroupOutcome) -> None:
        self._room.note_written(outcome.bytes)
        metrics = self._metrics
        metrics.observe("log_sync_seconds", self._sync_seconds)
        if self._sync_seconds > SYNC_SLOW_SECONDS:
            _log.warning("sync_slow", seconds=round(self._sync_seconds, 3), bytes=outcome.bytes)
        unknown = sum(isinstance(e, OutcomeUnknown) for e in outcome.failures.values())
        if unknown:
            _log.error("log_fenced", requests=unknown, reason=str(outcome.failures[0]))
            metrics.count("log_requests_unknown", unknown)
        if refused := len(outcome.failures) - unknown:
            metrics.count("log_requests_refused", refused, reason="disk")
        if outcome.frames:
            metrics.count("log_groups_committed")
            metrics.count("log_requests_committed", len(group) - len(outcome.failures))
            metrics.count("log_frames_committed", outcome.frames)
            metrics.count("log_bytes_committed", outcome.bytes)
            metrics.observe("log_group_requests", len(group))

    def _closed(self) -> Closed:
        if self._failure is not None:
            return Closed(f"the log has stopped: {self._failure}")
        return Closed("the buffer is shutting down")


def _settle(waiting: _Waiting, failure: BufferFailure | None) -> None:
    """Tells one request; what goes wrong in its answer is not its neighbours' concern."""
    try:
        waiting[1](failure)
    except Exception:  # noqa: BLE001 - logged with its trace; the group has others to tell
        _log.exception("settling_failed")  # a defect of the callback's owner


def _fail(waiting: _Waiting, failure: BufferFailure, cause: BaseException | None = None) -> None:
    """Tells a request an error of its own: one exception must not be raised in many tasks."""
    own = type(failure)(*failure.args)
    own.__cause__ = cause if cause is not None else failure.__cause__
    _settle(waiting, own)
