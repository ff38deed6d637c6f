"""Bounds on what requests may hold in memory at once, and on how long they wait for it.

Two pools, so that nobody holds memory while waiting for memory that the same kind of holder has:

=======  ========================================================================================
pool     for
=======  ========================================================================================
small    bodies of up to a MiB, and the first MiB of those that grow; an eighth of the whole. When
         it is used up, they take from the large one what nobody there waits for
large    larger bodies, each in one grant: a holder of a grant needs nothing more and comes to an
         end, so the pool always moves
=======  ========================================================================================

Memory is taken when the first bytes of a body are here, so that a connection that sends none holds
none, and in one grant for all of it. A body whose size is not known beforehand (chunked, or
compressed) takes a MiB and, when it grows past that, the largest body's size; only a few may stand
in the queue with a MiB in hand. At a body's end what it did not need is given back. Waiters are
served first come first served, for a bounded while.

Whoever holds memory and makes others wait for it has to send: while anybody waits, bodies that
arrive slower than 64 KiB/s are given up after a second (408), so that a few connections that drip
cannot hold all of it for as long as a body may take. A body's first 64 KiB are gathered before it
reserves anything; of those that have not got so far, the oldest is given up when they are many.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from ingest.answers import Code, RequestRefused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

SMALL_BODY_BYTES = 2**20
WAITERS_MAX = 256
"""Requests that wait for either pool; each has a connection's read buffer (192 KiB) in memory."""
GROWERS_MAX = 4
"""Bodies of unknown size that keep their MiB while they wait for the large pool."""
WAIT_SECONDS_MAX = 20.0
SLOW_SECONDS_MIN = 1.0
SLOW_BYTES_A_SECOND = 64 * 2**10
PRESS_SECONDS = 0.25
"""How often it is looked for slow senders while anybody waits."""
BUFFERED_BYTES_MAX = 64 * 2**20
"""Of bodies on their way that have reserved nothing yet, by what each may have gathered."""


@dataclass(frozen=True, slots=True)
class AdmissionStatistics:
    """What is held and who waits: bytes and requests."""

    inflight_bytes: int
    waiting_requests: int
    held_requests: int
    held_bytes: int


