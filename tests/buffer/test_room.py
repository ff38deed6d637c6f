"""Room: the log's cap over all shards, the disk's reserve, and what the disk itself said."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from buffer.disk import InlineDisk
from buffer.metrics import NoMetrics
from buffer.room import Room
from tests.buffer.log_rig import ROOT, SMALL, LogRig
from tests.fakes.disk import Fail, FakeFileSystem

if TYPE_CHECKING:
    from tests.fakes.clock import FakeClock

OPTIONS = replace(SMALL, log_bytes_max=100_000, disk_free_bytes_min=50_000)


@pytest.fixture
def rig() -> LogRig:
    return LogRig(fs=FakeFileSystem(capacity=1_000_000)).open()


async def looked(rig: LogRig) -> Room:
    made = Room(rig.fs, ROOT, rig.directory, options=OPTIONS, clock=rig.clock, metrics=NoMetrics())
    await made.look(InlineDisk())
    return made


async def test_segments_of_all_shards_count_against_the_cap(rig: LogRig) -> None:
    other = ROOT / ("ab" * 16)
    rig.fs.make_dir(other)
    rig.fs.put(other / "0000000000000000.seg", bytes(60_000))
    rig.fs.put(other / "checkpoint", bytes(60_000))
    room = await looked(rig)
    assert room.refusal(40_000) is None
    assert "at most 100000" in (room.refusal(40_001) or "")
    room.note_written(39_999)
    assert room.refusal(1) is None
    assert room.is_full is False
    room.note_written(1)
    assert room.is_full


async def test_a_look_replaces_the_guess(rig: LogRig) -> None:
    room = await looked(rig)
    room.note_written(100_000)
    assert room.is_full
    await room.look(InlineDisk())
    assert not room.is_full


async def test_the_reserve_for_the_engine_is_kept_free(rig: LogRig) -> None:
    rig.fs.put(ROOT / "engine", bytes(900_000))
    room = await looked(rig)
    free = room.statistics().free_bytes
    assert room.refusal(free - 50_000) is None
    assert "kept free" in (room.refusal(free - 49_999) or "")


async def test_a_size_that_found_no_room_is_refused_until_a_probe_of_it_fits(rig: LogRig) -> None:
    room = await looked(rig)
    room.note_no_room(5_000, "quota")
    room.note_no_room(8_000, "quota")
    assert room.refusal(4_999) is None
    assert room.refusal(5_000) == "quota"
    assert room.statistics().is_full
    rig.fs.fail_next(Fail(errno.EDQUOT), after=1)
    await room.look(InlineDisk())
    assert room.refusal(5_000) == "quota"
    await room.look(InlineDisk())
    assert room.refusal(5_000) is None
    assert rig.fs.list_dir(rig.directory) == ["lock", "checkpoint"], "the probe is removed"


async def test_waiting_ends_when_there_is_room_or_time_is_up(rig: LogRig) -> None:
    room = await looked(rig)
    assert await room.wait(20.0)
    room.note_written(100_000)
    given_up = asyncio.create_task(room.wait(1.0))
    lucky = asyncio.create_task(room.wait(20.0))
    for _ in range(6):
        await asyncio.sleep(0)
        rig.clock.advance(0.25)
    assert await given_up is False
    assert not lucky.done()
    await room.look(InlineDisk())
    await asyncio.sleep(0)
    rig.clock.advance(0.25)
    assert await lucky


async def test_it_looks_every_second_and_more_often_when_full(rig: LogRig) -> None:
    room = await looked(rig)
    clock: FakeClock = rig.clock
    task = asyncio.create_task(room.run(InlineDisk()))
    await asyncio.sleep(0)
    room.note_written(100_000)
    clock.advance(0.9)
    await asyncio.sleep(0)
    assert room.is_full
    clock.advance(0.2)
    await asyncio.sleep(0)
    assert not room.is_full
    task.cancel()
    await asyncio.wait([task])


async def test_a_look_that_fails_keeps_the_former_figures(rig: LogRig) -> None:
    room = await looked(rig)
    rig.fs.free_bytes = lambda path: (_ for _ in ()).throw(OSError(errno.EIO, "sick"))
    before = room.statistics()
    await room.look(InlineDisk())
    assert room.statistics() == before
