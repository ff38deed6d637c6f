"""Postgres behind a pooler, without a free connection, stopped, and gone silent (F37, F38)."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import AsyncExitStack

import psutil
import pytest
from sqlalchemy import text

from catalog import Catalog, Unavailable
from catalog.addresses import parse_url
from catalog.engine import ATTEMPTS_MAX, READ_WAIT_SECONDS_MAX, READERS_MAX
from catalog.errors import Broken, Interrupted
from catalog.postgres import connect
from catalog.run_creation import NewRun
from tests.pooler import pooler
from tests.postgres import PostgresServer


@pytest.fixture
async def catalog(postgres_url):
    catalog = await Catalog.open(postgres_url)
    await catalog.upgrade()
    yield catalog
    await catalog.close()


async def test_fifty_look_ups_at_once_go_through_a_pooler_in_transaction_mode(postgres_url):
    with pooler(postgres_url, connections=2) as address:
        catalogs = [await Catalog.open(address, direct_url=postgres_url) for _ in range(3)]
        first = catalogs[0]
        await first.upgrade()
        tenant = (await first.organisations.create("Acme")).id
        lookups = [f"{n:064x}" for n in range(50)]
        async with first.database.write() as connection:
            for lookup in lookups:
                await connection.execute(
                    text(
                        "INSERT INTO charon_api_keys (id, lookup, prefix, name, organisation_id,"
                        " created_at_ms) VALUES (:lookup, :lookup, 'p', 'n', :tenant, 1)"
                    ),
                    {"lookup": lookup, "tenant": tenant},
                )
        for _ in range(3):
            found = await asyncio.gather(
                *(catalogs[n % 3].keys.find(lookup) for n, lookup in enumerate(lookups))
            )
            assert [record.id for record in found] == lookups
        opened = await asyncio.gather(
            *(one.runs.create(tenant, NewRun("r", "p")) for one in catalogs for _ in range(4))
        )
        assert sorted(one.run.number for one in opened) == list(range(1, 13))
        for one in catalogs:
            await one.close()


async def test_a_request_without_a_free_connection_is_told_so_within_a_second(catalog):
    async with AsyncExitStack() as stack:
        for _ in range(READERS_MAX):
            await stack.enter_async_context(catalog.database.read())
        begun = time.monotonic()
        attempts = (catalog.keys.find("x") for _ in range(100))
        outcomes = await asyncio.gather(*attempts, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {Unavailable}
        # Far from the 60 s that the holders might take; the machine may be slow.
        assert time.monotonic() - begun < 10 * READ_WAIT_SECONDS_MAX
    assert await catalog.keys.find("x") is None


async def test_writers_that_wait_for_each_other_hold_up_no_look_up(catalog):
    tenant = (await catalog.organisations.create("Acme")).id
    await catalog.runs.create(tenant, NewRun("r", "p"))
    async with catalog.database.write() as connection:
        await connection.execute(text("UPDATE charon_projects SET updated_at_ms = 0"))
        creating = [
            asyncio.create_task(catalog.runs.create(tenant, NewRun("r", "p"))) for _ in range(20)
        ]
        await asyncio.sleep(0)
        assert await catalog.keys.find("x") is None
    # Those that found no connection are told to come again; the others made their runs.
    outcomes = await asyncio.gather(*creating, return_exceptions=True)
    assert {type(outcome).__name__ for outcome in outcomes} <= {"OpenedRun", "Unavailable"}


async def test_the_next_request_after_a_restart_of_postgres_works():
    with PostgresServer.running() as server:
        catalog = await Catalog.open(server.url)
        await catalog.upgrade()
        tenant = (await catalog.organisations.create("Acme")).id
        await asyncio.gather(*(catalog.runs.create(tenant, NewRun("r", "p")) for _ in range(4)))
        for crash in (False, True):
            server.stop(crash=crash)
            with pytest.raises(Unavailable):
                await catalog.keys.find("x")
            with pytest.raises(Unavailable):
                await catalog.runs.create(tenant, NewRun("r", "p"))
            server.start()
            assert await catalog.keys.find("x") is None
            await catalog.runs.create(tenant, NewRun("r", "p"))
        await catalog.close()


async def test_a_postgres_that_is_silent_is_told_from_and_used_again_when_it_speaks(monkeypatch):
    monkeypatch.setattr("catalog.postgres.IDLE_SECONDS_MAX", 0.0)
    with PostgresServer.running() as server:
        catalog = await Catalog.open(server.url)
        await catalog.upgrade()
        await catalog.keys.find("x")
        processes = server.processes()
        for process in processes:
            process.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(Unavailable):
                await asyncio.wait_for(catalog.keys.find("x"), 10 * READ_WAIT_SECONDS_MAX)
        finally:
            for process in processes:
                process.send_signal(signal.SIGCONT)
        assert await catalog.keys.find("x") is None
        await catalog.close()


async def test_of_two_transactions_that_block_each_other_the_one_that_is_ended_runs_again(catalog):
    tenants = [(await catalog.organisations.create(name)).id for name in ("One", "Two")]
    both_hold_one = asyncio.Barrier(2)
    attempts = 0

    def renaming(first, second):
        is_first_attempt = True

        async def work(connection):
            nonlocal attempts, is_first_attempt
            attempts += 1
            for tenant in (first, second):
                await connection.execute(
                    text("UPDATE charon_organisations SET name = name || '+' WHERE id = :id"),
                    {"id": tenant},
                )
                if is_first_attempt and tenant == first:
                    is_first_attempt = False
                    await both_hold_one.wait()

        return work

    await asyncio.gather(
        catalog.database.transact(renaming(*tenants)),
        catalog.database.transact(renaming(*tenants[::-1])),
    )
    assert attempts == 3
    assert sorted(one.name for one in await catalog.organisations.list()) == ["One++", "Two++"]


async def test_a_transaction_that_is_always_interrupted_ends_after_so_many_attempts(catalog):
    attempts = 0

    async def work(connection):
        nonlocal attempts
        attempts += 1
        await connection.execute(
            text("DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '40001'; END $$")
        )

    with pytest.raises(Interrupted):
        await catalog.database.transact(work)
    assert attempts == ATTEMPTS_MAX


async def test_a_transaction_whose_connection_is_cut_runs_again(catalog):
    attempts = 0

    async def work(connection):
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            await connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
        return (await connection.execute(text("SELECT 7"))).scalar_one()

    assert await catalog.database.transact(work) == 7
    assert attempts == 2


async def test_a_statement_that_no_repetition_helps_is_no_outage(catalog):
    with pytest.raises(Broken, match="SQLSTATE 22"):
        async with catalog.database.read() as connection:
            await connection.execute(text("SELECT 1 / 0"))


async def test_an_address_may_hold_what_libpq_and_prisma_put_there(postgres_url):
    address = f"{postgres_url}?sslmode=disable&schema=public&connection_limit=5&pgbouncer=true"
    catalog = await Catalog.open(address)
    await catalog.upgrade()
    assert await catalog.keys.find("x") is None
    async with catalog.database.read() as connection:
        name = (await connection.execute(text("SHOW application_name"))).scalar_one()
    assert name == "charon"
    await catalog.close()
    connection = await connect(parse_url(address))
    assert await connection.fetchval("SHOW search_path") == "public"
    await connection.close()


def test_postgres_runs_without_rights(postgres_server):
    if os.geteuid() != 0:
        pytest.skip("of tests that run as root")
    owners = {psutil.Process(process.pid).uids().real for process in postgres_server.processes()}
    assert owners
    assert 0 not in owners
