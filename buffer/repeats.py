"""The requests of the last minutes, by digest: a repeat gets the answer of the first.

A digest that is pending is joined: the repeat waits for the same outcome. One that is durable is
answered from memory. One that failed is forgotten, so that the client's next try is stored.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

from buffer.frame import Receipt

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from buffer.clock import Clock

_COUNT_BITS = 32
_COUNT_MASK = 2**_COUNT_BITS - 1


class Remembered(NamedTuple):
    """One durable request, as recovery finds it."""

    digest: bytes
    accepted: int
    rejected: int
    received_at_ns: int


class Pending(Protocol):
    """A request that is on its way into the log."""

    def outcome(self) -> asyncio.Future[Receipt]:
        """Of the first request; the same future at each call. Await it shielded."""
        ...


class RepeatWindow:
    """The durable requests of the last ``seconds``, at most ``requests_max``, and the pending ones.

    About 140 bytes a request: counts and time are packed in one number.
    """

    def __init__(self, *, seconds: float, requests_max: int, clock: Clock) -> None:
        self._span_ns = int(seconds * 1e9)
        self._requests_max = requests_max
        self._clock = clock
        self._pending: dict[bytes, Pending] = {}
        self._settled: dict[bytes, int] = {}
        self._order: deque[bytes] = deque()

    def __len__(self) -> int:
        """How many durable requests it holds."""
        return len(self._settled)

    def find(self, digest: bytes) -> Receipt | Pending | None:
        """What is known of a request: its receipt, or that it is on its way, or nothing."""
        if (pending := self._pending.get(digest)) is not None:
            return pending
        packed = self._settled.get(digest)
        if packed is None:
            return None
        counts, at_ns = divmod(packed, 2**64)
        if at_ns < self._clock.wall_ns() - self._span_ns:
            return None
        return Receipt(counts >> _COUNT_BITS, counts & _COUNT_MASK, is_repeat=True)

    def begin(self, digest: bytes, pending: Pending) -> None:
        """A request is on its way into the log."""
        assert digest not in self._pending, "a pending digest is joined, not begun again"
        self._pending[digest] = pending

    def settle(self, digest: bytes, receipt: Receipt | None) -> None:
        """The outcome of a request that was begun: durable with this receipt, or not (None)."""
        self._pending.pop(digest, None)
        if receipt is not None:
            self._remember(digest, receipt.accepted, receipt.rejected, self._clock.wall_ns())

    def load(self, remembered: Iterable[Remembered]) -> None:
        """Takes over what recovery found, oldest first."""
        now = self._clock.wall_ns()
        for one in remembered:
            # A clock that was ahead must not make it stay for longer than the window.
            self._remember(one.digest, one.accepted, one.rejected, min(one.received_at_ns, now))

    def _remember(self, digest: bytes, accepted: int, rejected: int, at_ns: int) -> None:
        if digest not in self._settled:
            self._order.append(digest)
        self._settled[digest] = (accepted << _COUNT_BITS | rejected) << 64 | at_ns
        self._forget(at_ns - self._span_ns)

    def _forget(self, before_ns: int) -> None:
        while self._order:
            oldest = self._order[0]
            is_old = self._settled[oldest] % 2**64 < before_ns
            if not is_old and len(self._order) <= self._requests_max:
                return
            self._order.popleft()
            del self._settled[oldest]