class _Pool:
    """So many bytes, granted first come first served."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = 0
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    def is_free(self, count: int) -> bool:
        """Whether so much could be taken at once; nobody who waits is overtaken."""
        return not self._queue and self.used + count <= self.size

    def take_now(self, count: int) -> bool:
        """Take at once, or not at all."""
        if not self.is_free(count):
            return False
        self.used += count
        return True

    async def take(self, count: int, seconds_max: float) -> bool:
        """Take, waiting for it; False when the time is up.

        Cancellation: takes nothing.
        """
        if self.take_now(count):
            return True
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (count, turn)
        self._queue.append(entry)
        try:
            async with asyncio.timeout(seconds_max):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self.give(count)
            else:
                self._queue.remove(entry)
                self._serve()
            if isinstance(error, TimeoutError):
                return False
            raise
        return True

    def give(self, count: int) -> None:
        """Give back what was taken."""
        self.used -= count
        assert self.used >= 0, "gave back more than was taken"
        self._serve()

    def _serve(self) -> None:
        while self._queue:
            count, turn = self._queue[0]
            if turn.cancelled():
                # Its owner is about to take itself out of the queue, and serves the next then.
                return
            if self.used + count > self.size:
                return
            self._queue.popleft()
            self.used += count
            turn.set_result(None)


class Reservation:
    """The bytes of one body, from its first piece to the answer. Made by `Admission.admit`.

    An `async with` block; at its end all is given back.
    """

    def __init__(self, admission: Admission, known_size: int | None) -> None:
        self._admission = admission
        self.known_size = known_size
        self.small = 0
        self.large = 0
        self.received = 0
        """Bytes that the sender has sent so far, before decoding."""
        self.buffered = 0
        self.began_at: float | None = None
        self.is_given_up = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.shrink(0)

    @property
    def size(self) -> int:
        """Bytes reserved."""
        return self.small + self.large

    async def grow(self, size: int) -> None:
        """Reserve for a body that has reached `size` bytes. Waits; cheap when already reserved.

        Raises:
            RequestRefused: 503, no memory within the bounded wait, or too many wait already.
        """
        if size > self.small + self.large:
            await self._admission.grow(self, size)

    @contextmanager
    def awaiting(self, give_up: Callable[[], None], *, buffered: int) -> Iterator[None]:
        """While the sender is waited for; the arguments are those of `Admission.watch`."""
        admission = self._admission
        admission.watch(self, give_up, buffered=buffered)
        try:
            yield
        finally:
            admission.unwatch(self)

    def shrink(self, size: int) -> None:
        """The body has ended with `size` bytes: give back what it did not need."""
        self._admission.shrink(self, size)


class Admission:
    """All reservations of one worker, and the requests held for room in the log.

    Args:
        inflight_bytes_max: both pools together.
        body_bytes_max: the largest body, which must fit the large pool beside the small one.
        held_requests_max: requests held for room at once.
    """

    def __init__(
        self,
        *,
        inflight_bytes_max: int,
        body_bytes_max: int,
        held_requests_max: int = 1_000,
        wait_seconds_max: float = WAIT_SECONDS_MAX,
    ) -> None:
        small = max(min(inflight_bytes_max // 8, inflight_bytes_max - body_bytes_max), 0)
        self._small_max = min(SMALL_BODY_BYTES, small)
        self._small = _Pool(small)
        self._large = _Pool(inflight_bytes_max - small)
        self._body_bytes_max = body_bytes_max
        self._wait_seconds_max = wait_seconds_max
        self._held_bytes_max = inflight_bytes_max // 2
        self._held_requests_max = held_requests_max
        self._waiting = 0
        self._growers = 0
        self._held = 0
        self._held_bytes = 0
        self._awaited: dict[Reservation, Callable[[], None]] = {}
        self._buffered_bytes = 0
        self._press_timer: asyncio.TimerHandle | None = None

    def admit(self, known_size: int | None) -> Reservation:
        """A reservation for one request, to be entered. Nothing is taken yet.

        Args:
            known_size: the body's length where the request says it and it is not compressed.
        """
        return Reservation(self, known_size)

    def take_small(self, size: int) -> bool:
        """Take memory for a body that is all here, at once or not at all; for `give_small`."""
        return self._small.take_now(size)

    def give_small(self, size: int) -> None:
        """Give back what `take_small` took."""
        self._small.give(size)

    async def grow(self, reservation: Reservation, size: int) -> None:
        """See `Reservation.grow`."""
        known = reservation.known_size
        if (size if known is None else known) <= self._small_max:
            more = (self._small_max if known is None else known) - reservation.size
            if not self._small.is_free(more) and self._large.take_now(more):
                reservation.large += more
                return
            await self._take(self._small, more)
            reservation.small += more
            return
        more = (self._body_bytes_max if known is None else known) - reservation.size
        is_grower = reservation.size > 0
        if is_grower and self._growers >= GROWERS_MAX and not self._large.is_free(more):
            raise self._overloaded()
        self._growers += is_grower
        try:
            await self._take(self._large, more)
        finally:
            self._growers -= is_grower
        reservation.large += more

    def watch(
        self, reservation: Reservation, give_up: Callable[[], None], *, buffered: int
    ) -> None:
        """The sender is waited for.

        Args:
            reservation: of the body.
            give_up: ends the wait, when others need what this body holds up.
            buffered: bytes that may be gathered meanwhile without being reserved.
        """
        reservation.buffered = buffered
        if reservation.began_at is None:
            reservation.began_at = asyncio.get_running_loop().time()
        self._awaited[reservation] = give_up
        self._buffered_bytes += reservation.buffered
        if self._buffered_bytes > BUFFERED_BYTES_MAX:
            self._give_up(next(one for one in self._awaited if one.buffered))

    def unwatch(self, reservation: Reservation) -> None:
        """The end of `watch`."""
        if self._awaited.pop(reservation, None) is not None:
            self._buffered_bytes -= reservation.buffered

    def shrink(self, reservation: Reservation, size: int) -> None:
        """See `Reservation.shrink`."""
        surplus = max(reservation.size - size, 0)
        from_large = min(surplus, reservation.large)
        if from_large:
            reservation.large -= from_large
            self._large.give(from_large)
        from_small = surplus - from_large
        if from_small:
            reservation.small -= from_small
            self._small.give(from_small)

    @asynccontextmanager
    async def hold(self, size: int) -> AsyncIterator[bool]:
        """Count a request among those held for room; gives False when there are too many."""
        if self._held >= self._held_requests_max or self._held_bytes + size > self._held_bytes_max:
            yield False
            return
        self._held += 1
        self._held_bytes += size
        try:
            yield True
        finally:
            self._held -= 1
            self._held_bytes -= size

    def statistics(self) -> AdmissionStatistics:
        """A snapshot for health and metrics."""
        return AdmissionStatistics(
            inflight_bytes=self._small.used + self._large.used,
            waiting_requests=self._waiting,
            held_requests=self._held,
            held_bytes=self._held_bytes,
        )

    async def _take(self, pool: _Pool, count: int) -> None:
        if pool.take_now(count):
            return
        if self._waiting >= WAITERS_MAX:
            raise self._overloaded()
        self._waiting += 1
        if self._press_timer is None:
            self._press()
        try:
            if not await pool.take(count, self._wait_seconds_max):
                raise self._overloaded()
        finally:
            self._waiting -= 1

    def _press(self) -> None:
        """Give up the slow holders; again and again while anybody waits."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for reservation in [one for one in self._awaited if one.size and _is_slow(one, now)]:
            self._give_up(reservation)
        is_wanted = self._waiting > 0
        self._press_timer = loop.call_later(PRESS_SECONDS, self._press) if is_wanted else None

    def _give_up(self, reservation: Reservation) -> None:
        give_up = self._awaited[reservation]
        self.unwatch(reservation)
        reservation.is_given_up = True
        give_up()

    @staticmethod
    def _overloaded() -> RequestRefused:
        return RequestRefused(
            Code.SERVICE_OVERLOADED,
            "too many large requests at once; nothing was stored, try again",
            retry_after_seconds=2,
            is_last=True,
        )


def _is_slow(reservation: Reservation, now: float) -> bool:
    assert reservation.began_at is not None
    seconds = now - reservation.began_at
    return seconds >= SLOW_SECONDS_MIN and reservation.received < SLOW_BYTES_A_SECOND * seconds
