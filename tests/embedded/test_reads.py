"""Reads: streamed, bounded, killed with their client, and never in an insert's way."""

from __future__ import annotations

import asyncio
import io
import time

import aiohttp
import psutil
import pytest


@pytest.fixture
async def http():
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        yield session


@pytest.fixture
def headers(engine):
    return {"X-ClickHouse-User": engine.user, "X-ClickHouse-Key": engine.password}


@pytest.fixture
def ask(http, engine, headers):
    async def ask(sql, data=b"", **params):
        async with http.post(
            engine.url, params={"query": sql, **params}, data=data, headers=headers
        ) as answer:
            return answer.headers.get("X-ClickHouse-Exception-Code"), await answer.text()

    return ask


async def is_running(ask, query_id):
    sql = f"SELECT count() FROM system.processes WHERE query_id = '{query_id}'"
    return (await ask(sql))[1] == "1\n"


async def until(condition, wanted):
    async with asyncio.timeout(20):
        while await condition() is not wanted:
            await asyncio.sleep(0.01)


ENDLESS = "SELECT max(sipHash64(number)) FROM system.numbers"


async def test_an_answer_of_400_mb_is_streamed_in_little_memory(http, engine, headers):
    process = psutil.Process(engine.pid)
    before = process.memory_info().rss
    size, top = 0, 0
    params = {"query": "SELECT number FROM numbers(50000000) FORMAT RowBinary"}
    async with http.post(engine.url, params=params, headers=headers) as answer:
        async for piece in answer.content.iter_chunked(2**20):
            size += len(piece)
            if size % (64 * 2**20) < len(piece):
                top = max(top, process.memory_info().rss)
    assert size == 400_000_000
    assert top - before < 150 * 2**20


async def test_a_client_that_stops_reading_stops_the_query(http, engine, headers, ask):
    params = {
        "query": "SELECT number FROM system.numbers FORMAT RowBinary",
        "query_id": "unread",
    }
    async with http.post(engine.url, params=params, headers=headers) as answer:
        await answer.content.readexactly(8 * 2**20)
        assert await is_running(ask, "unread")
        answer.close()
    await until(lambda: is_running(ask, "unread"), False)


async def test_a_query_dies_with_its_client_before_the_first_row(http, engine, headers, ask):
    task = asyncio.create_task(ask(ENDLESS, query_id="left"))
    await until(lambda: is_running(ask, "left"), True)
    task.cancel()
    await asyncio.wait({task})
    await until(lambda: is_running(ask, "left"), False)


async def test_reads_that_wait_never_start_when_their_clients_are_gone(ask):
    tasks = [asyncio.create_task(ask(ENDLESS, query_id=f"w{n}")) for n in range(12)]

    async def running():
        sql = "SELECT count() FROM system.processes WHERE startsWith(query_id, 'w')"
        return int((await ask(sql))[1])

    async with asyncio.timeout(20):
        while await running() < 4:
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        while await running() > 0:
            await asyncio.sleep(0.01)
    assert await ask("SELECT 1") == (None, "1\n")


async def test_kill_query_by_the_clients_id(ask):
    task = asyncio.create_task(ask(ENDLESS, query_id="victim"))
    await until(lambda: is_running(ask, "victim"), True)
    assert (await ask("KILL QUERY WHERE query_id = 'nobody' SYNC"))[1] == ""
    assert await is_running(ask, "victim")
    assert (await ask("KILL QUERY WHERE query_id = 'victim' ASYNC FORMAT Null"))[0] is None
    assert (await task)[0] == "394"
    assert not await is_running(ask, "victim")


async def test_processes_show_clients_ids_and_statements(ask):
    task = asyncio.create_task(ask(ENDLESS, query_id="shown"))
    await until(lambda: is_running(ask, "shown"), True)
    _, text = await ask(
        "SELECT p.query_id, position(p.query, 'sipHash64') > 0 FROM `system`.processes AS p "
        "WHERE query_id = 'shown'"
    )
    assert text == "shown\t1\n"
    await ask("KILL QUERY WHERE query_id = 'shown' SYNC")
    await task


async def test_a_read_has_its_time(ask):
    begun = time.monotonic()
    code, _ = await ask(ENDLESS, max_execution_time="1")
    assert code == "159"
    assert time.monotonic() - begun < 10
    _, text = await ask("SELECT getSetting('max_execution_time')")
    assert text == "60\n"


async def test_a_read_has_its_memory(ask):
    code, _ = await ask(
        "SELECT groupArray(number) FROM numbers(100000000)", max_memory_usage=str(50 * 2**20)
    )
    assert code == "241"
    assert await ask("SELECT 1") == (None, "1\n")


async def test_inserts_are_quick_while_every_reader_is_busy(ask):
    await ask("CREATE TABLE IF NOT EXISTS busy (a UInt32) ENGINE = MergeTree ORDER BY a")
    readers = [asyncio.create_task(ask(ENDLESS, query_id=f"r{n}")) for n in range(10)]
    await until(lambda: is_running(ask, "r0"), True)
    times = []
    for n in range(20):
        begun = time.monotonic()
        assert (await ask("INSERT INTO busy FORMAT CSV", io.BytesIO(b"%d\n" % n)))[0] is None
        times.append(time.monotonic() - begun)
    for reader in readers:
        reader.cancel()
    await asyncio.wait(readers)
    assert sorted(times)[10] < 0.5, times
    assert (await ask("SELECT count() FROM busy"))[1] == "20\n"


async def test_too_many_reads_are_refused_at_once(ask):
    readers = [asyncio.create_task(ask(ENDLESS, query_id=f"m{n}")) for n in range(80)]
    done, waiting = await asyncio.wait(readers, timeout=5, return_when=asyncio.FIRST_COMPLETED)
    assert {task.result()[0] for task in done} == {"202"}
    for reader in waiting:
        reader.cancel()
    await asyncio.wait(readers)


async def test_an_insert_goes_on_when_its_client_is_gone(ask):
    await ask("DROP TABLE IF EXISTS slow")
    await ask(
        "CREATE TABLE slow (a UInt32, b UInt8 MATERIALIZED sleepEachRow(0.1)) "
        "ENGINE = MergeTree ORDER BY a"
    )
    data = io.BytesIO(b"".join(b"%d\n" % n for n in range(25)))
    task = asyncio.create_task(ask("INSERT INTO slow FORMAT CSV", data, query_id="ghost"))
    await until(lambda: is_running(ask, "ghost"), True)
    task.cancel()
    await asyncio.wait({task})
    await until(lambda: is_running(ask, "ghost"), False)
    assert (await ask("SELECT count() FROM slow"))[1] == "25\n"
