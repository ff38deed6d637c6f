"""The repeat window: pending is joined, durable is answered, failed and old are forgotten."""

from __future__ import annotations

import asyncio

from buffer.frame import Receipt
from buffer.repeats import Remembered, RepeatWindow
from tests.fakes.clock import FakeClock


def digest(number: int) -> bytes:
    return number.to_bytes(16, "big")


def window(clock: FakeClock, requests_max: int = 1_000) -> RepeatWindow:
    return RepeatWindow(seconds=600, requests_max=requests_max, clock=clock)


class OnItsWay:
    """A request whose outcome is still to come."""

    def outcome(self) -> asyncio.Future[Receipt]:
        return asyncio.get_running_loop().create_future()


async def test_a_pending_request_is_joined_and_a_durable_one_answered() -> None:
    repeats = window(FakeClock())
    assert repeats.find(digest(1)) is None
    pending = OnItsWay()
    repeats.begin(digest(1), pending)
    assert repeats.find(digest(1)) is pending
    repeats.settle(digest(1), Receipt(12, 3, is_repeat=False))
    assert repeats.find(digest(1)) == Receipt(12, 3, is_repeat=True)


async def test_a_failed_request_is_forgotten() -> None:
    repeats = window(FakeClock())
    repeats.begin(digest(1), OnItsWay())
    repeats.settle(digest(1), None)
    assert repeats.find(digest(1)) is None


def test_a_request_is_forgotten_after_ten_minutes() -> None:
    clock = FakeClock()
    repeats = window(clock)
    repeats.settle(digest(1), Receipt(1, 0, is_repeat=False))
    clock.advance(599)
    assert repeats.find(digest(1)) is not None
    repeats.settle(digest(2), Receipt(1, 0, is_repeat=False))
    clock.advance(2)
    assert repeats.find(digest(1)) is None
    repeats.settle(digest(3), Receipt(1, 0, is_repeat=False))
    assert len(repeats) == 2


def test_it_is_bounded_in_requests_oldest_first() -> None:
    repeats = window(FakeClock(), requests_max=3)
    for number in range(5):
        repeats.settle(digest(number), Receipt(number, 0, is_repeat=False))
    assert len(repeats) == 3
    assert repeats.find(digest(1)) is None
    assert repeats.find(digest(4)) == Receipt(4, 0, is_repeat=True)


def test_the_largest_counts_fit() -> None:
    repeats = window(FakeClock())
    repeats.settle(digest(1), Receipt(2**32 - 1, 2**32 - 1, is_repeat=False))
    assert repeats.find(digest(1)) == Receipt(2**32 - 1, 2**32 - 1, is_repeat=True)


def test_what_recovery_found_counts_from_its_own_time_and_never_from_the_future() -> None:
    clock = FakeClock()
    repeats = window(clock)
    now = clock.wall_ns()
    repeats.load(
        [
            Remembered(digest(1), 1, 0, now - 599 * 10**9),
            Remembered(digest(2), 2, 0, now + 10**15),
        ]
    )
    assert repeats.find(digest(1)) == Receipt(1, 0, is_repeat=True)
    clock.advance(2)
    assert repeats.find(digest(1)) is None
    clock.advance(600)
    assert repeats.find(digest(2)) is None
