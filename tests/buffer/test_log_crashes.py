"""The machine goes at every call of a recorded workload, and every call of it fails once.

Method: a workload of commits, deliveries, releases, orderly ends and restarts is run once to count
its changing calls. Then, for each call: the machine goes before it (or the call fails with EIO,
with ENOSPC, or writes short), power is cut with some choice of what survives, the log is opened
again, and what is read is compared with what was answered:

* every request that was told "stored" is there, whole, once, in order;
* none is there that was told "no room";
* what a reader has seen once stays, whatever happens then;
* nothing reads as damage, and no LSN ever names two requests.
"""

from __future__ import annotations

import contextlib
import errno
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING

import pytest

from buffer.errors import Broken, BufferFailure, LogFull
from buffer.frame import Frame
from schema.streams import StreamKind
from tests.buffer.log_rig import SMALL, LogRig, number_of, request
from tests.fakes.disk import Crash, Cut, Fail, FakeFileSystem, Fault, Short

if TYPE_CHECKING:
    from buffer.log import GroupOutcome
    from buffer.options import BufferOptions

KINDS = (StreamKind.METRICS, StreamKind.LOGS)


@dataclass
class Told:
    """What the clients were told, and what each LSN was seen to hold."""

    stored: list[int] = field(default_factory=list)
    refused: set[int] = field(default_factory=set)
    by_lsn: dict[int, int] = field(default_factory=dict)
    delivered: int = 0

    def note(self, numbers: list[int], outcome: GroupOutcome) -> None:
        for index, number in enumerate(numbers):
            failure = outcome.failures.get(index)
            if failure is None:
                self.stored.append(number)
            elif isinstance(failure, LogFull):
                self.refused.add(number)
            else:
                assert isinstance(failure, BufferFailure)

    def check(self, rig: LogRig) -> None:
        """Reads all that is not delivered and compares."""
        seen: dict[int, list[tuple[int, Frame]]] = {}
        for kind in KINDS:
            found = rig.read(kind, self.delivered)
            assert all(isinstance(item, Frame) for item in found), "nothing is damaged"
            lsns = [frame.lsn for frame in found]
            assert lsns == sorted(set(lsns))
            for frame in found:
                assert self.by_lsn.setdefault(frame.lsn, number_of(frame)) == number_of(frame)
                seen.setdefault(number_of(frame), []).append((frame.lsn, frame))
        for lsn, number in self.by_lsn.items():
            assert lsn < self.delivered or number in seen, "what was seen once stays"
        order = [number for number, _ in sorted(seen.items(), key=lambda item: item[1][0][0])]
        assert not self.refused & set(order)
        undelivered = [n for n in self.stored if n not in self._delivered_numbers(rig)]
        assert [number for number in order if number in set(undelivered)] == undelivered
        for number, frames in seen.items():
            if min(lsn for lsn, _ in frames) >= self.delivered:
                assert sorted(lsn for lsn, _ in frames) == [
                    min(lsn for lsn, _ in frames) + k for k in range(frames_of(number))
                ]

    def _delivered_numbers(self, rig: LogRig) -> set[int]:
        return {number for lsn, number in self.by_lsn.items() if lsn < self.delivered}


def frames_of(number: int) -> int:
    return 1 + number % 3


def work(rig: LogRig, told: Told, *, first: int = 0, rounds: int = 12) -> None:
    """The workload; raises `Crash` when the machine goes, returns early when the log is broken."""
    rig.open()
    told.check(rig)
    number = first
    for turn in range(rounds):
        numbers = list(range(number, number + 1 + turn % 4))
        number = numbers[-1] + 1
        group = [request(n, frames=frames_of(n), size=300, kinds=KINDS) for n in numbers]
        try:
            told.note(numbers, rig.commit(*group))
        except Broken:
            return
        if turn % 4 == 2:
            told.check(rig)
            durable = rig.log.durable_lsn
            if rig.deliver(durable):
                told.delivered = durable
                rig.release(keep=turn == 2)
        if turn == 7:
            rig.close()
            rig.open()
            told.check(rig)
    told.check(rig)
    rig.close()


WAYS = {"plain": SMALL, "ahead": replace(SMALL, ahead_bytes=12_000)}
"""Zeros are written behind groups of up to 1,500 bytes, which half of them are."""


def count_calls(options: BufferOptions) -> int:
    rig = LogRig(options=options)
    work(rig, Told())
    return rig.fs.calls


CALLS = [(way, call) for way in WAYS for call in range(1, count_calls(WAYS[way]) + 1)]


def run_with(way: str, call: int, fault: Fault, seed: int) -> None:
    random = Random(seed * 1_000 + call)
    fs = FakeFileSystem()
    fs.faults[call] = fault
    rig, told = LogRig(fs=fs, options=WAYS[way]), Told()
    with contextlib.suppress(Crash, OSError):  # an open that failed is the caller's to repeat
        work(rig, told)
    if random.random() < 0.3:
        fs.kill()
    else:
        fs.power_cut(random)
    rig = LogRig(fs=fs, clock=rig.clock, options=WAYS[way])
    # A delivery that was on its way may have arrived or not.
    rig.open()
    positions = {rig.checkpoint.state(kind).delivered for kind in StreamKind}
    told.delivered = max(told.delivered, *positions)
    told.check(rig)
    fs.power_cut(random)
    work(rig, told, first=1_000)
    fs.kill()
    rig.open()
    told.delivered = max(told.delivered, rig.checkpoint.state(KINDS[0]).delivered)
    told.check(rig)


@pytest.mark.parametrize(("way", "call"), CALLS)
def test_the_machine_goes_before_any_call(way: str, call: int) -> None:
    for seed in range(3):
        run_with(way, call, Cut(), seed)


@pytest.mark.parametrize(("way", "call"), CALLS)
def test_any_call_fails(way: str, call: int) -> None:
    run_with(way, call, Fail(errno.EIO), 1)
    run_with(way, call, Fail(errno.ENOSPC), 2)
    run_with(way, call, Short(700), 3)


@pytest.mark.parametrize("way", WAYS)
def test_the_workload_rotates_releases_and_restarts(way: str) -> None:
    """Or the tests above prove less than they say."""
    rig, told = LogRig(options=WAYS[way]), Told()
    work(rig, told)
    names = {line.split()[0] for line in rig.fs.trace}
    assert {"pwritev", "fdatasync", "rename", "fsync_dir", "unlink"} <= names
    assert told.delivered > 0
    assert len(told.stored) > 20
