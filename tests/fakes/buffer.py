"""The buffer's face in memory: what was appended can be read, and every failure can be ordered."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from buffer.errors import BufferFailure, LogFull
from buffer.frame import Receipt
from buffer.statistics import BufferStatistics, QuarantineStatistics

if TYPE_CHECKING:
    from collections.abc import Callable

    from buffer.frame import Submission
    from schema.columns import Chunks


class MemoryBuffer:
    """A stand-in for `buffer.writeahead.WriteAheadBuffer`.

    Attributes:
        submissions: what was stored, in order.
        failure: raised by the next appends, until it is None again.
        failure_on_commit: set on the future of the next appends.
        is_held: appends stay pending until `commit`.
    """

    def __init__(self) -> None:
        self.submissions: list[Submission] = []
        self.failure: BufferFailure | None = None
        self.failure_on_commit: BufferFailure | None = None
        self.is_held = False
        self.room_asked = asyncio.Event()
        self._room = asyncio.Event()
        self._pending: list[tuple[Submission, asyncio.Future[Receipt]]] = []
        self._settled: dict[bytes, Receipt] = {}
        self.state = BufferStatistics(
            is_writable=True,
            reason=None,
            log_bytes=0,
            log_segments=1,
            durable_lsn=0,
            released_lsn=0,
            queue_bytes=0,
            last_sync_seconds=0.001,
            tables={},
            adopted={},
            quarantine=QuarantineStatistics(0, 0, 0, 0, is_full=False),
            tasks=(),
        )

    @property
    def chunks(self) -> list[Chunks]:
        return [chunks for submission in self.submissions for chunks in submission.chunks]

    def forget(self) -> None:
        """As new: nothing is stored or known."""
        self.submissions.clear()
        self._settled.clear()

    def fill(self) -> None:
        self.failure = LogFull("full", retry_after_seconds=3)
        self._room.clear()

    def make_room(self) -> None:
        self.failure = None
        self._room.set()

    def commit(self) -> None:
        pending, self._pending = self._pending, []
        for submission, future in pending:
            self._settle(submission, future)

    def repeat_of(self, digest: bytes) -> Receipt | asyncio.Future[Receipt] | None:
        if digest in self._settled:
            return replace(self._settled[digest], is_repeat=True)
        for submission, future in self._pending:
            if submission.digest == digest:
                return asyncio.shield(future)
        return None

    def is_known(self, digest: bytes) -> bool:
        return self.repeat_of(digest) is not None

    def append_then(
        self, submission: Submission, settled: Callable[[BufferFailure | None], None]
    ) -> None:
        self.append(submission).add_done_callback(
            lambda done: settled(done.exception())  # type: ignore[arg-type]
        )

    def append(self, submission: Submission) -> asyncio.Future[Receipt]:
        if self.failure is not None:
            raise self.failure
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        if self.is_held:
            self._pending.append((submission, future))
        else:
            self._settle(submission, future)
        return asyncio.shield(future)

    async def room(self, timeout_seconds: float, size: int = 1) -> bool:
        self.room_asked.set()
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._room.wait()
        except TimeoutError:
            return False
        return True

    def statistics(self) -> BufferStatistics:
        return self.state

    def _settle(self, submission: Submission, future: asyncio.Future[Receipt]) -> None:
        if self.failure_on_commit is not None:
            future.set_exception(self.failure_on_commit)
            return
        self.submissions.append(submission)
        receipt = Receipt(submission.accepted, submission.rejected, is_repeat=False)
        self._settled[submission.digest] = receipt
        future.set_result(receipt)
