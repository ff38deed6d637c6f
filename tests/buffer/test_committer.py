"""Group commit: who shares a group, when answers come, what failures and cancellation leave."""

from __future__ import annotations

import asyncio
import errno
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from buffer.committer import GROUPS_REMEMBERED, Committer
from buffer.disk import Disk, InlineDisk, ThreadDisk
from buffer.errors import Broken, Closed, LogFull, OutcomeUnknown
from buffer.frame import framed_bytes
from buffer.metrics import NoMetrics
from buffer.room import Room
from tests.buffer.log_rig import ROOT, SMALL, LogRig, chunks, request
from tests.fakes.disk import Fail, FakeFileSystem, HeldDisk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from buffer.options import BufferOptions
    from schema.columns import Chunks


@dataclass
class Running:
    rig: LogRig
    committer: Committer
    room: Room
    task: asyncio.Task[None]


@asynccontextmanager
async def running(
    disk: Disk, *, options: BufferOptions = SMALL, fs: FakeFileSystem | None = None
) -> AsyncIterator[Running]:
    rig = LogRig(options=options, fs=fs or FakeFileSystem()).open()
    room = Room(rig.fs, ROOT, rig.directory, options=options, clock=rig.clock, metrics=NoMetrics())
    committer = Committer(
        rig.log, disk, room, options=options, clock=rig.clock, metrics=NoMetrics()
    )
    task = asyncio.create_task(committer.run())
    try:
        yield Running(rig, committer, room, task)
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_no_answer_before_the_sync_and_one_sync_for_all_that_waited() -> None:
    disk = HeldDisk()
    async with running(disk) as run:
        first = run.committer.append(request(1))
        await disk.arrived()
        others = [run.committer.append(request(number)) for number in range(2, 7)]
        await asyncio.sleep(0)
        assert not first.done()
        disk.let()
        await first
        assert not any(other.done() for other in others)
        await disk.arrived()
        before = len(run.rig.fs.trace)
        disk.let()
        await asyncio.gather(*others)
        assert [line.split()[0] for line in run.rig.fs.trace[before:]] == ["pwritev", "fdatasync"]
        assert run.rig.numbers() == [1, 2, 3, 4, 5, 6]


async def test_a_request_is_never_spread_over_two_groups() -> None:
    options = replace(SMALL, group_frames_max=4)
    disk = HeldDisk()
    async with running(disk, options=options) as run:
        futures = [run.committer.append(request(number, frames=3)) for number in range(3)]
        futures.append(run.committer.append(request(3, frames=9)))
        groups = []
        while not all(future.done() for future in futures):
            await disk.arrived()
            before = run.rig.log.durable_lsn
            disk.let()
            groups.append(run.rig.log.durable_lsn - before)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        assert groups == [3, 3, 3, 9]


async def test_a_group_is_bounded_in_bytes() -> None:
    size = framed_bytes(request(0, size=1_000))
    options = replace(SMALL, group_bytes_max=3 * size)
    disk = HeldDisk()
    async with running(disk, options=options) as run:
        futures = [run.committer.append(request(number, size=1_000)) for number in range(5)]
        await disk.arrived()
        disk.let()
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0)
        assert [future.done() for future in futures] == [True] * 3 + [False] * 2
        await disk.arrived()
        disk.let()
        await asyncio.gather(*futures)


async def test_after_a_shared_group_the_next_waits_until_as_many_have_come() -> None:
    options = replace(SMALL, group_spacing_seconds=3_600)
    async with running(InlineDisk(), options=options) as run:
        await asyncio.gather(*(run.committer.append(request(number)) for number in range(3)))
        before = len(run.rig.fs.trace)
        futures = [run.committer.append(request(number)) for number in range(3, 5)]
        await asyncio.sleep(0.02)
        assert not any(future.done() for future in futures)
        futures.append(run.committer.append(request(5)))
        await asyncio.gather(*futures)
        assert [line.split()[0] for line in run.rig.fs.trace[before:]] == ["pwritev", "fdatasync"]
        assert run.rig.numbers() == [0, 1, 2, 3, 4, 5]


async def test_a_group_that_is_full_of_bytes_waits_for_no_more_requests() -> None:
    size = framed_bytes(request(0, size=1_000))
    options = replace(SMALL, group_spacing_seconds=3_600, group_bytes_max=2 * size)
    disk = HeldDisk()
    async with running(disk, options=options) as run:
        small = [run.committer.append(request(number, size=1)) for number in range(5)]
        await disk.arrived()
        large = [run.committer.append(request(number, size=1_000)) for number in range(5, 9)]
        disk.let()
        await asyncio.gather(*small)
        for pair in (large[:2], large[2:]):  # there when the group before them ends
            await asyncio.wait_for(disk.arrived(), 5)
            disk.let()
            await asyncio.gather(*pair)
        large = [run.committer.append(request(9, size=1_000))]
        await asyncio.sleep(0.01)
        large.append(run.committer.append(request(10, size=1_000)))  # and one that it waited for
        await asyncio.wait_for(disk.arrived(), 5)
        disk.let()
        await asyncio.gather(*large)


