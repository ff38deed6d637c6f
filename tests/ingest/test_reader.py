"""Reads from a real engine, and what is said when there is none."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from buffer.clickhouse_http import Endpoint
from catalog.stale_runs import SilentRun
from ingest.answers import Code, RequestRefused
from ingest.reader import Reader
from ingest.reaper_rows import latest_rows
from schema.ddl import create_table
from schema.ids import RunId, TenantId
from schema.streams import METRICS
from tests.engine_process import start_engine

TENANT = TenantId("org'1\\\t")


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    process = start_engine(tmp_path_factory.mktemp("reader") / "clickhouse")
    yield process
    process.stop()


@pytest.fixture
async def reader(engine):
    endpoint = Endpoint(engine.url, engine.database, engine.user, engine.password)
    reader = Reader(endpoint)
    yield reader
    await reader.close()


async def run(engine, statement: str) -> None:
    headers = {"X-ClickHouse-User": engine.user, "X-ClickHouse-Key": engine.password}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(engine.url, data=statement) as response,
    ):
        assert response.status == 200, await response.text()


async def test_the_largest_step_is_of_this_tenant_project_and_run_alone(engine, reader):
    assert engine.database == "charon"
    await run(engine, create_table(METRICS, "charon", cluster=None, retention_days=None))
    values = ",".join(
        f"({tenant}, '{project}', {run_id}, 'a', {step}, {step})"
        for tenant, project, run_id, step in [
            (r"'org\'1\\\t'", "p", 7, 12.5),
            (r"'org\'1\\\t'", "p", 7, -3),
            (r"'org\'1\\\t'", "q", 7, 100),
            (r"'org\'1\\\t'", "p", 8, 200),
            ("'org-2'", "p", 7, 300),
        ]
    )
    columns = "tenantId, projectName, runId, logName, step, value"
    await run(engine, f"INSERT INTO charon.mlop_metrics ({columns}) VALUES {values}")
    assert await reader.max_step(TENANT, "p", RunId(7)) == 12.5
    assert await reader.max_step(TENANT, "p", RunId(9)) is None
    assert await reader.max_step(TENANT, "p' OR 1 --", RunId(7)) is None


async def test_the_latest_rows_of_silent_runs_are_their_own_and_not_of_the_future(engine, reader):
    await run(engine, create_table(METRICS, "charon", cluster=None, retention_days=None))
    odd = "it's a \\ project\n"
    values = ",".join(
        f"({tenant}, {project}, {run_id}, 'a', {step}, 1, {time})"
        for tenant, project, run_id, step, time in [
            (r"'org\'1\\\t'", r"'it\'s a \\ project\n'", 17, 1, "toDateTime64(1600000000.5, 3)"),
            (r"'org\'1\\\t'", r"'it\'s a \\ project\n'", 17, 2, "toDateTime64(1600000001.25, 3)"),
            (r"'org\'1\\\t'", r"'it\'s a \\ project\n'", 17, 3, "now64(3) + 3600"),
            (r"'org\'1\\\t'", "'p'", 17, 4, "toDateTime64(1600000009, 3)"),
            ("'org-2'", "'p'", 18, 5, "toDateTime64(1600000002, 3)"),
        ]
    )
    columns = "tenantId, projectName, runId, logName, step, value, time"
    await run(engine, f"INSERT INTO charon.mlop_metrics ({columns}) VALUES {values}")

    def silent(tenant: str, project: str, run_id: int) -> SilentRun:
        return SilentRun(run_id, tenant, project, has_beaten=True, heard_at_ms=0)

    found = await latest_rows(
        reader,
        [silent(TENANT, odd, 17), silent("org-2", "p", 18), silent("org-2", odd, 19)],
    )
    assert found == {17: 1_600_000_001_250, 18: 1_600_000_002_000}
    # As many and as long names as may be asked for at once.
    many = [silent(TENANT, "漢" * 250 + f"{n}", 1_000 + n) for n in range(50)]
    many += [silent(TENANT, f"project {n}", 2_000 + n) for n in range(150)]
    assert await latest_rows(reader, [*many, silent("org-2", "p", 18)]) == {18: 1_600_000_002_000}


async def test_a_query_that_fails_is_503_without_the_servers_words(reader):
    with pytest.raises(RequestRefused) as caught:
        await reader.rows("SELECT * FROM no_such_table")
    assert caught.value.code is Code.QUERY_FAILED
    assert "no_such_table" not in caught.value.message


async def test_with_clickhouse_away_it_is_503_and_the_probe_says_so():
    reader = Reader(Endpoint("http://127.0.0.1:1", "charon", "u", "swordfish"))
    try:
        with pytest.raises(RequestRefused) as caught:
            await reader.max_step(TENANT, "p", RunId(7))
        assert caught.value.code is Code.DATABASE_UNAVAILABLE
        with pytest.raises(Exception, match="connect"):
            await reader.probe()
        assert "swordfish" not in repr(reader)
    finally:
        await reader.close()


async def test_reads_are_bounded_in_number(reader):
    async with asyncio.timeout(20):
        answers = await asyncio.gather(*(reader.rows("SELECT 1 AS one") for _ in range(50)))
    assert answers == [[{"one": 1}]] * 50


async def test_a_query_that_finds_nothing_gives_no_rows(reader):
    assert await reader.rows("SELECT number FROM numbers(5) WHERE number > {n:UInt8}", n="9") == []
    rows = await reader.rows("SELECT number AS n, 'é' AS t FROM numbers(2)")
    assert rows == [{"n": 0, "t": "é"}, {"n": 1, "t": "é"}]
