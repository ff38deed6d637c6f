"""Inserts report every failure, and store all or nothing."""

from __future__ import annotations

import asyncio
import io

import aiohttp
import pytest

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
