"""One of several processes at a time, and the next one when that is gone."""

from __future__ import annotations

import asyncpg
import pytest

from catalog.addresses import parse_url
from catalog.engine import Database
from catalog.errors import Unavailable
from catalog.keys_notices import listen
from catalog.leadership import REAPER_LOCK, leading
from catalog.postgres import connect


async def test_of_two_that_try_at_once_one_leads_and_then_the_other_may(catalog):
    address = catalog.database.url
    async with leading(address, REAPER_LOCK) as first, leading(address, REAPER_LOCK) as second:
        assert (first, second) == (True, catalog.database.is_sqlite)
    async with leading(address, REAPER_LOCK) as again, leading(address, 5) as other:
        assert (again, other) == (True, True)


async def test_a_lost_connection_gives_the_lock_free(catalog):
    if catalog.database.is_sqlite:
        pytest.skip("SQLite has one server, and no lock")
    address = catalog.database.url
    admin = await connect(address)
    async with leading(address, REAPER_LOCK) as first:
        assert first
        await admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory' "
            "AND pid <> pg_backend_pid()"
        )
        async with leading(address, REAPER_LOCK) as second:
            assert second
    await admin.close()


async def test_without_postgres_nobody_leads(catalog):
    if catalog.database.is_sqlite:
        pytest.skip("a file is there")
    with pytest.raises(Unavailable):
        async with leading(catalog.database.url.set(port=1), REAPER_LOCK):
            pass


LOST = [
    asyncpg.ConnectionDoesNotExistError("closed in the middle"),
    asyncpg.InternalClientError("another operation is in progress"),
    asyncpg.InterfaceError("closed"),
    ConnectionResetError(),
    TimeoutError(),
]


@pytest.mark.parametrize("error", LOST, ids=lambda error: type(error).__name__)
async def test_a_connection_that_is_lost_within_a_call_is_a_database_that_is_away(
    error, postgres_server, monkeypatch
):
    """Whatever the driver calls it: no task ends for it, and no request is a defect."""

    async def lost(*_arguments, **_more):
        raise error

    url = postgres_server.url
    with monkeypatch.context() as patch:
        patch.setattr(asyncpg.Connection, "fetchval", lost)
        with pytest.raises(Unavailable):
            async with leading(parse_url(url), REAPER_LOCK):
                pass
    with monkeypatch.context() as patch:
        patch.setattr(asyncpg.Connection, "add_listener", lost)
        with pytest.raises(OSError):
            await listen(url, lambda: None)
    database = Database(url)
    for transaction in (database.read, database.write):
        with pytest.raises(Unavailable):
            async with transaction():
                raise error
    await database.close()


async def test_what_goes_wrong_in_a_leaders_work_is_its_own(postgres_server):
    with pytest.raises(KeyError):
        async with leading(parse_url(postgres_server.url), REAPER_LOCK):
            raise KeyError
