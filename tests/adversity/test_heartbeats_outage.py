"""Goal: heartbeats through an outage of a real Postgres.

Method: the board over a real catalogue, with a clock of the test's; the server is crashed, and
started again on the same data.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select

from catalog import Catalog
from catalog.errors import Unavailable
from catalog.leadership import REAPER_LOCK, leading
from catalog.run_creation import NewRun
from catalog.statuses import Status
from catalog.tables import heartbeats
from ingest.heartbeats import HeartbeatBoard
from ingest.metrics import WorkerMetrics
from tests.postgres import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator

WALL_MS = 1_700_000_000_000


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    with PostgresServer.running() as server:
        yield server


async def test_beats_are_answered_while_postgres_is_away_and_noted_when_it_is_back(postgres):
    now = [1_000.0]
    with postgres.database() as url:
        catalog = await Catalog.open(url)
        await catalog.upgrade()
        tenant = (await catalog.organisations.create("Acme")).id
        new = NewRun(name="r", project="p")
        one, two = [(await catalog.runs.create(tenant, new)).run.id for _ in range(2)]
        board = HeartbeatBoard(
            catalog.heartbeats,
            catalog.triggers.carry_out,
            set,
            WorkerMetrics(),
            wall_ms=lambda: WALL_MS + int((now[0] - 1_000) * 1_000),
            monotonic=lambda: now[0],
        )
        looking = asyncio.create_task(board._look_for_ever())
        assert await board.beat(tenant, one) is Status.RUNNING

        await asyncio.to_thread(postgres.stop, crash=True)
        for _ in range(3):
            now[0] += 30
            assert await board.beat(tenant, one) is Status.RUNNING
            with pytest.raises(Unavailable):
                await board.cycle()
        with pytest.raises(Unavailable):  # never seen here: nobody can say
            await board.beat(tenant, two)
        with pytest.raises(Unavailable):
            async with leading(catalog.direct_url, REAPER_LOCK):
                pass

        await asyncio.to_thread(postgres.start)
        await catalog.triggers.ask_cancel(tenant, one, reason=None, actor=None)
        await board.cycle()
        async with catalog.database.read() as connection:
            noted = (await connection.execute(select(heartbeats))).all()
        assert [tuple(row) for row in noted] == [(one, WALL_MS + 90_000)]
        assert await board.beat(tenant, one) is Status.CANCELLED
        assert await board.beat(tenant, two) is Status.RUNNING
        looking.cancel()
        await catalog.close()
