"""The heartbeat board: what it answers from memory, and what it asks and tells the catalogue."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from catalog.errors import NotFound, Unavailable
from catalog.heartbeats import RunState
from catalog.statuses import Status
from ingest import heartbeats
from ingest.heartbeats import HeartbeatBoard
from ingest.metrics import WorkerMetrics

TENANT = "org-1"
WALL_MS = 1_700_000_000_000


class Store:
    """The catalogue's side, in a dict; can be away."""

    def __init__(self) -> None:
        self.runs: dict[int, tuple[str, Status]] = {}
        self.asked_to_stop: set[int] = set()
        self.beats: list[dict[int, int]] = []
        self.rows: list[dict[int, int]] = []
        self.looks: list[set[int]] = []
        self.is_away = False

    async def states(self, run_ids) -> list[RunState]:
        self.looks.append(set(run_ids))
        return self._of(run_ids)

    async def notable(self, run_ids) -> list[RunState]:
        found = self._of(run_ids)
        return [s for s in found if s.is_cancel_asked or s.status is not Status.RUNNING]

    async def note_beats(self, seen_at_ms) -> None:
        self._see()
        self.beats.append(dict(seen_at_ms))

    async def note_rows(self, received_at_ms) -> None:
        self._see()
        self.rows.append(dict(received_at_ms))

    async def carry_out(self, run_id: int) -> Status:
        self._see()
        self.asked_to_stop.discard(run_id)
        self.runs[run_id] = (self.runs[run_id][0], Status.CANCELLED)
        return Status.CANCELLED

    def _of(self, run_ids) -> list[RunState]:
        self._see()
        return [
            RunState(run_id, *self.runs[run_id], run_id in self.asked_to_stop)
            for run_id in run_ids
            if run_id in self.runs
        ]

    def _see(self) -> None:
        if self.is_away:
            raise Unavailable("away")


class Site:
    def __init__(self) -> None:
        self.now = 1_000.0
        self.store = Store()
        self.rows_came: set[tuple[str, int]] = set()
        self.metrics = WorkerMetrics()
        self.board = HeartbeatBoard(
            self.store,
            self.store.carry_out,
            self._take,
            self.metrics,
            wall_ms=lambda: WALL_MS + int((self.now - 1_000.0) * 1_000),
            monotonic=lambda: self.now,
        )

    def _take(self) -> set[tuple[str, int]]:
        came, self.rows_came = self.rows_came, set()
        return came

    @asynccontextmanager
    async def looking(self):
        """The task that asks for first beats runs; cycles are the test's to make."""
        task = asyncio.create_task(self.board._look_for_ever())
        yield
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture
def site() -> Site:
    site = Site()
    site.store.runs = {7: (TENANT, Status.RUNNING), 8: ("other", Status.RUNNING)}
    return site


async def test_first_beats_of_many_runs_are_one_look_and_later_ones_none(site):
    site.store.runs |= dict.fromkeys(range(100, 1_100), (TENANT, Status.RUNNING))
    async with site.looking():
        for _ in range(3):
            beats = (site.board.beat(TENANT, n) for n in range(100, 1_100) for _ in range(2))
            assert set(await asyncio.gather(*beats)) == {Status.RUNNING}
    assert site.store.looks == [set(range(100, 1_100))]
    assert site.board.known(TENANT, 100) is Status.RUNNING


async def test_an_unknown_run_and_another_tenants_are_alike_not_found_and_asked_for_again_soon(
    site, monkeypatch
):
    async with site.looking():
        for run_id in (8, 999, -1, 10**30):
            for _ in range(2):
                with pytest.raises(NotFound):
                    await site.board.beat(TENANT, run_id)
        assert len(site.store.looks) == 4
        site.board.learn(TENANT, 999, Status.RUNNING)  # it is made here just now
        assert await site.board.beat(TENANT, 999) is Status.RUNNING
        site.now += heartbeats.UNKNOWN_SECONDS
        site.store.runs[8] = (TENANT, Status.RUNNING)
        assert await site.board.beat(TENANT, 8) is Status.RUNNING


async def test_a_request_to_stop_is_carried_out_once_and_the_next_beat_tells_it(site):
    async with site.looking():
        assert await site.board.beat(TENANT, 7) is Status.RUNNING
        site.store.asked_to_stop.add(7)
        await site.board.cycle()
        assert await site.board.beat(TENANT, 7) is Status.CANCELLED
    assert site.metrics.counters["runs_cancelled", ()] == 1


async def test_cancelled_is_never_told_from_memory_since_the_run_may_have_been_resumed(site):
    async with site.looking():
        site.board.learn(TENANT, 7, Status.RUNNING)
        site.store.runs[7] = (TENANT, Status.CANCELLED)
        await site.board.cycle()
        assert site.board.known(TENANT, 7) is None
        assert await site.board.beat(TENANT, 7) is Status.CANCELLED
        site.store.runs[7] = (TENANT, Status.RUNNING)  # resumed at another worker
        assert await site.board.beat(TENANT, 7) is Status.RUNNING


