"""Signs of life: many runs in one statement, time never running back."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import select

from catalog.heartbeats import RunState
from catalog.run_records import RUN_ID_MAX
from catalog.run_status import StatusRequest
from catalog.statuses import Status
from catalog.tables import arrivals, heartbeats


@pytest.fixture
async def run_ids(tenant, new_run) -> list[int]:
    runs = tenant.catalog.runs
    return [(await runs.create(tenant.id, new_run())).run.id for _ in range(3)]


async def stored(catalog, table) -> dict[int, int]:
    async with catalog.database.read() as connection:
        return {row.run_id: row[1] for row in await connection.execute(select(table))}


async def test_many_beats_are_noted_at_once_and_the_latest_stays(tenant, run_ids):
    one, two, three = run_ids
    beats = tenant.catalog.heartbeats
    await beats.note_beats({one: 1_000, two: 2_000, 10**15: 5})
    await beats.note_beats({two: 1_500, one: 3_000, three: 7})
    assert await stored(tenant.catalog, heartbeats) == {one: 3_000, two: 2_000, three: 7}
    assert await stored(tenant.catalog, arrivals) == {}
    await beats.note_beats({})


async def test_rows_that_arrive_are_noted_apart_from_heartbeats(tenant, run_ids):
    await tenant.catalog.heartbeats.note_rows({run_ids[0]: 9, run_ids[1]: 8})
    assert await stored(tenant.catalog, arrivals) == {run_ids[0]: 9, run_ids[1]: 8}
    assert await stored(tenant.catalog, heartbeats) == {}


async def test_replicas_that_note_the_same_runs_in_any_order_do_not_block_each_other(
    tenant, run_ids
):
    forth = dict.fromkeys(run_ids, 5)
    back = dict.fromkeys(reversed(run_ids), 6)
    beats = tenant.catalog.heartbeats
    await asyncio.gather(*(beats.note_beats(one) for _ in range(20) for one in (forth, back)))
    assert await stored(tenant.catalog, heartbeats) == dict.fromkeys(run_ids, 6)


async def test_states_tell_whose_a_run_is_what_it_does_and_whether_it_is_to_stop(tenant, run_ids):
    one, two, three = run_ids
    catalog = tenant.catalog
    await catalog.runs.update_status(tenant.id, two, StatusRequest(Status.FAILED))
    await catalog.triggers.ask_cancel(tenant.id, three, reason=None, actor=None)
    asked = [*run_ids, 10**9, -1, 0, RUN_ID_MAX + 1]
    states = {state.run_id: state for state in await catalog.heartbeats.states(asked)}
    assert states == {
        one: RunState(one, tenant.id, Status.RUNNING, is_cancel_asked=False),
        two: RunState(two, tenant.id, Status.FAILED, is_cancel_asked=False),
        three: RunState(three, tenant.id, Status.RUNNING, is_cancel_asked=True),
    }
    notable = await catalog.heartbeats.notable(asked)
    assert sorted(state.run_id for state in notable) == [two, three]
    assert await catalog.heartbeats.notable([]) == []


async def test_ten_thousand_runs_are_one_statement(tenant, run_ids):
    beats = dict.fromkeys(range(1, 10_001), 4)
    await tenant.catalog.heartbeats.note_beats(beats)
    assert await stored(tenant.catalog, heartbeats) == dict.fromkeys(run_ids, 4)
    assert len(await tenant.catalog.heartbeats.states(beats)) == 3
