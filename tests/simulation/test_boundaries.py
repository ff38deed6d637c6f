"""The machine goes at every call of a recorded workload; kills and errors there; every region rots.

Method: a workload of two clients against one worker, with rotation, delivery, deletion, an orderly
stop and a restart in it, is run once to count its changing calls of the storage layer. Then it is
run again for each of them: power cut there, process killed there, or the call fails. The world is
healed, drained and audited as in every run of the simulation.

For rot the server is away, so that all of the log is still needed; each region of each file is
flipped, and each segment cut short, while the worker is stopped.
"""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from buffer.checkpoint import FILE_NAME, SLOT_BYTES
from buffer.options import BufferOptions
from tests.fakes.disk import Fail, Short
from tests.simulation.machine import Violation
from tests.simulation.regions import Region, regions_of
from tests.simulation.scenario import Scenario
from tests.simulation.world import World, run_scenario

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.loop import Process
    from tests.simulation.machine import Report

WORKLOAD = Scenario(
    seed=0,
    options=BufferOptions(
        segment_bytes_max=5_500,
        ahead_bytes=3_000,
        log_bytes_max=2**30,
        disk_free_bytes_min=0,
        batch_rows_max=25,
        batch_age_seconds_max=0.1,
        repeat_log_bytes_max=6_000,  # so that what is delivered goes within the run
    ),
    troubles=(),
    workers=1,
    clients=2,
    requests=4,
    storm_seconds=1.5,
    repeats_are_remembered=False,
)
CUTS_A_TEST = 40
"""Calls in one test: a name a call would be a list of hundreds."""


async def calm(world: World) -> None:
    """An orderly stop and start in the midst of the requests."""
    await asyncio.sleep(0.8)
    for slot in world.slots:
        slot.stop.set()
    await asyncio.sleep(0.7)


def run_with(prepare: Callable[[World], None], seed: int = 0) -> Report:
    def both(world: World) -> None:
        world.weather = calm
        prepare(world)

    return run_scenario(replace(WORKLOAD, seed=seed), both)


def count_calls() -> int:
    worlds: list[World] = []
    run_with(worlds.append)
    return worlds[0].disk.changes


CALLS = count_calls()


def at(call: int, happen: Callable[[World, Process], Fail | Short | None]) -> None:
    """Runs the workload with something happening at one call of it."""

    def prepare(world: World) -> None:
        world.disk.ordered[call] = lambda process: happen(world, process)

    try:
        run_with(prepare)
    except Violation as violation:
        trace = "\n".join(violation.report.trace[-60:])
        raise AssertionError(f"call {call}: {violation}\n{trace}") from None


@pytest.mark.parametrize("first", range(1, CALLS + 1, CUTS_A_TEST))
def test_the_power_is_cut_at_each_call(first: int) -> None:
    for call in range(first, min(first + CUTS_A_TEST, CALLS + 1)):
        at(call, lambda world, process: world.cut_power())


@pytest.mark.parametrize("first", range(1, CALLS + 1, CUTS_A_TEST))
def test_the_worker_is_killed_at_every_other_call(first: int) -> None:
    for call in range(first, min(first + CUTS_A_TEST, CALLS + 1), 2):
        at(call, lambda world, process: process.kill())


