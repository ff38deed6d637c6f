"""One database, whichever of the two engines: its connections, and how transactions begin.

SQLite: several processes (workers, the command line) open the same file. Write-ahead journal, so
that readers never wait for a writer; `synchronous=FULL`, so that a commit survives a power cut; a
transaction that will write takes the write lock at its start (`BEGIN IMMEDIATE`), because one that
reads first and upgrades later fails at once, whatever the busy timeout, when another has written
in between. A process writes through one connection: its own writers then wait in the pool's queue,
first come first served, and only different processes meet at SQLite's lock, which is polled and
not fair.

Postgres: one pool; what SQLite gets from its write lock, queries there get from `FOR UPDATE`
(which SQLite's dialect leaves out).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import URL, Connection, Table, event, make_url
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from catalog.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from sqlalchemy.engine.interfaces import DBAPIConnection

BUSY_SECONDS_MAX = 10.0
"""How long SQLite waits for another process's write; one write takes milliseconds."""

POOL_WAIT_SECONDS_MAX = 5.0
READERS_MAX = 4
"""Connections of one process that only read; in SQLite each is a thread."""

_WRITER = "charon_is_writer"
_UNREACHABLE = "the catalogue's database cannot be used now; try again"


class Database:
    """Gives connections in a transaction; translates the drivers' failures into ours."""

    def __init__(self, url: str) -> None:
        self.url = parse_url(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        if self.is_sqlite:
            self._readers = _sqlite_engine(self.url, READERS_MAX)
            self._writers = _sqlite_engine(self.url, 1)
        else:
            self._readers = self._writers = _postgres_engine(self.url)
        self._file: tuple[int, int] | None = None
        """Device and inode of the SQLite file that the connections have open."""

    async def prepare(self) -> None:
        """Makes the SQLite file, for its owner only, and turns its write-ahead journal on.

        Raises:
            Unavailable: the file cannot be made or opened.
        """
        if not self.is_sqlite:
            return
        path = Path(self.url.database or "")
        try:
            await asyncio.to_thread(_prepare_file, path)
        except (sqlite3.Error, OSError) as error:
            raise Unavailable(f"the catalogue {path} cannot be opened: {error}") from error

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that only reads, and sees one state of the database.

        Raises:
            Unavailable: no connection could be had, or the database failed.
        """
        await self._see_file()
        with _translated():
            async with self._readers.connect() as connection:
                yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that may write; committed when the block ends well, else rolled back.

        Raises:
            Unavailable: no connection could be had, or the database failed.
            IntegrityError: a unique constraint; for the caller to read.
        Durability: after the block, what it wrote survives a power cut.
        Cancellation: rolled back, unless the commit was already on its way.
        """
        await self._see_file()
        with _translated():
            async with self._writers.connect() as connection:
                await connection.execution_options(**{_WRITER: True})
                async with connection.begin():
                    yield connection

    async def _see_file(self) -> None:
        """See that SQLite's file is still where it was.

        A file that is deleted lives on for those who have it open: runs would be made in it, and
        their ids given again after a restart. One that is put in its place is opened anew.

        Raises:
            Unavailable: it is gone.
        """
        if not self.is_sqlite:
            return
        try:
            found = os.stat(self.url.database or "")  # noqa: PTH116 - 2 us
        except OSError as error:
            if self._file is None:
                return  # none was opened yet: connecting says what is wrong
            raise Unavailable(_UNREACHABLE) from error
        file = (found.st_dev, found.st_ino)
        if self._file not in {None, file}:
            self._file = file
            await self.close()
        self._file = file

    def insert(self, table: Table) -> postgresql.Insert | sqlite.Insert:
        """An INSERT of this engine's dialect; both have the `on_conflict_…` clauses."""
        return sqlite.insert(table) if self.is_sqlite else postgresql.insert(table)

    async def close(self) -> None:
        """Closes every connection that is not in use."""
        await self._readers.dispose()
        if self._writers is not self._readers:
            await self._writers.dispose()


def parse_url(url: str) -> URL:
    """The address with its async driver: `postgres://` and `postgresql://` alike mean asyncpg.

    Raises:
        ValueError: neither a Postgres address nor a SQLite file. The message does not repeat the
        address: it
            may hold a password.
    """
    try:
        parsed = make_url(url)
    except Exception as error:
        raise ValueError("the catalogue's database address cannot be read") from error
    match parsed.get_backend_name():
        case "sqlite" if parsed.database and parsed.database != ":memory:":
            return parsed.set(drivername="sqlite+aiosqlite")
        case "postgresql" | "postgres":
            return parsed.set(drivername="postgresql+asyncpg")
        case _:
            raise ValueError(
                "the catalogue's database must be postgresql://… or a file, sqlite:///path/to/catalog.sqlite"
            )


def sqlite_url(path: Path) -> str:
    """The address of a catalogue in a SQLite file."""
    return URL.create("sqlite+aiosqlite", database=str(path)).render_as_string()


def _sqlite_engine(url: URL, connections: int) -> AsyncEngine:
    engine = create_async_engine(
        url,
        pool_size=connections,
        max_overflow=0,
        pool_timeout=POOL_WAIT_SECONDS_MAX,
        connect_args={"timeout": BUSY_SECONDS_MAX},
        hide_parameters=True,
    )
    event.listen(engine.sync_engine, "connect", _set_pragmas)
    event.listen(engine.sync_engine, "begin", _begin)
    return engine


def _postgres_engine(url: URL) -> AsyncEngine:
    return create_async_engine(
        url,
        pool_size=10,
        max_overflow=0,
        pool_timeout=1.0,  # an exhausted pool is a quick 503, not a queue without end
        pool_pre_ping=True,
        connect_args={
            "timeout": 5.0,
            # Behind pgbouncer in transaction mode a prepared statement may be another's.
            "statement_cache_size": 0,
        },
        hide_parameters=True,
    )


def _set_pragmas(connection: DBAPIConnection, _record: object) -> None:
    # The driver begins nothing by itself; _begin does.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _begin(connection: Connection) -> None:
    is_writer = connection.get_execution_options().get(_WRITER, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writer else "BEGIN")


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except IntegrityError:
        raise
    except DBAPIError as error:
        raise Unavailable(_UNREACHABLE) from error
    except (PoolTimeoutError, OSError, TimeoutError) as error:
        raise Unavailable(_UNREACHABLE) from error


def _prepare_file(path: Path) -> None:
    """Blocking. The journal mode is a property of the file: set once, not for each connection."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    deadline = time.monotonic() + BUSY_SECONDS_MAX
    while True:
        try:
            with contextlib.closing(sqlite3.connect(path, timeout=BUSY_SECONDS_MAX)) as connection:
                connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError:
            # Changing the mode needs the file for oneself, and is refused at once when another
            # process does the same.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return
