"""One of several processes at a time, and the next one when that is gone."""

from __future__ import annotations

import pytest

from catalog.errors import Unavailable
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
