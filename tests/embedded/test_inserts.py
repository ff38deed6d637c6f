"""Inserts report every failure, and store all or nothing."""

from __future__ import annotations

import array
import asyncio
import io

import aiohttp
import pytest

from schema.insert import INSERT_SETTINGS

SETTINGS = {
    "insert_deduplicate": "1",
    "deduplicate_insert": "enable",
    "async_insert": "0",
    "max_insert_threads": "1",
    "optimize_on_insert": "0",
    "max_partitions_per_insert_block": "0",
}


@pytest.fixture
async def http():
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def ask(http, engine):
    async def ask(sql, data=b"", **params):
        headers = {"X-ClickHouse-User": engine.user, "X-ClickHouse-Key": engine.password}
        async with http.post(
            engine.url, params={"query": sql, **params}, data=data, headers=headers
        ) as answer:
            return (
                answer.status,
                answer.headers.get("X-ClickHouse-Exception-Code"),
                (await answer.text()),
            )

    return ask


@pytest.fixture
async def table(ask):
    await ask("DROP TABLE IF EXISTS rows SYNC")
    status, _, text = await ask(
        "CREATE TABLE rows (a UInt32, b String, CONSTRAINT small CHECK a < 1000) "
        "ENGINE = MergeTree ORDER BY a SETTINGS non_replicated_deduplication_window = 100"
    )
    assert status == 200, text
    return "rows"


async def count(ask):
    return int((await ask("SELECT count() FROM rows"))[2])


async def test_a_violated_constraint_is_469_and_stores_nothing(ask, table):
    status, code, text = await ask(f"INSERT INTO {table} FORMAT CSV", b"1,x\n5000,y\n")
    assert (status, code) == (500, "469")
    assert "VIOLATED_CONSTRAINT" in text
    assert await count(ask) == 0


async def test_an_unknown_table_is_60(ask):
    assert (await ask("INSERT INTO nowhere FORMAT CSV", b"1\n"))[:2] == (404, "60")


async def test_an_unknown_database_is_81(ask):
    assert (await ask("INSERT INTO nowhere.t FORMAT CSV", b"1\n"))[:2] == (404, "81")


async def test_an_unknown_column_is_16(ask, table):
    assert (await ask(f"INSERT INTO {table} (zz) FORMAT CSV", b"1\n"))[1] == "16"


@pytest.mark.parametrize(
    ("form", "data"),
    [
        ("CSV", b"x,y\n"),
        ("JSONEachRow", b'{"a": "x"}\n'),
        ("Native", b"\x02\x01"),
        ("Native", b"\x01\x05\x01a\x06UInt32\x00"),
        ("Values", b"(1, 'unclosed)"),
        ("RowBinary", b"\x01"),
    ],
)
async def test_data_that_does_not_parse_is_an_error_and_stores_nothing(ask, table, form, data):
    status, code, text = await ask(f"INSERT INTO {table} FORMAT {form}", data)
    assert status >= 400, text
    assert code is not None
    assert await count(ask) == 0


async def test_an_unknown_format_is_73(ask, table):
    assert (await ask(f"INSERT INTO {table} FORMAT Nope", b"1\n"))[1] == "73"


async def test_an_unknown_setting_is_115(ask, table):
    status, code, _ = await ask(f"INSERT INTO {table} FORMAT CSV", b"1,x\n", no_such_setting="1")
    assert (status, code) == (404, "115")
    assert await count(ask) == 0


async def test_too_many_parts_is_252(ask):
    await ask("DROP TABLE IF EXISTS crowded SYNC")
    await ask(
        "CREATE TABLE crowded (a UInt32) ENGINE = MergeTree ORDER BY a "
        "SETTINGS parts_to_throw_insert = 1, parts_to_delay_insert = 1, max_delay_to_insert = 0"
    )
    await ask("SYSTEM STOP MERGES crowded")
    codes = [(await ask("INSERT INTO crowded FORMAT CSV", b"1\n"))[1] for _ in range(4)]
    assert "252" in codes
    stored = int((await ask("SELECT count() FROM crowded"))[2])
    assert stored == codes.count(None)


async def test_too_little_memory_is_241_and_stores_nothing(ask, table):
    data = b"".join(b"%d,%s\n" % (n % 1000, b"x" * 200) for n in range(50_000))
    status, code, _ = await ask(
        f"INSERT INTO {table} FORMAT CSV", io.BytesIO(data), max_memory_usage=str(2**20)
    )
    assert (status, code) == (500, "241")
    assert await count(ask) == 0


async def test_a_failing_view_is_an_error(ask, table):
    await ask("DROP VIEW IF EXISTS broken")
    await ask(
        "CREATE MATERIALIZED VIEW broken ENGINE = MergeTree ORDER BY a "
        f"AS SELECT throwIf(a = 7) AS t, a FROM {table}"
    )
    try:
        assert (await ask(f"INSERT INTO {table} FORMAT CSV", b"7,x\n"))[1] == "395"
    finally:
        await ask("DROP VIEW broken")


async def test_the_same_token_stores_once(ask, table):
    params = {**SETTINGS, "insert_deduplication_token": "one"}
    for _ in range(3):
        assert (await ask(f"INSERT INTO {table} FORMAT CSV", b"1,x\n2,y\n", **params))[0] == 200
    assert await count(ask) == 2
    params["insert_deduplication_token"] = "two"
    await ask(f"INSERT INTO {table} FORMAT CSV", b"1,x\n2,y\n", **params)
    assert await count(ask) == 4


async def test_inserts_are_synchronous_by_default(ask, table):
    assert (await ask("SELECT getSetting('async_insert')"))[2] == "false\n"
    await ask(f"INSERT INTO {table} FORMAT CSV", b"1,x\n")
    assert await count(ask) == 1


