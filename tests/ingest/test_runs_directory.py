"""The directory of runs: what it answers without asking, and what it asks for."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from ingest.metrics import WorkerMetrics
from ingest.runs_directory import OUTAGE_SECONDS, UNKNOWN_SECONDS, RunsDirectory
from tests.ingest.serving import DictRuns

TENANT = "org-1"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> DictRuns:
    runs = DictRuns()
    runs.projects[TENANT, 7] = "home"
    return runs


@pytest.fixture
def directory(store: DictRuns, clock: Clock) -> RunsDirectory:
    return RunsDirectory(store, WorkerMetrics(), monotonic=clock)


async def test_a_run_is_asked_for_once_and_then_known_without_waiting(directory, store):
    assert directory.known(TENANT, 7) is None
    assert directory.known(TENANT, 7, "header") is None
    answers = await asyncio.gather(*(directory.project(TENANT, 7, "header") for _ in range(20)))
    assert (set(answers), store.calls) == ({"home"}, 1)
    assert directory.known(TENANT, 7) == "home"
    assert directory.known("another tenant", 7) is None


async def test_a_run_that_was_just_made_is_known_at_once_even_if_it_was_asked_for_before(
    directory, store
):
    assert await directory.project(TENANT, 8, "header") == "header"
    assert directory.known(TENANT, 8, "header") == "header"
    directory.learn(TENANT, 8, "new home")
    assert directory.known(TENANT, 8) == "new home"
    assert await directory.project(TENANT, 8, "header") == "new home"
    assert store.calls == 1


async def test_an_unknown_run_has_the_headers_project_until_it_is_time_to_ask_again(
    directory, store, clock
):
    assert await directory.project(TENANT, 8, "header") == "header"
    clock.now += UNKNOWN_SECONDS - 0.1
    assert directory.known(TENANT, 8, "header") == "header"
    assert directory.known(TENANT, 8) is None
    clock.now += 0.2
    assert directory.known(TENANT, 8, "header") is None
    store.projects[TENANT, 8] = "made meanwhile"
    assert await directory.project(TENANT, 8, "header") == "made meanwhile"


async def test_with_the_catalogue_away_known_runs_stay_known_and_others_have_the_headers_project(
    directory, store, clock
):
    await directory.project(TENANT, 7, "header")
    store.failure = OSError("away")
    assert await directory.project(TENANT, 9, "header") == "header"
    assert directory.known(TENANT, 10, "header") == "header"
    assert directory.known(TENANT, 7) == "home"
    clock.now += OUTAGE_SECONDS + 0.1
    assert directory.known(TENANT, 10, "header") is None


async def test_the_runs_that_rows_came_for_are_told_once(directory):
    directory.learn(TENANT, 5, "made here")
    assert directory.take_active() == set()
    await directory.project(TENANT, 7, "header")
    await directory.project(TENANT, 8, "header")
    directory.known(TENANT, 5, "header")
    assert directory.take_active() == {(TENANT, 7), (TENANT, 5)}
    assert directory.take_active() == set()


async def test_an_outage_is_told_when_it_begins_and_when_it_ends(directory, store, clock):
    with capture_logs() as lines:
        store.failure = OSError("away")
        for run_id in (10, 11, 12):
            assert await directory.project(TENANT, run_id, "header") == "header"
            clock.now += OUTAGE_SECONDS + 0.1
        store.failure = None
        await directory.project(TENANT, 13, "header")
        await directory.project(TENANT, 14, "header")
    assert [line["event"] for line in lines] == ["run_lookup_failed", "run_lookup_back"]


async def test_who_hangs_up_takes_the_answer_from_nobody_who_asks_for_the_same_run(
    directory, store, monkeypatch
):
    gate = asyncio.Event()
    project_of = store.project_of

    async def slow(tenant: str, run_id: int) -> str | None:
        await gate.wait()
        return await project_of(tenant, run_id)

    monkeypatch.setattr(store, "project_of", slow)
    first, second = (asyncio.ensure_future(directory.project(TENANT, 7, "header")) for _ in "ab")
    await asyncio.sleep(0)
    first.cancel()
    gate.set()
    assert await second == "home"
    assert first.cancelled()
    assert store.calls == 1
