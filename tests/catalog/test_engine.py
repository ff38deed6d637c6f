from __future__ import annotations

import sqlite3

import pytest
from sqlalchemy import text

from catalog import Catalog, Unavailable, sqlite_url
from catalog.addresses import parse_url


async def test_a_writer_that_fails_leaves_nothing_behind(tenant, new_run):
    class Stop(Exception):
        pass

    async def fail() -> None:
        async with tenant.catalog.database.write() as connection:
            await connection.execute(text("DELETE FROM charon_organisations"))
            raise Stop

    with pytest.raises(Stop):
        await fail()
    assert len(await tenant.catalog.organisations.list()) == 2


async def test_readers_do_not_wait_for_a_writer(tenant):
    if not tenant.catalog.database.is_sqlite:
        pytest.skip("of SQLite")
    async with tenant.catalog.database.write() as connection:
        await connection.execute(text("DELETE FROM charon_organisations"))
        assert len(await tenant.catalog.organisations.list()) == 2
        await connection.rollback()


async def test_a_database_that_stays_busy_is_unavailable_and_recovers(tmp_path, monkeypatch):
    monkeypatch.setattr("catalog.engine.BUSY_SECONDS_MAX", 0.1)
    path = tmp_path / "catalog.sqlite"
    catalog = await Catalog.open(sqlite_url(path))
    await catalog.upgrade()
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable) as refusal:
        await catalog.organisations.create("Acme")
    assert str(path) not in str(refusal.value)
    holder.execute("ROLLBACK")
    holder.close()
    await catalog.organisations.create("Acme")
    await catalog.close()


async def test_a_postgres_that_is_not_there_is_unavailable_and_tells_no_password(unused_tcp_port):
    catalog = await Catalog.open(f"postgres://me:secret@127.0.0.1:{unused_tcp_port}/nothing")
    for attempt in (catalog.keys.find("x"), catalog.upgrade()):
        with pytest.raises(Unavailable) as refusal:
            await attempt
        assert "secret" not in str(refusal.value)
    await catalog.close()


async def test_a_file_that_cannot_be_made_is_unavailable(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="cannot be opened"):
        await Catalog.open(sqlite_url(tmp_path / "file" / "catalog.sqlite"))


@pytest.mark.parametrize(
    "url", ["nonsense", "mysql://me:secret@host/db", "sqlite://", "sqlite:///:memory:"]
)
def test_an_address_that_is_no_database_of_ours_is_refused_without_being_repeated(url):
    with pytest.raises(ValueError, match="catalogue") as refusal:
        parse_url(url)
    assert "secret" not in str(refusal.value)


def test_addresses_get_their_async_driver():
    assert parse_url("postgres://h/d").drivername == "postgresql+asyncpg"
    assert parse_url("postgresql://h/d").drivername == "postgresql+asyncpg"
    assert parse_url("sqlite:////tmp/x").drivername == "sqlite+aiosqlite"
