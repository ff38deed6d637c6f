from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from catalog.errors import Conflict, Invalid, NotFound, TooLong
from catalog.run_forks import ForkRequest
from catalog.run_pages import RunSearch
from catalog.run_records import RUN_ID_MAX
from catalog.run_status import StatusRequest
from catalog.statuses import Source, Status


async def test_runs_of_a_project_are_numbered_from_one(tenant, new_run):
    runs = tenant.catalog.runs
    first = await runs.create(tenant.id, new_run())
    second = await runs.create(tenant.id, new_run())
    elsewhere = await runs.create(tenant.id, new_run(project="training"))
    assert [one.run.display_id for one in (first, second, elsewhere)] == ["MMP-1", "MMP-2", "TRA-1"]
    assert first.run.id < second.run.id < elsewhere.run.id
    assert (first.organisation_slug, first.is_resumed, first.run.status) == (
        "acme",
        False,
        Status.RUNNING,
    )


async def test_a_new_run_keeps_all_that_it_was_given(tenant, new_run):
    config = '{"lr": 0.1, "worst": NaN}'
    new = new_run(
        external_id="mine",
        tags=["a", "group:g"],
        config=config,
        system_metadata='{"gpu": 8}',
        logger_settings='{"x": 1}',
        created_at_ms=123,
        updated_at_ms=456,
    )
    created = await tenant.catalog.runs.create(tenant.id, new)
    run = await tenant.catalog.runs.find(tenant.id, created.run.id)
    assert (run.name, run.project, run.external_id) == ("a run", "my-ml-project", "mine")
    assert (run.tags, run.config) == (["a", "group:g"], config)
    assert (run.system_metadata, run.logger_settings) == ('{"gpu": 8}', '{"x": 1}')
    assert (run.created_at_ms, run.updated_at_ms, run.status_updated_at_ms) == (123, 456, None)
    (event,) = await tenant.catalog.runs.history(tenant.id, run.id)
    assert (event.from_status, event.to_status, event.source) == (None, "RUNNING", "api")
    assert event.created_at_ms == tenant.clock.now_ms


async def test_no_run_is_anybodys_elses(tenant, new_run):
    runs = tenant.catalog.runs
    run_id = (await runs.create(tenant.id, new_run(external_id="x"))).run.id
    assert await runs.find(tenant.other, run_id) is None
    assert await runs.project_of(tenant.other, run_id) is None
    for attempt in (
        runs.resume(tenant.other, run_id),
        runs.resume_by_display_id(tenant.other, "MMP-1", None),
        runs.resume_by_external_id(tenant.other, "x", "my-ml-project"),
        runs.update_status(tenant.other, run_id, StatusRequest(Status.FAILED)),
        runs.set_tags(tenant.other, run_id, ["t"]),
        runs.merge_config(tenant.other, run_id, '{"a": 1}'),
        runs.history(tenant.other, run_id),
        tenant.catalog.log_names.add(tenant.other, run_id, "METRIC", ["a"]),
    ):
        with pytest.raises(NotFound, match=r"^Run not found$"):
            await attempt
    theirs = await runs.create(tenant.other, new_run(external_id="x"))
    assert not theirs.is_resumed
    assert theirs.run.number == 1


@pytest.mark.parametrize("run_id", [0, -1, RUN_ID_MAX, RUN_ID_MAX + 1, 2**100])
async def test_a_number_that_no_run_has_is_not_found(tenant, run_id):
    assert await tenant.catalog.runs.find(tenant.id, run_id) is None
    assert await tenant.catalog.runs.project_of(tenant.id, run_id) is None
    with pytest.raises(NotFound):
        await tenant.catalog.runs.set_tags(tenant.id, run_id, [])
    with pytest.raises(NotFound):
        await tenant.catalog.runs.resume(tenant.id, run_id)


