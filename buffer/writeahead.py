"""The buffer as ingest sees it: append, be told when it is durable, and look at how it is doing."""

from __future__ import annotations

import asyncio
import copy
import random
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Self

import structlog

from buffer.adoption import Adoption
from buffer.building import BlockBuilder
from buffer.committer import Committer
from buffer.delivery import Delivery
from buffer.errors import Broken
from buffer.frame import Receipt
from buffer.opening import OpenShard, Storage, claim_or_create
from buffer.reconciler import Reconciler
from buffer.repeats import RepeatWindow
from buffer.room import Room
from buffer.statistics import BufferStatistics
from buffer.surroundings import Surroundings
from buffer.tasks import SupervisedTask

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from buffer.clock import Clock
    from buffer.errors import BufferFailure
    from buffer.frame import Submission
    from buffer.fs import FileSystem
    from buffer.metrics import Metrics
    from buffer.options import BufferOptions
    from buffer.sink import Sink

    Settled = Callable[[BufferFailure | None], None]

_log = structlog.get_logger()

QUEUE_POLL_SECONDS = 0.02
"""Between looks at the committer's queue, for a request that waits for it to empty."""


class WriteAheadBuffer:
    """One worker's shard: what is appended is durable when its future has a result, and delivered.

    `open`, `start`, and in the end `close`, or `terminate` where there is no time.
    """

    def __init__(self, own: OpenShard, storage: Storage, sink: Sink) -> None:
        """Use `open`."""
        options, clock, metrics = storage.options, storage.clock, storage.metrics
        around = Surroundings(
            sink=sink,
            builder=BlockBuilder(),
            options=options,
            clock=clock,
            metrics=metrics,
            random=random.random,
        )
        self._own = own
        self._storage = storage
        self._window = RepeatWindow(
            seconds=options.repeat_seconds, requests_max=options.repeat_requests_max, clock=clock
        )
        self._window.load(own.remembered)
        self._room = Room(
            storage.fs,
            storage.root,
            own.shard.directory,
            options=options,
            clock=clock,
            metrics=metrics,
        )
        self._committer = Committer(
            own.log,
            own.threads.committing,
            self._room,
            options=options,
            clock=clock,
            metrics=metrics,
        )
        self._delivery = Delivery(own.parts(), around, keeps_repeats=lambda: not self._room.is_full)
        self._adoption = Adoption(own, storage, around)
        self._committing = self._task("committer", self._committer.run)
        self._others = (
            self._task("room", lambda: self._room.run(own.threads.side)),
            self._task("adoption", self._adoption.run),
            self._task("reconciler", Reconciler(own, around).run),
        )
        self._is_closed = False
        self._is_released = False
        self._is_started = False

    @classmethod
    async def open(
        cls,
        root: Path,
        options: BufferOptions,
        *,
        sink: Sink,
        clock: Clock,
        fs: FileSystem,
        metrics: Metrics,
    ) -> Self:
        """Claims a free shard under ``root``, or makes one, and recovers its log.

        The sink stays the caller's to close, after `close`.

        Raises:
            UnknownFormat: the log was written by a release that this one does not know.
            OSError: the directory cannot be used.
        """
        storage = Storage(root, fs, options, clock, metrics)
        own = await claim_or_create(storage)
        _log.info(
            "shard_opened",
            shard=own.name,
            backlog_bytes=own.log.bytes_from(own.checkpoint.delivered),
        )
        return cls(own, storage, sink)

    async def start(self) -> None:
        """Takes requests, and delivers what there is. Once.

        The first look at the room comes before the first request.
        """
        await self._room.look(self._own.threads.side)
        self._is_started = True
        self._committing.start()
        self._delivery.start()
        for task in self._others:
            task.start()

    def repeat_of(self, digest: bytes) -> Receipt | asyncio.Future[Receipt] | None:
        """What is known of a request with this digest: its receipt, the wait for it, or nothing.

        Cancellation: of the future: the first request is not touched.
        """
        found = self._window.find(digest)
        if found is None:
            return None
        is_pending = not isinstance(found, Receipt)
        self._storage.metrics.count("log_repeats", state="pending" if is_pending else "settled")
        return found if isinstance(found, Receipt) else _joined(found.outcome())

    def is_known(self, digest: bytes) -> bool:
        """Whether `repeat_of` knows a request with this digest; counts nothing."""
        return self._window.find(digest) is not None

    def append(self, submission: Submission) -> asyncio.Future[Receipt]:
        """Queues a request's rows; the future's result says that all of them are durable.

        A repeat of a request that is known stores nothing and gets the first one's outcome.

        Raises:
            LogFull: no room; nothing of it is stored. See `room`.
            Closed: shutting down or stopped; nothing of it is stored.
            ValueError: the submission cannot be framed; an error of the caller.

        Durability: every row survives kill -9 and a power cut once the future has a result. Its
            errors: those above, and `OutcomeUnknown` when a sync failed.
        Cancellation: of the future: the rows are stored all the same.
        """
        known = self.repeat_of(submission.digest)
        if isinstance(known, asyncio.Future):
            return known
        if known is not None:
            answer: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
            answer.set_result(known)
            return answer
        return asyncio.shield(self._append(submission, None).outcome())

    def append_then(self, submission: Submission, settled: Settled) -> None:
        """Queues the rows of a request that is not known, as `is_known` has just said.

        Args:
            submission: the rows, and the answer's counts.
            settled: called once, on the loop, with None once every row is durable, else with the
                failure.

        Raises:
            LogFull, Closed, ValueError: as `append`.

        Durability: every row survives kill -9 and a power cut once `settled` is called with None.
        """
        self._append(submission, settled)

    def _append(self, submission: Submission, settled: Settled | None) -> _Pending:
        pending = _Pending(self._window, submission, settled)
        self._committer.append_then(submission, pending)
        self._window.begin(submission.digest, pending)
        return pending

    async def room(self, timeout_seconds: float, size: int = 1) -> bool:
        """Waits until there is room again after `LogFull`; false when there was none in time.

        Args:
            timeout_seconds: how long at most.
            size: about the log bytes of the request that waits.

        Cancellation: leaves nothing behind.
        """
        clock = self._storage.clock
        deadline = clock.monotonic() + timeout_seconds
        while self._committer.statistics().queue_bytes > self._storage.options.queue_bytes_max // 2:
            if clock.monotonic() >= deadline:
                return False
            await clock.sleep(QUEUE_POLL_SECONDS)
        return await self._room.wait(max(deadline - clock.monotonic(), 0.0), size)

    async def broken(self) -> Broken:
        """Returns when the log has stopped for good, with the reason: the worker must end then."""
        await self._committing.join()
        failure = self._committer.statistics().failure
        if failure is None:  # closed in order
            await asyncio.Event().wait()
        return Broken(failure)

    def statistics(self) -> BufferStatistics:
        """How the buffer is doing now."""
        committer, log = self._committer.statistics(), self._own.log.statistics()
        room = self._room.statistics()
        tasks = (
            self._committing.statistics(),
            *(task.statistics() for task in self._others),
            *self._delivery.tasks(),
            *self._adoption.tasks(),
        )
        reason = committer.failure
        if reason is None and (self._is_closed or not tasks[0].is_alive):
            reason = "the buffer is shutting down" if self._is_closed else "no committer runs"
        if reason is None and committer.is_stalled:
            reason = f"a sync has not come back for {committer.syncing_seconds:.1f} s"
        return BufferStatistics(
            is_writable=reason is None and not room.is_full,
            reason=reason or room.reason,
            log_bytes=log.bytes,
            log_segments=log.segments,
            durable_lsn=log.durable_lsn,
            released_lsn=log.oldest_lsn,
            queue_bytes=committer.queue_bytes,
            last_sync_seconds=committer.sync_seconds,
            tables=self._delivery.statistics(),
            adopted=self._adoption.statistics(),
            quarantine=self._own.quarantine.statistics(),
            tasks=tasks,
        )

    async def close(self, grace_seconds: float) -> None:
        """Takes no more, commits what was taken, delivers what it can in time, and lets go.

        A failing step skips no other. What is not delivered is the next start's. May be called
        after `terminate`, and again.

        Cancellation: the remaining steps are taken all the same.
        """
        if self._is_released:
            return
        deadline = self._storage.clock.monotonic() + grace_seconds
        self._is_closed = self._is_released = True
        async with AsyncExitStack() as steps:
            steps.push_async_callback(self._own.close)
            steps.push_async_callback(self._adoption.close)
            for task in self._others:
                steps.push_async_callback(task.stop)
            steps.push_async_callback(self._deliver_until, deadline)
            steps.push_async_callback(self._committing.stop)
            if self._is_started:
                await self._committer.close()
            else:
                self._committer.terminate()

    def terminate(self) -> None:
        """Ends everything without waiting: like a kill, but in this process."""
        self._is_closed = True
        self._committer.terminate()
        self._delivery.terminate()
        self._adoption.terminate()
        for task in (self._committing, *self._others):
            task.cancel()

    async def _deliver_until(self, deadline: float) -> None:
        await self._delivery.close(max(deadline - self._storage.clock.monotonic(), 0.0))

    def _task(self, name: str, run: Callable[[], Awaitable[None]]) -> SupervisedTask:
        return SupervisedTask(
            name,
            run,
            clock=self._storage.clock,
            metrics=self._storage.metrics,
            random=random.random,
        )