async def test_now_and_then_a_group_waits_for_more_than_the_ones_before_it() -> None:
    options = replace(SMALL, group_spacing_seconds=3_600, group_requests_enough=5)
    async with running(InlineDisk(), options=options) as run:
        for group in range(GROUPS_REMEMBERED):
            pair = (run.committer.append(request(2 * group + one)) for one in range(2))
            await asyncio.gather(*pair)
        futures = [run.committer.append(request(number)) for number in range(32, 36)]
        await asyncio.sleep(0.02)
        assert not any(future.done() for future in futures)
        futures.append(run.committer.append(request(36)))
        await asyncio.gather(*futures)
        assert run.rig.numbers() == [*range(37)]
        futures = [run.committer.append(request(number)) for number in range(37, 42)]
        await asyncio.gather(*futures)


async def test_after_a_shared_group_a_request_waits_no_longer_than_the_spacing() -> None:
    options = replace(SMALL, group_spacing_seconds=0.001)
    async with running(InlineDisk(), options=options) as run:
        await asyncio.gather(*(run.committer.append(request(number)) for number in range(2)))
        await run.committer.append(request(2))
        assert run.rig.numbers() == [0, 1, 2]


async def test_requests_that_come_alone_never_wait_for_others() -> None:
    options = replace(SMALL, group_spacing_seconds=3_600)
    async with running(InlineDisk(), options=options) as run:
        for number in range(5):
            await run.committer.append(request(number))
        assert run.rig.numbers() == [0, 1, 2, 3, 4]


async def one_that_gathers(run: Running) -> asyncio.Future[None]:
    """Request 2, after a group of 0 and 1: it waits for another."""
    await asyncio.gather(*(run.committer.append(request(number)) for number in range(2)))
    waiting = run.committer.append(request(2))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    return waiting


async def test_what_gathers_when_the_committer_is_closed_is_committed_at_once() -> None:
    options = replace(SMALL, group_spacing_seconds=3_600)
    async with running(InlineDisk(), options=options) as run:
        waiting = await one_that_gathers(run)
        await run.committer.close()
        await waiting
        assert run.rig.numbers() == [0, 1, 2]


async def test_what_gathers_when_the_committer_is_terminated_is_refused() -> None:
    options = replace(SMALL, group_spacing_seconds=3_600)
    async with running(InlineDisk(), options=options) as run:
        waiting = await one_that_gathers(run)
        run.committer.terminate()
        with pytest.raises(Closed):
            await waiting
        await asyncio.wait([run.task])
        assert run.rig.numbers() == [0, 1]


async def test_the_queue_is_bounded_in_bytes() -> None:
    size = framed_bytes(request(0))
    options = replace(SMALL, queue_bytes_max=3 * size)
    disk = HeldDisk()
    async with running(disk, options=options) as run:
        run.committer.append(request(0))
        await disk.arrived()
        waiting = [run.committer.append(request(number)) for number in (1, 2, 3)]
        with pytest.raises(LogFull):
            run.committer.append(request(4))
        assert run.committer.statistics().queue_bytes == 3 * size
        disk.let()
        await disk.arrived()
        disk.let()
        await asyncio.gather(*waiting)
        assert run.rig.numbers() == [0, 1, 2, 3]


async def test_a_cancelled_request_does_not_change_its_group() -> None:
    disk = HeldDisk()
    async with running(disk) as run:
        futures = [run.committer.append(request(number)) for number in range(3)]
        await disk.arrived()
        futures[1].cancel()
        disk.let()
        await asyncio.gather(futures[0], futures[2])
        assert run.rig.numbers() == [0, 1, 2]


async def test_a_cancelled_committer_waits_for_the_group_under_way_and_answers_it() -> None:
    disk = HeldDisk()
    async with running(disk) as run:
        under_way = run.committer.append(request(1))
        await disk.arrived()
        queued = run.committer.append(request(2))
        run.task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        run.task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not run.task.done()
        assert not under_way.done()
        disk.let()
        await under_way
        with pytest.raises(Closed):
            await queued
        await asyncio.wait([run.task])
        assert run.task.cancelled()
        assert run.rig.numbers() == [1]
        with pytest.raises(Closed):
            run.committer.append(request(3))


async def test_close_commits_what_was_taken_and_takes_no_more() -> None:
    disk = HeldDisk()
    async with running(disk) as run:
        futures = [run.committer.append(request(number)) for number in range(3)]
        closing = asyncio.create_task(run.committer.close())
        await asyncio.sleep(0)
        with pytest.raises(Closed):
            run.committer.append(request(9))
        await disk.arrived()
        assert not closing.done()
        disk.let()
        await closing
        await asyncio.gather(*futures)
        await run.task
        assert run.rig.numbers() == [0, 1, 2]


async def test_closing_an_idle_committer_ends_it() -> None:
    async with running(InlineDisk()) as run:
        await asyncio.sleep(0)
        await run.committer.close()
        await run.task