async def test_an_external_id_names_one_run_of_a_project(tenant, new_run):
    runs = tenant.catalog.runs
    first = await runs.create(
        tenant.id, new_run(external_id="job-1", config='{"a": {"x": 1}}', tags=["t"])
    )
    await runs.update_status(tenant.id, first.run.id, StatusRequest(Status.FAILED))
    again = await runs.create(
        tenant.id,
        new_run(external_id="job-1", name="ignored", config='{"a": {"y": 2}}', tags=["ignored"]),
    )
    assert again.is_resumed
    assert again.run.id == first.run.id
    assert again.run.status is Status.RUNNING
    run = await runs.find(tenant.id, first.run.id)
    assert (run.name, run.tags, json.loads(run.config)) == ("a run", ["t"], {"a": {"x": 1, "y": 2}})
    sources = [event.source for event in await runs.history(tenant.id, first.run.id)]
    assert sources == ["api", "api", "resume"]
    assert not (
        await runs.create(tenant.id, new_run(external_id="job-1", project="other"))
    ).is_resumed


async def test_twenty_ranks_at_once_get_one_run(tenant, new_run):
    opened = await asyncio.gather(
        *(
            tenant.catalog.runs.create(
                tenant.id, new_run(external_id="job", config=f'{{"rank{n}": {n}}}')
            )
            for n in range(20)
        )
    )
    assert len({one.run.id for one in opened}) == 1
    assert sorted(one.is_resumed for one in opened) == [False] + [True] * 19
    run = await tenant.catalog.runs.find(tenant.id, opened[0].run.id)
    assert json.loads(run.config) == {f"rank{n}": n for n in range(20)}
    assert len(await tenant.catalog.runs.history(tenant.id, run.id)) == 1


async def test_runs_created_at_once_have_numbers_without_gap_or_double(tenant, new_run):
    opened = await asyncio.gather(
        *(tenant.catalog.runs.create(tenant.id, new_run()) for _ in range(20))
    )
    assert sorted(one.run.number for one in opened) == list(range(1, 21))
    assert len({one.run.id for one in opened}) == 20


async def test_a_status_that_changes_leaves_an_event_and_one_that_does_not_leaves_none(
    tenant, new_run
):
    runs = tenant.catalog.runs
    run_id = (await runs.create(tenant.id, new_run())).run.id
    for _ in range(3):
        tenant.clock.now_ms += 1_000
        await runs.update_status(
            tenant.id, run_id, StatusRequest(Status.COMPLETED), api_key_id="key"
        )
    events = await runs.history(tenant.id, run_id)
    assert [(event.from_status, event.to_status) for event in events] == [
        (None, "RUNNING"),
        ("RUNNING", "COMPLETED"),
    ]
    assert events[1].api_key_id == "key"
    run = await runs.find(tenant.id, run_id)
    assert run.status_updated_at_ms == tenant.clock.now_ms - 2_000
    assert run.updated_at_ms == tenant.clock.now_ms


async def test_a_milder_final_status_is_ignored_with_all_that_came_with_it(tenant, new_run):
    runs = tenant.catalog.runs
    run_id = (await runs.create(tenant.id, new_run())).run.id
    await runs.update_status(tenant.id, run_id, StatusRequest(Status.FAILED, '{"why": 1}', True))
    before = await runs.find(tenant.id, run_id)
    request = StatusRequest(Status.COMPLETED, None, True, '{"a": 1}', 5)
    assert not await runs.update_status(tenant.id, run_id, request)
    assert await runs.find(tenant.id, run_id) == before
    assert await runs.update_status(tenant.id, run_id, request, Source.STALE_MONITOR)


async def test_a_named_time_wins_and_metadata_is_set_cleared_or_kept(tenant, new_run):
    runs = tenant.catalog.runs
    run_id = (await runs.create(tenant.id, new_run(logger_settings='{"a": 1}'))).run.id

    async def update(request: StatusRequest):
        await runs.update_status(tenant.id, run_id, request)
        return await runs.find(tenant.id, run_id)

    run = await update(StatusRequest(Status.COMPLETED, '{"m": NaN}', True, '{"b": 2}', 77))
    assert (run.status_updated_at_ms, run.status_metadata) == (77, '{"m": NaN}')
    assert json.loads(run.logger_settings) == {"a": 1, "b": 2}
    assert (await update(StatusRequest(Status.COMPLETED))).status_metadata == '{"m": NaN}'
    assert (await update(StatusRequest(Status.COMPLETED, None, True))).status_metadata is None


