"""The load of heartbeats says what it saw: every beat answered, and why one was not."""

from __future__ import annotations

import pytest

from catalog.statuses import Status
from loadtest import beating
from tests.ingest.serving import KEY, serving
from tests.ingest.test_lane_beats import board_of, run_routes


@pytest.fixture
async def server(tmp_path, monkeypatch):
    monkeypatch.setattr(beating, "INTERVAL_SECONDS", 0.1)
    board = board_of((7, Status.RUNNING), (8, Status.RUNNING), (9, Status.FAILED))
    async with serving(tmp_path, routes=run_routes(), heartbeats=board) as server:
        yield server


async def test_every_run_beats_again_and_again_on_a_connection_of_its_own(server):
    told = []
    beats = await beating.beat(
        server.url, KEY, [7, 8], 0.5, connected=lambda: told.append(server.factory.connection_count)
    )
    assert told == [2]
    assert sum(beats.errors.values()) == 0
    assert len(beats.latency) + beats.skipped == 10
    assert server.count("requests", route="/api/runs/trigger", status="200") == len(beats.latency)


async def test_what_is_not_a_running_run_is_told(server):
    beats = await beating.beat(server.url, KEY, [9], 0.1)
    assert sum(beats.errors.values()) == len(beats.latency) == 1
