"""Which runs are silent, on both engines; and what is left of one that was failed for it."""

from __future__ import annotations

import asyncio
import json

import pytest
from sqlalchemy import select, update

from catalog.run_status import StatusRequest
from catalog.stale_runs import SKEW_MS, Grace
from catalog.statuses import Status
from catalog.tables import alerts, runs

GRACE = Grace(beat_ms=150_000, silent_ms=1_800_000)


async def found(tenant, *, after=0, limit=100) -> list[int]:
    silent = await tenant.catalog.stale_runs.silent(GRACE, after=after, limit=limit)
    return [run.run_id for run in silent]


async def test_a_run_that_beat_has_150_seconds_and_one_that_never_did_1800(tenant, new_run):
    catalog, clock, start = tenant.catalog, tenant.clock, tenant.clock.now_ms
    beaten, mute, fed = [(await catalog.runs.create(tenant.id, new_run())).run.id for _ in range(3)]
    await catalog.heartbeats.note_beats({beaten: start + 1_000})
    await catalog.heartbeats.note_rows({fed: start + 600_000})
    clock.now_ms = start + 151_000
    assert await found(tenant) == []
    clock.now_ms = start + 151_001
    assert await found(tenant) == [beaten]
    clock.now_ms = start + 1_800_001
    assert await found(tenant) == [beaten, mute]
    clock.now_ms = start + 2_400_001
    assert await found(tenant) == [beaten, mute, fed]
    assert await found(tenant, limit=1) == [beaten]
    assert await found(tenant, after=mute) == [fed]


@pytest.mark.parametrize("sign", ["beat", "rows", "resume", "joined"])
async def test_any_sign_of_life_gives_a_full_period_of_grace(tenant, new_run, sign):
    catalog, clock = tenant.catalog, tenant.clock
    run_id = (await catalog.runs.create(tenant.id, new_run())).run.id
    await catalog.heartbeats.note_beats({run_id: clock.now_ms})
    clock.now_ms += 200_000
    if sign == "beat":
        await catalog.heartbeats.note_beats({run_id: clock.now_ms})
    elif sign == "rows":
        await catalog.heartbeats.note_rows({run_id: clock.now_ms})
    else:
        if sign == "resume":
            await catalog.runs.update_status(tenant.id, run_id, StatusRequest(Status.FAILED))
        await catalog.runs.resume(tenant.id, run_id)
    clock.now_ms += 150_000
    assert await found(tenant) == []
    clock.now_ms += 1
    assert await found(tenant) == [run_id]


async def test_times_that_a_client_made_up_neither_fail_a_new_run_nor_keep_it_for_ever(
    tenant, new_run
):
    catalog, clock = tenant.catalog, tenant.clock
    past = new_run(created_at_ms=5, updated_at_ms=5)
    future = new_run(updated_at_ms=clock.now_ms + 10**12)
    ids = [(await catalog.runs.create(tenant.id, new)).run.id for new in (past, future)]
    clock.now_ms += 150_000
    assert await found(tenant) == []
    clock.now_ms += 1
    assert await found(tenant) == ids


async def test_a_silent_run_is_failed_with_the_reason_in_its_history_and_an_alert(tenant, new_run):
    catalog, clock = tenant.catalog, tenant.clock
    beaten, mute, done = [
        (await catalog.runs.create(tenant.id, new_run())).run.id for _ in range(3)
    ]
    await catalog.heartbeats.note_beats({beaten: clock.now_ms})
    await catalog.runs.update_status(tenant.id, done, StatusRequest(Status.COMPLETED))
    clock.now_ms += 1_801_000
    silent = await catalog.stale_runs.silent(GRACE, after=0, limit=10)
    assert await catalog.stale_runs.fail(silent, GRACE) == [beaten, mute]
    assert await catalog.stale_runs.fail(silent, GRACE) == []

    for run_id, reason, grace in ((beaten, "heartbeat-timeout", 150), (mute, "stale", 1_800)):
        event = (await catalog.runs.history(tenant.id, run_id))[-1]
        assert (event.from_status, event.to_status, event.source) == (
            "RUNNING",
            "FAILED",
            "stale-monitor",
        )
        assert json.loads(event.metadata) == {
            "reason": reason,
            "grace_seconds": grace,
            "stale_for_seconds": 1_801,
            "last_update_time": "2023-11-14T22:13:20.000Z",
        }
    async with catalog.database.read() as connection:
        rows = (await connection.execute(select(alerts).order_by(alerts.c.run_id))).all()
    assert [(row.run_id, row.level, row.wants_mail) for row in rows] == [
        (beaten, "RUN_FAILED", False),
        (mute, "RUN_FAILED", False),
    ]
    assert (await catalog.runs.find(tenant.id, done)).status is Status.COMPLETED

    # It lives after all, and ends well: the worse word stays. A resume is what lets it run again.
    await catalog.runs.update_status(tenant.id, mute, StatusRequest(Status.COMPLETED))
    assert (await catalog.runs.find(tenant.id, mute)).status is Status.FAILED


async def test_replicas_that_fail_the_same_runs_at_once_fail_each_once(tenant, new_run):
    catalog, clock = tenant.catalog, tenant.clock
    ids = [(await catalog.runs.create(tenant.id, new_run())).run.id for _ in range(5)]
    clock.now_ms += 1_801_000
    silent = await catalog.stale_runs.silent(GRACE, after=0, limit=10)
    done = await asyncio.gather(*(catalog.stale_runs.fail(silent, GRACE) for _ in range(6)))
    assert sorted(run_id for each in done for run_id in each) == ids
    for run_id in ids:
        events = await catalog.runs.history(tenant.id, run_id)
        assert [event.to_status for event in events] == ["RUNNING", "FAILED"]


@pytest.mark.parametrize("sign", ["beat", "end"])
async def test_a_run_that_is_heard_of_between_look_and_verdict_is_left_alone(tenant, new_run, sign):
    catalog, clock = tenant.catalog, tenant.clock
    run_id = (await catalog.runs.create(tenant.id, new_run())).run.id
    clock.now_ms += 1_801_000
    silent = await catalog.stale_runs.silent(GRACE, after=0, limit=10)
    if sign == "beat":
        await catalog.heartbeats.note_beats({run_id: clock.now_ms})
    else:
        await catalog.runs.update_status(tenant.id, run_id, StatusRequest(Status.COMPLETED))
    assert await catalog.stale_runs.fail(silent, GRACE) == []


async def test_a_clock_that_jumps_by_decades_fails_nothing(tenant, new_run):
    await tenant.catalog.runs.create(tenant.id, new_run())
    tenant.clock.now_ms += 46 * 366 * 86_400_000
    assert await found(tenant) == []


async def test_a_clients_clock_a_little_ahead_is_a_sign_of_life(tenant, new_run):
    catalog, clock = tenant.catalog, tenant.clock
    run_id = (await catalog.runs.create(tenant.id, new_run())).run.id
    clock.now_ms += 2_000_000
    for ahead, expected in ((SKEW_MS, []), (SKEW_MS + 1, [run_id])):
        async with catalog.database.write() as connection:
            await connection.execute(update(runs).values(updated_at_ms=clock.now_ms + ahead))
        assert await found(tenant) == expected