async def test_a_run_is_resumed_by_number_display_id_or_external_id(tenant, new_run):
    runs = tenant.catalog.runs
    run_id = (await runs.create(tenant.id, new_run(external_id="x"))).run.id
    for resume in (
        lambda: runs.resume(tenant.id, run_id),
        lambda: runs.resume_by_display_id(tenant.id, "mmp-1", None),
        lambda: runs.resume_by_external_id(tenant.id, "x", "my-ml-project"),
    ):
        await runs.update_status(tenant.id, run_id, StatusRequest(Status.CANCELLED))
        opened = await resume()
        assert (opened.run.id, opened.is_resumed, opened.run.status) == (
            run_id,
            True,
            Status.RUNNING,
        )
    events = await runs.history(tenant.id, run_id)
    assert [event.source for event in events] == ["api"] + ["api", "resume"] * 3
    await runs.resume(tenant.id, run_id)
    assert await runs.history(tenant.id, run_id) == events


async def test_a_display_id_of_two_projects_needs_the_project(tenant, new_run):
    runs = tenant.catalog.runs
    await runs.create(tenant.id, new_run(project="training"))
    second = await runs.create(tenant.id, new_run(project="transport"))
    with pytest.raises(Conflict, match=r"training, transport.*projectName"):
        await runs.resume_by_display_id(tenant.id, "TRA-1", None)
    opened = await runs.resume_by_display_id(tenant.id, "TRA-1", "transport")
    assert opened.run.id == second.run.id


async def test_a_fork_of_a_fork_finds_the_run_that_holds_the_step(tenant, new_run):
    runs = tenant.catalog.runs
    root = (
        await runs.create(
            tenant.id, new_run(config='{"a": {"x": 1}, "b": 1}', tags=["r", "group:r"])
        )
    ).run
    child = (await runs.create(tenant.id, new_run(fork=ForkRequest(root.id, 100)))).run
    assert (child.forked_from_run_id, child.fork_step) == (root.id, 100)
    early = await runs.create(
        tenant.id,
        new_run(
            fork=ForkRequest(child.id, 50, inherits_tags=True),
            config='{"a": 2}',
            tags=["c", "group:c"],
        ),
    )
    assert (early.run.forked_from_run_id, early.run.fork_step) == (root.id, 50)
    whole = await runs.find(tenant.id, early.run.id)
    assert json.loads(whole.config) == {"a": 2, "b": 1}
    assert whole.tags == ["r", "c", "group:c"]
    late = await runs.create(
        tenant.id, new_run(fork=ForkRequest(child.id, 150, inherits_config=False))
    )
    assert late.run.forked_from_run_id == child.id
    assert (await runs.find(tenant.id, late.run.id)).config is None


async def test_a_fork_needs_a_step_and_a_parent_in_its_project(tenant, new_run):
    runs = tenant.catalog.runs
    parent = (await runs.create(tenant.id, new_run())).run
    with pytest.raises(Invalid, match="forkStep is required"):
        await runs.create(tenant.id, new_run(fork=ForkRequest(parent.id, None)))
    for project, tenant_id in (("elsewhere", tenant.id), ("my-ml-project", tenant.other)):
        with pytest.raises(Invalid, match=r"^Fork parent run not found in this project$"):
            await runs.create(tenant_id, new_run(project=project, fork=ForkRequest(parent.id, 1)))
    assert (await runs.create(tenant.id, new_run())).run.number == 2


