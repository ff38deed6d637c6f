"""The reaper over a real catalogue: whom it fails, and when it judges nobody."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import pytest

from catalog import Catalog, sqlite_url
from catalog.errors import Unavailable
from catalog.run_creation import NewRun
from catalog.stale_runs import Grace
from catalog.statuses import Status
from ingest import reaper as module
from ingest.answers import Code, RequestRefused
from ingest.metrics import WorkerMetrics
from ingest.reaper import Reaper, ReaperOptions
from ingest.reaper_rows import latest_rows

START_MS = 1_700_000_000_000


class Site:
    """A catalogue, and a ClickHouse and a clock of the test's."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.tenant = ""
        self.now_ms = START_MS
        self.slept_ms = 0
        """Of the wall's time, what the monotonic clock does not know of."""
        self.rows: dict[int, int | None] = {}
        self.heard: dict[int, int] = {}
        self.backlog = 0.0
        self.is_leading = True
        self.failure: Exception | None = None
        self.catalogue_failure: Exception | None = None
        self.asked: list[list[int]] = []
        self.metrics = WorkerMetrics()
        self.reaper = Reaper(
            catalog.stale_runs,
            leading=self._leading,
            latest_rows=self._latest_rows,
            heard_ms=lambda run_id, tenant: self.heard.get(run_id),
            backlog_seconds=self._backlog,
            metrics=self.metrics,
            options=ReaperOptions(Grace(beat_ms=150_000, silent_ms=1_800_000)),
            wall_ms=lambda: self.now_ms,
            monotonic=lambda: (self.now_ms - self.slept_ms) / 1_000,
        )

    async def create(self, *, beat_at_ms: int | None = None) -> int:
        run = (await self.catalog.runs.create(self.tenant, NewRun(name="r", project="p"))).run
        if beat_at_ms is not None:
            await self.catalog.heartbeats.note_beats({run.id: beat_at_ms})
        return run.id

    async def status(self, run_id: int) -> Status:
        return (await self.catalog.runs.find(self.tenant, run_id)).status

    async def cycles_for(self, seconds: int) -> list[int]:
        """A cycle a minute; all that were failed."""
        failed = []
        for _ in range(seconds // 60):
            self.now_ms += 60_000
            failed += await self.reaper.cycle()
        return failed

    @asynccontextmanager
    async def _leading(self):
        if self.catalogue_failure is not None:
            raise self.catalogue_failure
        yield self.is_leading

    async def _latest_rows(self, silent):
        self.asked.append([run.run_id for run in silent])
        if self.failure is not None:
            raise self.failure
        return self.rows

    async def _backlog(self) -> float:
        return self.backlog


@pytest.fixture
async def site(tmp_path):
    holder: list[Site] = []
    url = sqlite_url(tmp_path / "catalog.sqlite")
    catalog = await Catalog.open(url, clock=lambda: holder[0].now_ms)
    site = Site(catalog)
    holder.append(site)
    await catalog.upgrade()
    site.tenant = (await catalog.organisations.create("Acme")).id
    yield site
    await catalog.close()


async def test_a_silent_run_is_failed_once_and_one_that_beats_is_not(site):
    dead = await site.create(beat_at_ms=START_MS)
    alive = await site.create(beat_at_ms=START_MS)
    assert await site.cycles_for(120) == []
    await site.catalog.heartbeats.note_beats({alive: site.now_ms})
    assert await site.cycles_for(120) == [dead]
    assert await site.status(dead) is Status.FAILED
    assert await site.status(alive) is Status.RUNNING
    assert site.metrics.counters["runs_reaped", ()] == 1


async def test_rows_in_clickhouse_speak_for_a_run_until_they_are_old_too(site):
    fed = await site.create(beat_at_ms=START_MS)
    site.rows = {fed: START_MS + 100_000}
    assert await site.cycles_for(240) == []
    assert await site.cycles_for(60) == [fed]
    event = (await site.catalog.runs.history(site.tenant, fed))[-1]
    assert json.loads(event.metadata) == {
        "reason": "heartbeat-timeout",
        "grace_seconds": 150,
        "stale_for_seconds": 200,
        "last_update_time": "2023-11-14T22:15:00.000Z",
    }


async def test_a_run_too_large_to_be_asked_about_is_not_judged(site):
    large = await site.create(beat_at_ms=START_MS)
    site.rows = {large: None}
    assert await site.cycles_for(600) == []


async def test_a_beat_that_is_not_noted_yet_counts(site):
    beating = await site.create(beat_at_ms=START_MS)
    site.heard = {beating: START_MS + 200_000}
    assert await site.cycles_for(300) == []
    assert await site.cycles_for(60) == [beating]


@pytest.mark.parametrize("what", ["clickhouse", "catalogue", "backlog"])
async def test_while_a_store_is_away_and_a_grace_after_it_nobody_is_judged(site, what):
    await site.create(beat_at_ms=START_MS)
    if what == "clickhouse":
        site.failure = RequestRefused(Code.DATABASE_UNAVAILABLE, "away")
    elif what == "catalogue":
        site.catalogue_failure = Unavailable("away")
    else:
        site.backlog = 61.0
    assert await site.cycles_for(600) == []
    assert site.metrics.counters["reaper_skips", (("reason", what),)] > 0
    site.failure = site.catalogue_failure = None
    site.backlog = 0.0
    if what == "clickhouse":
        # One that is away is asked only when there is somebody to judge.
        assert await site.cycles_for(60) in ([], [1])
    else:
        assert await site.cycles_for(120) == []
    assert len(await site.cycles_for(180)) <= 1
    assert await site.status(1) is Status.FAILED


async def test_a_clock_that_jumps_and_a_machine_that_slept_fail_nobody(site):
    beating = await site.create(beat_at_ms=START_MS)
    assert await site.cycles_for(120) == []
    site.now_ms += 3_600_000
    site.slept_ms += 3_600_000
    assert await site.cycles_for(60) == []
    await site.catalog.heartbeats.note_beats({beating: site.now_ms})
    assert await site.cycles_for(120) == []
    assert await site.status(beating) is Status.RUNNING
    assert await site.cycles_for(120) == [beating]


async def test_who_does_not_lead_does_nothing(site):
    await site.create(beat_at_ms=START_MS)
    site.is_leading = False
    assert await site.cycles_for(600) == []
    site.is_leading = True
    assert await site.cycles_for(60) == [1]


async def test_a_resumed_run_has_a_full_grace(site):
    run_id = await site.create(beat_at_ms=START_MS)
    assert await site.cycles_for(240) == [run_id]
    await site.catalog.runs.resume(site.tenant, run_id)
    assert await site.cycles_for(120) == []
    assert await site.cycles_for(60) == [run_id]


async def test_many_silent_runs_are_asked_about_in_pages_and_the_next_cycle_goes_on(
    site, monkeypatch
):
    monkeypatch.setattr(module, "RUNS_AT_ONCE", 2)
    monkeypatch.setattr(module, "RUNS_PER_CYCLE_MAX", 6)
    ids = [await site.create(beat_at_ms=START_MS) for _ in range(7)]
    site.rows = {ids[0]: START_MS + 10**9}  # the first page is never all gone
    assert await site.cycles_for(180) == ids[1:6]
    assert site.asked == [ids[0:2], ids[2:4], ids[4:6]]
    assert await site.cycles_for(60) == [ids[6]]
    site.asked.clear()
    await site.cycles_for(60)
    assert site.asked == [[ids[0]]]


async def test_a_question_that_is_too_much_for_clickhouse_is_asked_in_halves(site):
    ids = [await site.create(beat_at_ms=START_MS) for _ in range(4)]
    site.now_ms += 200_000
    grace = Grace(beat_ms=150_000, silent_ms=1_800_000)
    silent = await site.catalog.stale_runs.silent(grace, after=0, limit=10)

    class Failure(Exception):
        def __init__(self, code: int) -> None:
            self.code = code

    class SmallReader:
        """Cannot stand the third run."""

        code = 159

        async def rows(self, query, *, tenants, projects, runs):
            numbers = json.loads(runs)
            if ids[2] in numbers:
                raise RequestRefused(Code.QUERY_FAILED, "no") from Failure(self.code)
            return [
                {"tenantId": site.tenant, "projectName": "p", "runId": n, "latest_ms": n}
                for n in numbers
            ]

    reader = SmallReader()
    expected = {ids[0]: ids[0], ids[1]: ids[1], ids[2]: None, ids[3]: ids[3]}
    assert await latest_rows(reader, silent) == expected
    reader.code = 60  # no such table
    with pytest.raises(RequestRefused):
        await latest_rows(reader, silent)
