from __future__ import annotations

import asyncio
import stat
import subprocess
import sys

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import select, text

from catalog import Catalog, upgrades
from catalog.errors import NewerDatabase, Unavailable
from catalog.postgres import connect
from catalog.tables import api_keys, metadata
from catalog.upgrades import VERSION_TABLE, head


async def test_an_upgrade_applies_what_is_missing_and_then_nothing(url):
    catalog = await Catalog.open(url)
    with pytest.raises(Unavailable):
        await catalog.keys.find("x")
    assert (await catalog.upgrade())[-1] == head()
    assert await catalog.upgrade() == []
    assert await catalog.keys.find("x") is None
    await catalog.close()


async def test_upgrades_at_once_apply_each_revision_once(url):
    catalogs = [await Catalog.open(url) for _ in range(4)]
    applied = await asyncio.gather(*(catalog.upgrade() for catalog in catalogs))
    assert sorted(map(len, applied)) == [0, 0, 0, int(head())]
    for catalog in catalogs:
        await catalog.close()


async def test_a_newer_database_is_refused_and_left_alone(url):
    catalog = await Catalog.open(url)
    await catalog.upgrade()
    await catalog.see_release()
    async with catalog.database.write() as connection:
        await connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    for ask in (catalog.upgrade, catalog.see_release):
        with pytest.raises(NewerDatabase, match=r"'9999'.*newer Charon"):
            await ask()
    await catalog.close()


async def _upgrade_to(revision, catalog, monkeypatch):
    whole = upgrades.command.upgrade
    with monkeypatch.context() as patch:
        patch.setattr(upgrades.command, "upgrade", lambda config, _: whole(config, revision))
        await catalog.upgrade()


async def test_an_upgrade_keeps_what_is_there(url, monkeypatch):
    catalog = await Catalog.open(url)
    await _upgrade_to("0001", catalog, monkeypatch)
    async with catalog.database.write() as connection:
        for statement in (
            "INSERT INTO charon_organisations VALUES ('o', 'Acme', 'acme', 1)",
            "INSERT INTO charon_api_keys VALUES ('k', 'hash', 'mlps_abc', 'mine', 'o', 1, 2, NULL)",
            "INSERT INTO charon_projects VALUES (7, 'o', 'p', 'PRO', 3, 1, 1)",
            """INSERT INTO charon_runs (id, organisation_id, project_id, number, name, status,
                tags, created_at_ms, updated_at_ms)
                VALUES (9, 'o', 7, 3, 'r', 'RUNNING', '[]', 1, 1)""",
        ):
            await connection.execute(text(statement))
    assert (await catalog.upgrade())[0] == "0002"
    async with catalog.database.read() as connection:
        key = (await connection.execute(select(api_keys))).one()
        names = (await connection.execute(text("SELECT name FROM charon_runs"))).scalars().all()
    assert (key.lookup, key.expires_at_ms) == ("hash", 2)
    assert (key.scopes, key.last_used_at_ms, key.rotated_from) == ("ingest,read,admin", None, None)
    assert names == ["r"]
    await catalog.close()


async def test_every_change_of_a_key_is_announced_in_postgres_but_its_last_use(catalog):
    if catalog.database.is_sqlite:
        pytest.skip("SQLite has no channels: its one server asks again")
    heard: list[str] = []
    listener = await connect(catalog.direct_url)
    await listener.add_listener("charon_keys", lambda *found: heard.append(found[-1]))
    organisation = (await catalog.organisations.create("Acme")).id
    insert = (
        "INSERT INTO charon_api_keys (id, lookup, prefix, name, organisation_id, created_at_ms)"
        f" VALUES ('k', 'one', 'p', 'n', '{organisation}', 1)"
    )
    for statement in (
        insert,
        "UPDATE charon_api_keys SET last_used_at_ms = 5",
        "UPDATE charon_api_keys SET revoked_at_ms = 6",
        "UPDATE charon_api_keys SET lookup = 'two', last_used_at_ms = 7",
        "DELETE FROM charon_api_keys",
    ):
        async with catalog.database.write() as connection:
            await connection.execute(text(statement))
    await listener.execute("NOTIFY charon_keys, 'end'")
    assert heard == ["one", "one", "two", "one", "two", "end"]
    await listener.close()


async def test_the_migrations_make_the_tables_that_the_queries_see(catalog):
    def differences(connection) -> list:
        options = {"version_table": VERSION_TABLE, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        return compare_metadata(context, metadata)

    async with catalog.database.read() as connection:
        assert await connection.run_sync(differences) == []


async def test_ids_are_never_given_twice(catalog):
    if not catalog.database.is_sqlite:
        pytest.skip("sequences in Postgres never go back")
    async with catalog.database.read() as connection:
        query = "SELECT name FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%'"
        counted = set((await connection.execute(text(query))).scalars())
    assert counted == {
        "charon_projects",
        "charon_runs",
        "charon_run_events",
        "charon_alerts",
        "charon_run_triggers",
    }


async def test_a_sqlite_file_is_its_owners_alone_and_its_commits_are_synced(catalog):
    if not catalog.database.is_sqlite:
        pytest.skip("of a file")
    path = catalog.database.url.database
    with open(path, "rb") as file:
        assert stat.S_IMODE(__import__("os").fstat(file.fileno()).st_mode) == 0o600
    for access in (catalog.database.read, catalog.database.write):
        async with access() as connection:
            pragmas = ("journal_mode", "synchronous", "foreign_keys")
            found = [
                (await connection.execute(text(f"PRAGMA {name}"))).scalar_one() for name in pragmas
            ]
        assert found == ["wal", 2, 1]


def test_opening_a_catalogue_does_not_load_alembic():
    code = "import sys, catalog; sys.exit('alembic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