async def test_other_ends_are_told_within_a_cycle_and_so_is_a_new_life(site):
    site.board.learn(TENANT, 7, Status.RUNNING)
    for status in (Status.FAILED, Status.RUNNING):
        site.store.runs[7] = (TENANT, status)
        await site.board.cycle()
        assert site.board.known(TENANT, 7) is status


async def test_beats_are_noted_when_they_came_in_one_statement_and_not_each_time(site):
    site.store.runs[9] = (TENANT, Status.RUNNING)
    for run_id in (7, 9):
        site.board.learn(TENANT, run_id, Status.RUNNING)
        site.board.known(TENANT, run_id)
    site.now += 1.5
    await site.board.cycle()
    assert site.store.beats == [{7: WALL_MS, 9: WALL_MS}]
    site.now += 0.5
    site.board.known(TENANT, 7)
    site.now += heartbeats.NOTE_SECONDS - 1
    await site.board.cycle()
    assert len(site.store.beats) == 1
    site.now += 1
    await site.board.cycle()
    assert site.store.beats[1:] == [{7: WALL_MS + 2_000}]


async def test_with_the_catalogue_away_the_last_status_stands_for_a_time_and_nothing_is_lost(site):
    site.board.learn(TENANT, 7, Status.RUNNING)
    site.store.is_away = True
    site.now += heartbeats.OUTAGE_SECONDS_MAX
    assert site.board.known(TENANT, 7) is Status.RUNNING
    with pytest.raises(Unavailable):
        await site.board.cycle()
    site.now += 1
    assert site.board.known(TENANT, 7) is None
    async with site.looking():
        with pytest.raises(Unavailable):
            await site.board.beat(TENANT, 7)
        site.store.is_away = False
        await site.board.cycle()
        assert site.store.beats == [{7: WALL_MS + 900_000}]
        assert await site.board.beat(TENANT, 7) is Status.RUNNING


async def test_a_catalogue_that_does_not_answer_holds_a_first_beat_for_a_moment_only(
    site, monkeypatch
):
    monkeypatch.setattr(heartbeats, "LOOK_SECONDS_MAX", 0.01)
    with pytest.raises(Unavailable):  # no task looks
        await site.board.beat(TENANT, 7)
    monkeypatch.setattr(heartbeats, "WAITING_MAX", 1)
    with pytest.raises(Unavailable, match="too many"):
        await site.board.beat(TENANT, 9)


async def test_runs_that_stop_beating_are_forgotten_and_memory_is_bounded(site, monkeypatch):
    site.board.learn(TENANT, 7, Status.RUNNING)
    site.board.known(TENANT, 7)
    await site.board.cycle()
    site.now += heartbeats.IDLE_SECONDS + 1
    await site.board.cycle()
    assert site.board.known(TENANT, 7) is None
    monkeypatch.setattr(heartbeats, "RUNS_MAX", 3)
    for run_id in range(5):
        site.board.learn(TENANT, run_id, Status.RUNNING)
    known = [run_id for run_id in range(5) if site.board.known(TENANT, run_id)]
    assert known == [2, 3, 4]


async def test_rows_that_come_are_noted_now_and_then_and_kept_through_an_outage(site):
    site.rows_came = {(TENANT, 7)}
    site.store.is_away = True
    site.board.learn(TENANT, 7, Status.RUNNING)
    with pytest.raises(Unavailable):
        await site.board.cycle()
    site.now += 5
    site.store.is_away = False
    await site.board.cycle()
    assert site.store.rows == [{7: WALL_MS}]
    site.rows_came = {(TENANT, 7)}
    site.now += 1
    await site.board.cycle()
    assert len(site.store.rows) == 1
    site.now += heartbeats.NOTE_SECONDS
    await site.board.cycle()
    assert site.store.rows[1:] == [{7: WALL_MS + 6_000}]


async def test_the_end_of_a_worker_tells_the_catalogue_a_last_time(site):
    site.board.learn(TENANT, 7, Status.RUNNING)
    site.board.known(TENANT, 7)
    await site.board.close()
    assert site.store.beats == [{7: WALL_MS}]
    assert site.board.heard_ms(7, TENANT) == WALL_MS
    site.store.is_away = True
    await site.board.close()


async def test_an_outage_is_told_when_it_begins_and_when_it_ends(site, monkeypatch):
    monkeypatch.setattr(heartbeats, "CYCLE_SECONDS", 0)
    site.board.learn(TENANT, 7, Status.RUNNING)
    with capture_logs() as lines:
        task = asyncio.create_task(site.board.run())
        async with asyncio.timeout(5):
            for is_away in (True, False):
                site.store.is_away = is_away
                while site.board.is_away is not is_away:
                    site.now += heartbeats.CYCLE_SECONDS + 1
                    await asyncio.sleep(0)
                for _ in range(20):
                    await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    assert [line["event"] for line in lines] == ["heartbeats_not_noted", "heartbeats_back"]
