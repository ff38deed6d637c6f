"""Migrations of the catalogue's tables, run from within: no command line, no configuration file.

One transaction holds all revisions that are missing, and the lock that makes a second process wait
for it: SQLite's write lock, or an advisory lock in Postgres. Both engines take DDL in
transactions, so an upgrade is there as a whole or not at all.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, event, pool, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from catalog.errors import NewerDatabase, Unavailable

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import DBAPIConnection

VERSION_TABLE = "charon_catalog_version"
LOCK_SECONDS_MAX = 60.0
_ADVISORY_LOCK = 0x43_68_61_72_6F_6E  # "Charon"


async def upgrade(url: URL) -> list[str]:
    """Applies what is missing.

    Returns: names of the applied revisions, oldest first.

    Raises:
        NewerDatabase: the database is at a revision that this release does not know.
        Unavailable: the database cannot be used, or another process held the lock for a minute.
    """
    is_sqlite = url.get_backend_name() == "sqlite"
    # An engine of its own: one connection, a long wait for the lock, and no foreign keys, as
    # SQLite changes a table by building it anew and dropping the old one.
    engine = _sqlite_engine(url) if is_sqlite else _postgres_engine(url)
    if is_sqlite:
        event.listen(engine.sync_engine, "connect", _manual_transactions)
        event.listen(engine.sync_engine, "begin", _begin_immediate)
    try:
        async with engine.begin() as connection:
            if not is_sqlite:
                await connection.execute(
                    text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK}
                )
            return await connection.run_sync(_upgrade)
    except (DBAPIError, OSError) as error:
        raise Unavailable(
            f"the catalogue's tables cannot be brought up to date: {_reason(error)}"
        ) from error
    finally:
        await engine.dispose()


async def see_release(url: URL) -> None:
    """See that this release knows the database's revision; reads alone.

    Raises:
        NewerDatabase, Unavailable: as `upgrade`.
    """
    engine = _sqlite_engine(url) if url.get_backend_name() == "sqlite" else _postgres_engine(url)
    try:
        async with engine.connect() as connection:
            await connection.run_sync(lambda sync: _missing(sync, _scripts(_config())))
    except (DBAPIError, OSError) as error:
        raise Unavailable(f"the catalogue's revision cannot be read: {_reason(error)}") from error
    finally:
        await engine.dispose()


def _sqlite_engine(url: URL) -> AsyncEngine:
    return create_async_engine(
        url,
        poolclass=pool.NullPool,
        connect_args={"timeout": LOCK_SECONDS_MAX},
        hide_parameters=True,
    )


def _postgres_engine(url: URL) -> AsyncEngine:
    from catalog import postgres  # noqa: PLC0415 - its driver is not for those with SQLite

    return postgres.engine(url, 0, seconds=LOCK_SECONDS_MAX)


def head() -> str:
    """The newest revision that this release knows."""
    newest = _scripts(_config()).get_current_head()
    assert newest is not None
    return newest


def _upgrade(connection: Connection) -> list[str]:
    config = _config()
    missing = _missing(connection, _scripts(config))
    if missing:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
    return missing


def _missing(connection: Connection, scripts: ScriptDirectory) -> list[str]:
    current = _current(connection)
    known = [script.revision for script in scripts.walk_revisions()][::-1]
    if current is not None and current not in known:
        raise NewerDatabase(
            f"the catalogue is at revision {current!r}, "
            f"and this release knows only up to {known[-1]!r}: "
            "a newer Charon has upgraded it. Install that release again, or restore a copy made "
            "before the upgrade."
        )
    return known if current is None else known[known.index(current) + 1 :]


def _current(connection: Connection) -> str | None:
    return MigrationContext.configure(
        connection, opts={"version_table": VERSION_TABLE}
    ).get_current_revision()


def _config() -> Config:
    config = Config()
    config.set_main_option(
        "script_location", str(Path(__file__).parent / "migrations").replace("%", "%%")
    )
    config.set_main_option("path_separator", "os")
    return config


def _scripts(config: Config) -> ScriptDirectory:
    return ScriptDirectory.from_config(config)


def _manual_transactions(connection: DBAPIConnection, _record: object) -> None:
    connection.isolation_level = None


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _reason(error: Exception) -> str:
    return str(error.orig) if isinstance(error, DBAPIError) else error.__class__.__name__
