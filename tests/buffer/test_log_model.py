"""The log against a plain list: random commits, failures, crashes, restarts, deliveries, releases.

The model is what clients were told. `agrees` is checked after every step: what the readers give is
what was stored, in order, each once, and besides it only requests of unknown outcome.
"""

from __future__ import annotations

import contextlib
import errno
from random import Random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from buffer.errors import Broken, LogFull
from buffer.frame import Frame
from buffer.options import BufferOptions
from schema.streams import StreamKind
from tests.buffer.log_rig import EVERYTHING, LogRig, number_of, request
from tests.fakes.disk import Crash, Cut, Fail, FakeFileSystem, Short

KINDS = (StreamKind.METRICS, StreamKind.LOGS, StreamKind.DATA)
FAULTS = st.one_of(
    st.sampled_from([Cut(), Fail(errno.EIO), Fail(errno.ENOSPC), Fail(errno.EDQUOT)]),
    st.builds(Short, st.integers(0, 2_000)),
)
SIZES = st.sampled_from([8, 60, 700, 5_000])


class LogModel(RuleBasedStateMachine):
    """One shard on a fake disk, and the list."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = LogRig(
            fs=FakeFileSystem(),
            options=BufferOptions(
                segment_bytes_max=12_000,
                ahead_bytes=5_000,
                log_bytes_max=10**6,
                disk_free_bytes_min=0,
            ),
        )
        self.number = 0
        self.stored: list[tuple[int, int]] = []
        """Requests told "stored", and how many frames each has."""
        self.refused: set[int] = set()
        self.seen: dict[int, tuple[int, StreamKind]] = {}
        """LSN to request and table, of all frames that a reader ever gave."""
        self.is_broken = False
        self.readers = {}

    @initialize()
    def open(self) -> None:
        self.rig.open()
        self._readers()

    @rule(
        frames=st.lists(st.integers(1, 4), min_size=1, max_size=4),
        size=SIZES,
        fault=st.one_of(st.none(), FAULTS),
        after=st.integers(0, 8),
        then=st.sampled_from(["kill", "power"]),
        seed=st.integers(0, 2**16),
    )
    def commit(self, frames, size, fault, after, then, seed) -> None:
        if self.is_broken:
            return
        numbers = list(range(self.number, self.number + len(frames)))
        self.number += len(frames)
        group = [
            request(n, frames=count, size=size, kinds=KINDS)
            for n, count in zip(numbers, frames, strict=True)
        ]
        if fault is not None:
            self.rig.fs.fail_next(fault, after=after)
        try:
            outcome = self.rig.commit(*group)
        except Crash:
            self._come_back(then, seed)
            return
        except Broken:
            self.is_broken = True
            return
        finally:
            self.rig.fs.faults.clear()
        for index, (number, count) in enumerate(zip(numbers, frames, strict=True)):
            failure = outcome.failures.get(index)
            if failure is None:
                self.stored.append((number, count))
            elif isinstance(failure, LogFull):
                self.refused.add(number)

    @rule(then=st.sampled_from(["kill", "power"]), seed=st.integers(0, 2**16))
    def crash(self, then, seed) -> None:
        self._come_back(then, seed)

    @rule(then=st.sampled_from(["kill", "power"]), after=st.integers(0, 6), seed=st.integers(0, 99))
    def crash_again_while_opening(self, then, after, seed) -> None:
        self.rig.fs.kill()
        self.rig.fs.fail_next(Cut(), after=after)
        with contextlib.suppress(Crash):
            self.rig.open()
        self.rig.fs.faults.clear()
        self._come_back(then, seed)

    @rule()
    def end_in_order(self) -> None:
        self.rig.close()
        self.rig.open()
        self.is_broken = False
        self._readers()

    @rule(kind=st.sampled_from(list(StreamKind)), share=st.floats(0, 1))
    def deliver(self, kind, share) -> None:
        start = self.rig.checkpoint.state(kind).delivered
        durable = self.rig.log.durable_lsn
        self.rig.deliver(start + int((durable - start) * share), (kind,))

    @rule(
        keep=st.booleans(),
        fault=st.one_of(st.none(), FAULTS),
        after=st.integers(0, 4),
        seed=st.integers(0, 2**16),
    )
    def release(self, keep, fault, after, seed) -> None:
        if fault is not None:
            self.rig.fs.fail_next(fault, after=after)
        try:
            self.rig.release(keep=keep)
        except Crash:
            self._come_back("power", seed)
        finally:
            self.rig.fs.faults.clear()

    @rule(seconds=st.sampled_from([1, 400, 700]))
    def wait(self, seconds) -> None:
        self.rig.clock.advance(seconds)

    @precondition(lambda self: self.readers)
    @rule(kind=st.sampled_from(KINDS), rows=st.sampled_from([1, 10, EVERYTHING]))
    def read_on(self, kind, rows) -> None:
        """A reader that lives as long as the process gives each frame once, whatever its pace."""
        reader, given = self.readers[kind]
        for frame in reader.read(rows, EVERYTHING):
            assert isinstance(frame, Frame)
            assert not given or frame.lsn > given[-1]
            given.append(frame.lsn)

    @invariant()
    def agrees(self) -> None:
        order: dict[int, list[int]] = {}
        for kind in KINDS:
            position = self.rig.checkpoint.state(kind).delivered
            lsns = []
            for frame in self.rig.read(kind):
                assert isinstance(frame, Frame), frame
                lsns.append(frame.lsn)
                order.setdefault(number_of(frame), []).append(frame.lsn)
                named = (number_of(frame), kind)
                assert self.seen.setdefault(frame.lsn, named) == named, "an LSN given twice"
            ahead = sorted(lsn for lsn in self.seen if lsn >= position)
            mine = [lsn for lsn in ahead if self.seen[lsn][1] is kind]
            assert lsns == mine, "what was seen once stays, in order, until it is delivered"
        assert not self.refused & set(order), "told that it is not stored, and stored"
        known: dict[int, list[int]] = {}
        for lsn, (number, _) in sorted(self.seen.items()):
            known.setdefault(number, []).append(lsn)
        # Checked after every step, so each request is seen before any of it is delivered.
        for number, count in self.stored:
            lsns = known[number]
            assert lsns == list(range(lsns[0], lsns[0] + count)), "whole and without a gap"
        firsts = [known[number][0] for number, _ in self.stored]
        assert firsts == sorted(firsts), "first come, first served"

    @invariant()
    def remembers_only_what_is_stored(self) -> None:
        known = {number for number, _ in self.seen.values()}
        for one in self.rig.recovered.remembered:
            assert int.from_bytes(one.digest, "little") in known

    def _come_back(self, then: str, seed: int) -> None:
        if then == "kill":
            self.rig.fs.kill()
        else:
            self.rig.fs.power_cut(Random(seed))
        self.rig.open()
        self.is_broken = False
        self._readers()

    def _readers(self) -> None:
        self.readers = {
            kind: (self.rig.log.reader(self.rig.checkpoint.state(kind).delivered, kind), [])
            for kind in KINDS
        }


LogModel.TestCase.settings = settings(
    max_examples=120,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestLogModel = LogModel.TestCase