async def test_names_that_cannot_be_stored_are_refused_with_their_field(tenant, new_run):
    runs = tenant.catalog.runs
    with pytest.raises(TooLong, match="runName may have at most 255 characters, and has 256"):
        await runs.create(tenant.id, new_run(name="n" * 256))
    with pytest.raises(Invalid, match="projectName must not be empty"):
        await runs.create(tenant.id, new_run(project=" "))
    opened = await runs.create(tenant.id, new_run(name="nul \0 and \ud800"))
    assert opened.run.name == "nul \ufffd and \ufffd"


async def test_tags_are_replaced_and_configurations_merged(tenant, new_run):
    runs = tenant.catalog.runs
    run_id = (await runs.create(tenant.id, new_run(config='{"a": 1}', tags=["x"]))).run.id
    await runs.set_tags(tenant.id, run_id, ["y", "z"])
    with pytest.raises(Invalid):
        await runs.set_tags(tenant.id, run_id, ["group:a", "group:b"])
    await runs.merge_config(tenant.id, run_id, '{"b": {"c": 2}}')
    await runs.merge_config(tenant.id, run_id, "null")
    await runs.merge_config(tenant.id, run_id, None)
    run = await runs.find(tenant.id, run_id)
    assert (run.tags, json.loads(run.config)) == (["y", "z"], {"a": 1, "b": {"c": 2}})


async def test_merges_at_once_lose_nothing(tenant, new_run):
    run_id = (await tenant.catalog.runs.create(tenant.id, new_run())).run.id
    await asyncio.gather(
        *(
            tenant.catalog.runs.merge_config(tenant.id, run_id, f'{{"k{n}": {n}}}')
            for n in range(20)
        )
    )
    run = await tenant.catalog.runs.find(tenant.id, run_id)
    assert json.loads(run.config) == {f"k{n}": n for n in range(20)}


async def test_a_document_of_megabytes_is_stored_and_given_back(tenant, new_run):
    config = json.dumps({"blob": "x" * 8_000_000})
    run_id = (await tenant.catalog.runs.create(tenant.id, new_run(config=config))).run.id
    assert (await tenant.catalog.runs.find(tenant.id, run_id)).config == config


async def test_a_runs_project_is_told(tenant, new_run):
    run_id = (await tenant.catalog.runs.create(tenant.id, new_run())).run.id
    assert await tenant.catalog.runs.project_of(tenant.id, run_id) == "my-ml-project"


async def test_letters_that_no_database_holds_lead_to_the_run_that_was_made_with_them(
    tenant, new_run
):
    runs = tenant.catalog.runs
    odd = "nul\0and-half\ud800"
    new = new_run(project=odd, external_id=odd, name=odd, tags=[odd])
    made = (await runs.create(tenant.id, new)).run
    fork = replace(new, fork=ForkRequest(made.id, 1))
    assert await runs.fork_parent(tenant.id, fork) is None
    assert await runs.fork_parent(tenant.id, replace(fork, external_id="other")) == made
    assert (await runs.create(tenant.id, new)).run.id == made.id
    assert (await runs.resume_by_external_id(tenant.id, odd, odd)).run.id == made.id
    assert (await runs.resume_by_display_id(tenant.id, made.display_id, odd)).run.id == made.id
    assert (await runs.details_by_display_id(tenant.id, made.display_id, odd)).run.id == made.id
    page = await runs.page(tenant.id, RunSearch(odd, text=odd, tags=[odd]))
    assert [one.head.id for one in page.runs] == [made.id]
    await runs.set_tags(tenant.id, made.id, [odd])
    await runs.set_notes(tenant.id, made.id, odd)
    await runs.merge_config(tenant.id, made.id, json.dumps({odd: odd}))
    await tenant.catalog.model_graphs.add(tenant.id, made.id, json.dumps({odd: odd}))
    run = await runs.find(tenant.id, made.id)
    assert json.loads(run.config) == {odd: odd}
    assert {run.name, run.project, run.notes, *run.tags} == {"nul\ufffdand-half\ufffd"}
