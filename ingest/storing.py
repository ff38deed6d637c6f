"""Making one request's rows durable: repeats joined, room waited for, keys honoured."""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from buffer.errors import BufferFailure, LogFull
from ingest.answers import Code, RequestRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from buffer.frame import Receipt, Submission
    from buffer.writeahead import Settled, WriteAheadBuffer
    from ingest.admission import Admission

HOLD_SECONDS_STEP = 1.0
"""A held request looks this often whether it is still wanted."""
HOLD_JITTER = 0.2
KEYS_MAX = 50_000
"""Idempotency keys remembered; about 200 B each."""


class Storing:
    """The way of submissions into the buffer.

    Args:
        room_seconds_max: how long a request is held for room, give or take a fifth, so that those
            held together do not come back together.
        is_stopping: whether the server drains, so that nothing is held any longer.
    """

    def __init__(
        self,
        buffer: WriteAheadBuffer,
        admission: Admission,
        *,
        room_seconds_max: float,
        is_stopping: Callable[[], bool],
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._buffer = buffer
        self._admission = admission
        self._room_seconds_max = room_seconds_max
        self._is_stopping = is_stopping
        self._jitter = jitter
        self.is_known: Callable[[bytes], bool] = buffer.is_known
        """Whether `former` has, or waits for, an answer to a request with this digest."""
        self.append_then: Callable[[Submission, Settled], None] = buffer.append_then
        """Append without waiting, and without being held for room; see the buffer's."""

    async def former(self, digest: bytes) -> Receipt | None:
        """The receipt of an earlier request with this digest; waits for one that is under way.

        None as well when that one failed: this one is tried by itself then.
        """
        found = self._buffer.repeat_of(digest)
        if isinstance(found, asyncio.Future):
            try:
                return await found
            except BufferFailure:
                return None
        return found

    async def store(
        self, submission: Submission, *, size: int, is_gone: Callable[[], bool]
    ) -> Receipt:
        """Append and wait until the rows are durable.

        Args:
            submission: the rows, their digest and the answer's counts.
            size: bytes that the request keeps in memory while it is held.
            is_gone: whether the client has hung up.

        Raises:
            LogFull: no room, after being held for it. OutcomeUnknown, Closed: as the buffer says.

        Durability: the rows survive kill -9 once this returns.
        Cancellation: the rows may be stored or not.
        """
        try:
            return await self._buffer.append(submission)
        except LogFull as full:
            if self._room_seconds_max <= 0:
                raise
            async with self._admission.hold(size) as is_held:
                if not is_held:
                    raise
                return await self._hold(submission, size, full, is_gone)

    async def _hold(
        self, submission: Submission, size: int, full: LogFull, is_gone: Callable[[], bool]
    ) -> Receipt:
        spread = 1 + HOLD_JITTER * (2 * self._jitter() - 1)
        until = time.monotonic() + self._room_seconds_max * spread
        while True:
            left = until - time.monotonic()
            if left <= 0 or self._is_stopping() or is_gone():
                raise full
            if await self._buffer.room(min(left, HOLD_SECONDS_STEP), size):
                try:
                    return await self._buffer.append(submission)
                except LogFull as again:
                    full = again
                    # Room was seen and is gone: others took it. Not at once again.
                    await asyncio.sleep(min(0.05, max(left, 0)))


@dataclass(slots=True)
class _Use:
    digest: bytes
    used_at: float


class IdempotencyKeys:
    """Which request a client's own key was used for, in this worker, for the window of repeats.

    The digest of a request already tells a repeat; what a key adds is that its use with another
    body is noticed.
    """

    def __init__(self, *, seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._monotonic = monotonic
        self._uses: OrderedDict[bytes, _Use] = OrderedDict()

    def check(self, tenant: str, key: str, digest: bytes) -> None:
        """See that a key is new, or was used for this very request.

        Raises:
            RequestRefused: 422, it was used for another one.
        """
        use = self._uses.get(_name(tenant, key))
        if use is None or self._monotonic() - use.used_at >= self._seconds:
            return
        if use.digest != digest:
            raise RequestRefused(
                Code.IDEMPOTENCY_KEY_REUSED,
                "this Idempotency-Key was used for another request; nothing was stored. "
                "Expected: a new key for each request, or the same request again",
            )

    def use(self, tenant: str, key: str, digest: bytes) -> None:
        """Note that a key is used for a request. Raises as `check`."""
        self.check(tenant, key, digest)
        name = _name(tenant, key)
        self._uses[name] = _Use(digest, self._monotonic())
        self._uses.move_to_end(name)
        if len(self._uses) > KEYS_MAX:
            self._uses.popitem(last=False)


def _name(tenant: str, key: str) -> bytes:
    return hashlib.blake2b(f"{tenant}\0{key}".encode(), digest_size=16).digest()
