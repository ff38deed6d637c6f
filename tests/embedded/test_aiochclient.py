"""aiochclient, unchanged, against the embedded engine: each kind of request that it sends."""

from __future__ import annotations

import datetime as dt
import io

import aiohttp
import pytest
from aiochclient import ChClient
from aiochclient.exceptions import ChClientError


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
async def client(session, engine):
    client = ChClient(
        session,
        url=engine.url,
        user=engine.user,
        password=engine.password,
        database=engine.database,
    )
    await client.execute("DROP TABLE IF EXISTS points")
    await client.execute(
        "CREATE TABLE points (a Int64, b String, c Nullable(Float64), d DateTime) "
        "ENGINE = MergeTree ORDER BY a"
    )
    return client


async def test_it_is_alive(client):
    assert await client.is_alive()


async def test_a_wrong_password_is_not_alive(session, engine):
    assert not await ChClient(session, url=engine.url, user=engine.user, password="no").is_alive()


async def test_values_are_inserted_and_fetched(client):
    rows = [
        (1, "it's \\ a\ttab\n", 1.5, dt.datetime(2025, 1, 2, 3, 4, 5)),
        (2, "", None, dt.datetime(1999, 12, 31)),
    ]
    await client.execute("INSERT INTO points VALUES", *rows)
    fetched = await client.fetch("SELECT * FROM points ORDER BY a")
    assert [tuple(row.values()) for row in fetched] == rows


async def test_json_is_inserted_and_fetched(client):
    await client.execute(
        "INSERT INTO points (a, b) FORMAT JSONEachRow", {"a": 1, "b": "x"}, {"a": 2, "b": "y"}
    )
    fetched = await client.fetch("SELECT a, b FROM points ORDER BY a FORMAT JSONEachRow")
    assert [dict(row) for row in fetched] == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


@pytest.mark.parametrize("wrap", [bytes, io.BytesIO])
async def test_a_file_is_inserted(client, wrap):
    await client.insert_file("INSERT INTO points (a, b) FORMAT CSV", wrap(b"7,seven\n8,eight\n"))
    assert await client.fetchval("SELECT b FROM points WHERE a = 8") == "eight"


async def test_native_bytes_are_inserted(client):
    block = b"\x01\x02\x01a\x05Int64" + b"".join(n.to_bytes(8, "little") for n in (40, 41))
    await client.insert_file("INSERT INTO points (a) FORMAT Native", block)
    assert await client.fetchval("SELECT sum(a) FROM points") == 81


async def test_inserting_a_select(client):
    await client.execute("INSERT INTO points (a) SELECT number FROM numbers(10)")
    assert await client.fetchval("SELECT count() FROM points") == 10


async def test_rows_are_iterated(client):
    total = 0
    async for row in client.iterate("SELECT number AS n FROM numbers(100000)"):
        total += row["n"]
    assert total == sum(range(100_000))


async def test_an_empty_answer_has_its_header(client):
    assert await client.fetch("SELECT * FROM points") == []


async def test_parameters_query_id_and_settings(client, session, engine):
    assert await client.fetchval("SELECT {n}", params={"n": "a'b"}) == "a'b"
    assert await client.fetchval("SELECT 5", query_id="chosen") == 5
    other = ChClient(
        session, url=engine.url, user=engine.user, password=engine.password, max_block_size=9
    )
    assert await other.fetchval("SELECT getSetting('max_block_size')") == 9


async def test_describing_statements(client):
    assert await client.fetchval("EXISTS points") == 1
    assert "points" in [row[0] for row in await client.fetch("SHOW TABLES")]
    assert (await client.fetchrow("DESCRIBE TABLE points"))["name"] == "a"
    assert await client.fetch("EXPLAIN SELECT 1")


async def test_compression_may_be_asked_for(session, engine):
    client = ChClient(
        session,
        url=engine.url,
        user=engine.user,
        password=engine.password,
        compress_response=True,
    )
    assert await client.fetchval("SELECT 1") == 1


async def test_an_error_carries_the_engines_text(client):
    with pytest.raises(ChClientError, match=r"^Code: 60\. DB::Exception: .*\(UNKNOWN_TABLE\)"):
        await client.fetch("SELECT * FROM nowhere")
    with pytest.raises(ChClientError, match=r"^Code: 62\. DB::Exception: .*\(SYNTAX_ERROR\)"):
        await client.execute("SELEKT 1")