@pytest.mark.parametrize("first", range(1, CALLS + 1, CUTS_A_TEST))
def test_the_others_fail(first: int) -> None:
    faults: list[Fail | Short] = [Fail(errno.EIO), Fail(errno.ENOSPC), Short(300)]
    for call in range(first + 1, min(first + CUTS_A_TEST, CALLS + 1), 2):
        at(call, lambda world, process: faults[call // 2 % 3])  # noqa: B023 - run before the next


def test_the_workload_rotates_delivers_deletes_and_restarts() -> None:
    """Or the tests above prove less than they say."""
    worlds: list[World] = []
    report = run_with(worlds.append)
    done = {line.split()[0] for line in worlds[0].disk.trace}
    assert {"pwritev", "fdatasync", "rename", "fsync_dir", "unlink", "create"} <= done
    assert worlds[0].metrics.counts["log_segments_released"] >= 2
    assert report.acknowledged == report.requests >= 8
    assert CALLS > 150


# -- rot --


def rotten(
    choose: Callable[[World], Region | None], damage: Callable[[World, Region], None]
) -> World:
    """The workload with the server away; the worker is stopped, a file damaged, all is healed."""

    async def weather(world: World) -> None:
        world.server.go_down()
        await asyncio.sleep(1.5)
        world.want_workers(0)
        while any(slot.process is not None and slot.process.is_alive for slot in world.slots):
            await asyncio.sleep(0.05)
        region = choose(world)
        if region is not None:
            damage(world, region)

    worlds: list[World] = []

    def prepare(world: World) -> None:
        world.weather = weather
        worlds.append(world)

    run_scenario(replace(WORKLOAD, requests=5), prepare)
    return worlds[0]


def undamaged() -> list[Region]:
    found: list[Region] = []
    rotten(lambda world: found.extend(regions_of(world.disk)), lambda world, region: None)
    return found


REGIONS = undamaged()
SEGMENTS = sorted({region.path for region in REGIONS if region.path.suffix == ".seg"})


def flip(world: World, region: Region) -> None:
    middle = (region.start + region.end) // 2
    world.disk.flip(region.path, middle)
    world.rot.happened["rotten_bytes"] = 1
    world.rot.lost_frames.update(region.frames)


def cut_short(world: World, region: Region) -> None:
    content = world.disk.content(region.path)
    world.disk.put(region.path, content[: (region.start + region.end) // 2])
    world.rot.happened["rotten_bytes"] = 1
    world.rot.lost_frames.update(
        frame
        for other in REGIONS
        if other.path == region.path and other.end > (region.start + region.end) // 2
        for frame in other.frames
    )


@pytest.mark.parametrize("region", REGIONS, ids=str)
def test_each_region_rots(region: Region) -> None:
    world = rotten(lambda world: region, flip)
    damaged = world.metrics.counts.get("damaged_ranges", 0)
    if region.frames or region.what == "group header":
        assert damaged == 1, "it is set aside and told of"
    else:
        assert damaged == 0, "one copy is enough"
    if region.frames:
        lost = world.rot.happened.get("rows_lost_to_rot", 0)
        assert lost, "what the damage took is missing: or the region is not what it is said to be"


@pytest.mark.parametrize("region", [one for one in REGIONS if one.path in SEGMENTS[:-1]], ids=str)
def test_each_segment_is_cut_short_in_each_region(region: Region) -> None:
    world = rotten(lambda world: region, cut_short)
    assert world.metrics.counts["damaged_ranges"] >= 1


@pytest.mark.parametrize("size", [SLOT_BYTES, SLOT_BYTES + 1_000])
def test_a_checkpoint_is_cut_short_in_its_second_slot(size: int) -> None:
    checkpoint = next(one for one in REGIONS if one.path.name == FILE_NAME)
    at_size = replace(checkpoint, start=size, end=size)
    assert "damaged_ranges" not in rotten(lambda world: at_size, cut_short).metrics.counts


@pytest.mark.parametrize("size", [0, SLOT_BYTES - 1])
def test_a_checkpoint_that_is_lost_leaves_the_shard_to_a_person(size: int) -> None:
    """What was delivered is not known: it is neither sent again nor deleted, and told of."""
    checkpoint = next(one for one in REGIONS if one.path.name == FILE_NAME)
    at_size = replace(checkpoint, start=size, end=size)
    with pytest.raises(Violation, match="is left") as caught:
        rotten(lambda world: at_size, cut_short)
    assert any("shard_unreadable" in line for line in caught.value.report.trace)


def test_the_log_has_several_segments_and_regions_of_every_kind() -> None:
    assert len(SEGMENTS) >= 3
    assert {region.what for region in REGIONS} == {
        *("segment header", "group header", "frame header", "names", "payload", "checkpoint"),
    }