class _Pending:
    """One request between its append and its outcome; the committer calls it with that."""

    __slots__ = ("_future", "_settled", "_submission", "_window")

    def __init__(
        self, window: RepeatWindow, submission: Submission, settled: Settled | None
    ) -> None:
        self._window = window
        self._submission = submission
        self._settled = settled
        self._future: asyncio.Future[Receipt] | None = None

    def outcome(self) -> asyncio.Future[Receipt]:
        """See `buffer.repeats.Pending`; made when somebody asks for it, which few do."""
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
        return self._future

    def __call__(self, failure: BufferFailure | None) -> None:
        """The outcome is known."""
        submission = self._submission
        receipt = Receipt(submission.accepted, submission.rejected, is_repeat=False)
        self._window.settle(submission.digest, receipt if failure is None else None)
        if self._future is not None and not self._future.done():
            if failure is None:
                self._future.set_result(receipt)
            else:
                self._future.set_exception(failure)
        if self._settled is not None:
            self._settled(failure)


def _joined(first: asyncio.Future[Receipt]) -> asyncio.Future[Receipt]:
    """The outcome of another request's future, told as a repeat's."""
    answer: asyncio.Future[Receipt] = first.get_loop().create_future()

    def tell(done: asyncio.Future[Receipt]) -> None:
        if answer.done():
            return
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if error is not None:
            answer.set_exception(copy.copy(error))  # one exception is not raised in two tasks
        else:
            receipt = done.result()
            answer.set_result(Receipt(receipt.accepted, receipt.rejected, is_repeat=True))

    first.add_done_callback(tell)
    return answer
