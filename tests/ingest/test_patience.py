"""Deadlines of clients, by a clock and a loop that a test turns by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ingest.patience import LATE_SECONDS, Patience

if TYPE_CHECKING:
    from collections.abc import Callable


class Handle:
    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at = at
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """Its clock stands still until it is moved, and only then are timers looked at."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[Handle] = []

    def time(self) -> float:
        return self.now

    def call_at(self, at: float, call: Callable[[], None]) -> Handle:
        self.timers.append(Handle(at, call))
        return self.timers[-1]

    def pass_to(self, now: float) -> None:
        self.now = now
        due = [timer for timer in self.timers if timer.at <= now]
        self.timers = [timer for timer in self.timers if timer.at > now]
        for timer in due:
            if not timer.is_cancelled:
                timer.call()


@pytest.fixture
def loop():
    return Loop()


def test_a_deadline_ends_in_time(loop):
    ends: list[float] = []
    Patience(loop, 10, lambda: ends.append(loop.now))
    loop.pass_to(109.9)
    assert ends == []
    loop.pass_to(110 + LATE_SECONDS / 2)
    assert ends == [110 + LATE_SECONDS / 2]
    loop.pass_to(200)
    assert len(ends) == 1


def test_the_time_that_the_process_stood_still_is_given_back(loop):
    ends: list[float] = []
    patience = Patience(loop, 10, lambda: ends.append(loop.now))
    loop.pass_to(114)
    assert (ends, patience.due) == ([], 118)
    loop.pass_to(118 + LATE_SECONDS / 2)
    assert len(ends) == 1


def test_it_is_given_back_once_over_at_most(loop):
    ends: list[float] = []
    patience = Patience(loop, 10, lambda: ends.append(loop.now), due=105)
    loop.pass_to(4_000)
    assert (ends, patience.due) == ([], 4_010)
    loop.pass_to(4_020)
    assert ends == [4_020]


def test_what_has_arrived_ends_no_more(loop):
    ends: list[float] = []
    patience = Patience(loop, 10, lambda: ends.append(loop.now))
    loop.pass_to(114)
    patience.cancel()
    loop.pass_to(200)
    assert ends == []