async def test_an_insert_without_data_stores_nothing(ask, table):
    status, code, _ = await ask(f"INSERT INTO {table} FORMAT CSV")
    assert (status, code, await count(ask)) == (200, None, 0)


async def test_values_in_the_url_and_in_the_body_are_one(ask, table):
    assert (await ask(f"INSERT INTO {table} VALUES (1, 'a'),", b"(2, 'b')"))[0] == 200
    assert await count(ask) == 2


async def test_a_body_that_ends_early_is_never_inserted(ask, table, engine):
    reader, writer = await asyncio.open_connection("127.0.0.1", engine.port)
    writer.write(
        f"POST /?query=INSERT+INTO+{table}+FORMAT+CSV HTTP/1.1\r\nHost: x\r\n"
        f"X-ClickHouse-User: {engine.user}\r\nX-ClickHouse-Key: {engine.password}\r\n"
        "Content-Length: 100\r\n\r\n1,x\n2,y\n".encode()
    )
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert await reader.read() == b""
    assert (await ask(f"INSERT INTO {table} FORMAT CSV", b"9,z\n"))[0] == 200
    assert await count(ask) == 1


async def test_forty_inserts_at_once_are_all_there(ask, table):
    answers = await asyncio.gather(
        *(ask(f"INSERT INTO {table} FORMAT CSV", f"{n},x\n".encode()) for n in range(40))
    )
    assert {status for status, _, _ in answers} == {200}
    assert await count(ask) == 40


async def test_a_million_rows_become_one_part_and_a_retry_adds_nothing(ask):
    await ask("DROP TABLE IF EXISTS big SYNC")
    await ask(
        "CREATE TABLE big (a UInt64, k UInt8) ENGINE = ReplacingMergeTree ORDER BY a "
        "SETTINGS non_replicated_deduplication_window = 100"
    )
    await ask("SYSTEM STOP MERGES big")
    rows = 1_000_000
    count = bytes((rows & 127 | 128, rows >> 7 & 127 | 128, rows >> 14))
    numbers = array.array("Q", range(rows)).tobytes()
    block = b"\x02" + count + b"\x01a\x06UInt64" + numbers + b"\x01k\x05UInt8" + bytes(rows)
    settings = {name: str(value) for name, value in INSERT_SETTINGS.items()}
    for _ in range(2):
        code = (
            await ask(
                "INSERT INTO big (a, k) FORMAT Native",
                io.BytesIO(block),
                insert_deduplication_token="whole",
                **settings,
            )
        )[1]
        assert code is None
    parts = "SELECT count(), sum(rows) FROM system.parts WHERE table = 'big' AND active"
    assert (await ask(parts))[2] == "1\t1000000\n"


async def slow_table(ask):
    await ask("DROP TABLE IF EXISTS slow SYNC")
    await ask(
        "CREATE TABLE slow (a UInt32, b UInt8 MATERIALIZED sleepEachRow(0.1)) "
        "ENGINE = MergeTree ORDER BY a"
    )


async def until_running(ask, query_id):
    sql = f"SELECT count() FROM system.processes WHERE query_id = '{query_id}'"
    async with asyncio.timeout(20):
        while (await ask(sql))[2] != "1\n":
            await asyncio.sleep(0.01)


def some(rows):
    return io.BytesIO(b"".join(b"%d\n" % n for n in range(rows)))


async def test_a_killed_insert_is_394_and_stores_nothing(ask):
    await slow_table(ask)
    task = asyncio.create_task(ask("INSERT INTO slow FORMAT CSV", some(25), query_id="doomed"))
    await until_running(ask, "doomed")
    await ask("KILL QUERY WHERE query_id = 'doomed' SYNC")
    assert (await task)[1] == "394"
    assert (await ask("SELECT count() FROM slow"))[2] == "0\n"


async def test_an_insert_that_waits_its_turn_is_not_said_to_be_gone(ask):
    """A lost answer is settled by asking `system.processes`: "no" must mean that it never lands."""
    await slow_table(ask)
    holders = [
        asyncio.create_task(ask("INSERT INTO slow FORMAT CSV", some(5), query_id=f"h{n}"))
        for n in range(2)
    ]
    for n in range(2):
        await until_running(ask, f"h{n}")
    late = asyncio.create_task(ask("INSERT INTO slow FORMAT CSV", some(5), query_id="late"))
    await ask("SELECT 1")  # by now it has been read
    await asyncio.sleep(0.05)
    late.cancel()
    await asyncio.wait({late})
    seen = (await ask("SELECT 1 FROM system.processes WHERE query_id = 'late' LIMIT 1"))[2]
    stored = int((await ask("SELECT count() FROM slow"))[2])
    assert seen == "1\n" or stored == 15
    await asyncio.wait(holders)


async def test_a_kill_reaches_an_insert_that_waits_its_turn(ask):
    await slow_table(ask)
    holders = [
        asyncio.create_task(ask("INSERT INTO slow FORMAT CSV", some(5), query_id=f"k{n}"))
        for n in range(2)
    ]
    for n in range(2):
        await until_running(ask, f"k{n}")
    late = asyncio.create_task(ask("INSERT INTO slow FORMAT CSV", some(5), query_id="later"))
    await ask("SELECT 1")
    await asyncio.sleep(0.05)
    await ask("KILL QUERY WHERE query_id = 'later' ASYNC FORMAT Null")
    assert (await late)[1] == "394"
    await asyncio.wait(holders)
    assert (await ask("SELECT count() FROM slow"))[2] == "10\n"
