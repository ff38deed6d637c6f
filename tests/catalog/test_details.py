"""What is read of runs and projects, and what only belongs to them: notes, model graphs."""

from __future__ import annotations

import asyncio

import pytest

from catalog.errors import Conflict, Invalid, NotFound, TooLarge, TooLong
from catalog.log_names import LogName


async def test_the_details_of_a_run_hold_all_that_belongs_to_it(tenant, new_run):
    runs = tenant.catalog.runs
    run_id = (await runs.create(tenant.id, new_run(config='{"a": 1}', tags=["t"]))).run.id
    await tenant.catalog.log_names.add(tenant.id, run_id, "METRIC", ["train/loss", "acc"])
    details = await runs.details(tenant.id, run_id)
    assert details == await runs.details_by_display_id(tenant.id, "mmp-1", None)
    assert details == await runs.details_by_display_id(tenant.id, "MMP-1", "my-ml-project")
    assert details.run == await runs.find(tenant.id, run_id)
    assert details.organisation_slug == "acme"
    assert details.log_names == [
        LogName("acc", "METRIC", ""),
        LogName("train/loss", "METRIC", "train"),
    ]


async def test_of_many_names_the_first_thousand_are_told(tenant, new_run):
    run_id = (await tenant.catalog.runs.create(tenant.id, new_run())).run.id
    names = [f"m{n:04}" for n in range(1_100)]
    await tenant.catalog.log_names.add(tenant.id, run_id, "METRIC", names)
    details = await tenant.catalog.runs.details(tenant.id, run_id)
    assert [one.name for one in details.log_names] == names[:1_000]


async def test_details_of_no_run_or_of_several_are_refused(tenant, new_run):
    runs = tenant.catalog.runs
    await runs.create(tenant.id, new_run(project="training"))
    await runs.create(tenant.id, new_run(project="transport"))
    with pytest.raises(Conflict, match="projectName"):
        await runs.details_by_display_id(tenant.id, "TRA-1", None)
    with pytest.raises(Invalid):
        await runs.details_by_display_id(tenant.id, "123", None)
    for attempt in (
        runs.details(tenant.other, 1),
        runs.details(tenant.id, 2**70),
        runs.details_by_display_id(tenant.other, "TRA-1", None),
        runs.details_by_display_id(tenant.id, "TRA-1", "elsewhere"),
    ):
        with pytest.raises(NotFound, match=r"^Run not found$"):
            await attempt


async def test_projects_are_listed_newest_first_with_their_runs_counted(tenant, new_run):
    runs = tenant.catalog.runs
    assert await runs.projects(tenant.id) == []
    await runs.create(tenant.id, new_run(project="first", created_at_ms=5, updated_at_ms=6))
    tenant.clock.now_ms += 1
    for _ in range(2):
        await runs.create(tenant.id, new_run(project="second"))
    await runs.create(tenant.other, new_run(project="theirs"))
    second, first = await runs.projects(tenant.id)
    assert (second.name, second.run_count, second.created_at_ms) == (
        "second",
        2,
        tenant.clock.now_ms,
    )
    assert (first.name, first.run_count) == ("first", 1)
    assert (first.created_at_ms, first.updated_at_ms) == (5, 6)  # backfilled with its first run
    assert [project.name for project in await runs.projects(tenant.other)] == ["theirs"]


async def test_notes_are_replaced_and_cleared(tenant, new_run):
    runs = tenant.catalog.runs
    run_id = (await runs.create(tenant.id, new_run())).run.id
    for notes, stored in (("é" * 1_000, "é" * 1_000), (None, None), ("n", "n"), ("", None)):
        await runs.set_notes(tenant.id, run_id, notes)
        assert (await runs.find(tenant.id, run_id)).notes == stored
    with pytest.raises(TooLong, match="notes may have at most 1000 characters, and has 1001"):
        await runs.set_notes(tenant.id, run_id, "n" * 1_001)
    with pytest.raises(NotFound):
        await runs.set_notes(tenant.other, run_id, "n")


async def test_a_graph_that_is_sent_again_is_there_once(tenant, new_run, monkeypatch):
    graphs = tenant.catalog.model_graphs
    run_id = (await tenant.catalog.runs.create(tenant.id, new_run())).run.id
    await asyncio.gather(*(graphs.add(tenant.id, run_id, '{"a":1}') for _ in range(5)))
    tenant.clock.now_ms += 1
    await graphs.add(tenant.id, run_id, '{"b":1}')
    found = await graphs.of_run(tenant.id, run_id)
    assert [one.graph for one in found] == ['{"a":1}', '{"b":1}']
    monkeypatch.setattr("catalog.model_graphs.GRAPHS_MAX", 2)
    await graphs.add(tenant.id, run_id, '{"a":1}')
    with pytest.raises(Invalid, match="at most 2 model graphs"):
        await graphs.add(tenant.id, run_id, '{"c":1}')
    with pytest.raises(TooLarge, match="graph may have at most 16777216 bytes"):
        await graphs.add(tenant.id, run_id, '"' + "x" * 2**24 + '"')
    for attempt in (
        graphs.add(tenant.other, run_id, "{}"),
        graphs.of_run(tenant.other, run_id),
    ):
        with pytest.raises(NotFound):
            await attempt
