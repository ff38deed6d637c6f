"""A run is cancelled once, when its process is heard of, and never after its end."""

from __future__ import annotations

import asyncio
import json

import pytest

from catalog.errors import Conflict, NotFound, TooLong
from catalog.run_status import StatusRequest
from catalog.statuses import Status


@pytest.fixture
async def run_id(tenant, new_run) -> int:
    return (await tenant.catalog.runs.create(tenant.id, new_run(external_id="job"))).run.id


async def status_of(tenant, run_id) -> Status:
    return (await tenant.catalog.runs.find(tenant.id, run_id)).status


async def changes(tenant, run_id) -> list[tuple]:
    events = await tenant.catalog.runs.history(tenant.id, run_id)
    return [(event.from_status, event.to_status, event.source) for event in events]


async def ask(tenant, run_id, reason="it diverged", actor="alice"):
    return await tenant.catalog.triggers.ask_cancel(tenant.id, run_id, reason=reason, actor=actor)


async def test_a_request_changes_nothing_until_it_is_carried_out_and_then_says_who_and_why(
    tenant, run_id
):
    triggers = tenant.catalog.triggers
    asked = await ask(tenant, run_id)
    assert await status_of(tenant, run_id) is Status.RUNNING
    tenant.clock.now_ms += 5
    assert await triggers.carry_out(run_id) is Status.CANCELLED
    assert await status_of(tenant, run_id) is Status.CANCELLED
    event = (await tenant.catalog.runs.history(tenant.id, run_id))[-1]
    assert (event.from_status, event.to_status, event.source, event.actor_id) == (
        "RUNNING",
        "CANCELLED",
        "api",
        "alice",
    )
    assert json.loads(event.metadata) == {
        "reason": "it diverged",
        "actor": "alice",
        "trigger": "CANCEL",
    }
    (used,) = await triggers.of_run(run_id)
    assert (used.id, used.consumed_at_ms) == (asked.id, tenant.clock.now_ms)


async def test_fifty_that_ask_and_carry_out_at_once_leave_one_cancellation(tenant, run_id):
    asked = await asyncio.gather(*(ask(tenant, run_id) for _ in range(25)))
    assert len({trigger.id for trigger in asked}) == 1
    triggers = tenant.catalog.triggers
    done = await asyncio.gather(*(triggers.carry_out(run_id) for _ in range(25)))
    assert set(done) == {Status.CANCELLED}
    assert await changes(tenant, run_id) == [
        (None, "RUNNING", "api"),
        ("RUNNING", "CANCELLED", "api"),
    ]


async def test_a_resumed_run_is_not_cancelled_again(tenant, run_id):
    triggers, runs = tenant.catalog.triggers, tenant.catalog.runs
    await ask(tenant, run_id)
    await triggers.carry_out(run_id)
    await runs.resume(tenant.id, run_id)
    assert await triggers.carry_out(run_id) is Status.RUNNING


async def test_a_request_that_came_too_late_stops_neither_the_run_nor_its_next_life(
    tenant, run_id, new_run
):
    triggers, runs = tenant.catalog.triggers, tenant.catalog.runs
    await ask(tenant, run_id)
    await runs.update_status(tenant.id, run_id, StatusRequest(Status.COMPLETED))
    again = await runs.create(tenant.id, new_run(external_id="job"))
    assert again.is_resumed
    assert await triggers.carry_out(run_id) is Status.RUNNING

    await ask(tenant, run_id)
    await runs.update_status(tenant.id, run_id, StatusRequest(Status.COMPLETED))
    assert await triggers.carry_out(run_id) is Status.COMPLETED
    assert all(trigger.consumed_at_ms for trigger in await triggers.of_run(run_id))


async def test_a_rank_that_joins_a_run_does_not_undo_the_request_to_stop_it(
    tenant, run_id, new_run
):
    await ask(tenant, run_id)
    await tenant.catalog.runs.create(tenant.id, new_run(external_id="job"))
    assert await tenant.catalog.triggers.carry_out(run_id) is Status.CANCELLED


async def test_only_a_run_of_ones_own_that_runs_can_be_cancelled(tenant, run_id):
    triggers = tenant.catalog.triggers
    with pytest.raises(NotFound):
        await triggers.ask_cancel(tenant.other, run_id, reason=None, actor=None)
    with pytest.raises(NotFound):
        await triggers.carry_out(run_id + 1_000)
    with pytest.raises(TooLong, match="reason may have at most 1,000"):
        await ask(tenant, run_id, reason="x" * 1_001)
    await tenant.catalog.runs.update_status(tenant.id, run_id, StatusRequest(Status.FAILED))
    with pytest.raises(Conflict, match="is FAILED: only a run that is RUNNING"):
        await ask(tenant, run_id)