async def test_terminate_refuses_the_queue_at_once() -> None:
    disk = HeldDisk()
    async with running(disk) as run:
        first = run.committer.append(request(1))
        await disk.arrived()
        queued = run.committer.append(request(2))
        run.committer.terminate()
        with pytest.raises(Closed):
            await queued
        assert not first.done()
        disk.let()
        await first
        await run.task


async def test_a_failed_sync_is_an_unknown_outcome_for_its_group_alone() -> None:
    async with running(InlineDisk()) as run:
        await run.committer.append(request(1))
        run.rig.fs.fail_next(Fail(errno.EIO), after=1)
        futures = [run.committer.append(request(number)) for number in (2, 3)]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [OutcomeUnknown] * 2
        assert outcomes[0] is not outcomes[1]
        await run.committer.append(request(4))
        assert run.rig.numbers() == [1, 4]


async def test_a_log_that_cannot_be_fenced_stops_the_committer_and_all_that_wait() -> None:
    async with running(InlineDisk()) as run:
        await run.committer.append(request(1))
        run.rig.fs.fail_next(Fail(errno.EIO), after=1)
        run.rig.fs.fail_next(Fail(errno.EIO), after=2)
        future = run.committer.append(request(2))
        with pytest.raises(OutcomeUnknown):
            await future
        with pytest.raises(Broken):
            await run.task
        with pytest.raises(Closed, match="has stopped"):
            run.committer.append(request(3))
        assert "successor" in (run.committer.statistics().failure or "")


async def test_an_unforeseen_error_leaves_no_request_without_an_answer() -> None:
    disk = HeldDisk()
    async with running(disk) as run:
        run.rig.log.commit = lambda entries: 1 / 0
        first = run.committer.append(request(1))
        await disk.arrived()
        second = run.committer.append(request(2))
        disk.let()
        with pytest.raises(OutcomeUnknown):
            await first
        with pytest.raises(Closed):
            await second
        with pytest.raises(Broken):
            await run.task


async def test_no_room_is_told_to_those_concerned_and_remembered_until_a_probe_fits() -> None:
    async with running(InlineDisk(), fs=FakeFileSystem(capacity=60_000)) as run:
        await run.committer.append(request(1))
        futures = [
            run.committer.append(one) for one in (request(2), request(3, size=80_000), request(4))
        ]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [type(None), LogFull, type(None)]
        with pytest.raises(LogFull):
            run.committer.append(request(5, size=80_000))
        await run.committer.append(request(6))
        run.rig.fs.capacity = None
        await run.room.look(InlineDisk())
        await run.committer.append(request(7, size=80_000))
        assert run.rig.numbers() == [1, 2, 4, 6, 7]


async def test_a_sync_that_does_not_answer_is_seen() -> None:
    disk = HeldDisk()
    async with running(disk) as run:
        future = run.committer.append(request(1))
        await disk.arrived()
        run.rig.clock.advance(4.9)
        assert not run.committer.statistics().is_stalled
        run.rig.clock.advance(0.2)
        assert run.committer.statistics().is_stalled
        assert run.committer.statistics().syncing_seconds == pytest.approx(5.1)
        disk.let()
        await future
        assert not run.committer.statistics().is_stalled
        assert run.committer.statistics().sync_seconds == pytest.approx(5.1)


async def test_readers_are_woken_before_the_answer() -> None:
    async with running(InlineDisk()) as run:
        grown = asyncio.create_task(run.rig.log.grown(run.rig.log.durable_lsn))
        await asyncio.sleep(0)
        await run.committer.append(request(1))
        await grown


@pytest.mark.parametrize(
    "bad",
    [
        replace(request(1), chunks=()),
        replace(request(1), digest=b"short"),
        replace(request(1), accepted=2**32),
        replace(request(1), chunks=(replace(chunks(), project="x" * 70_000),)),
        replace(request(1), chunks=(replace(chunks(), project="\ud800"),)),
        replace(request(1), chunks=(replace(chunks(), run_id=2**64),)),
    ],
    ids=["no frames", "digest", "count", "long name", "surrogate", "run"],
)
async def test_what_cannot_be_framed_is_the_callers_error_and_harms_nobody(bad: Chunks) -> None:
    async with running(InlineDisk()) as run:
        future = run.committer.append(request(1))
        with pytest.raises(ValueError):
            run.committer.append(bad)
        await future


async def test_many_requests_on_a_real_thread_arrive_once_and_in_order() -> None:
    disk = ThreadDisk()
    async with running(disk, options=replace(SMALL, log_bytes_max=2**30)) as run:
        await asyncio.gather(*[run.committer.append(request(n)) for n in range(3_000)])
        assert run.rig.numbers() == list(range(3_000))
    disk.close()


async def test_a_thread_that_is_gone_leaves_no_request_without_an_answer() -> None:
    disk = ThreadDisk()
    disk.close()
    async with running(disk) as run:
        futures = [run.committer.append(request(number)) for number in (1, 2)]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [Closed] * 2
        with pytest.raises(Broken):
            await run.task
