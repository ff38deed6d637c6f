"""One database, whichever of the two engines: its connections, and how transactions begin.

SQLite: several processes (workers, the command line) open the same file. Write-ahead journal, so
that readers never wait for a writer; `synchronous=FULL`, so that a commit survives a power cut; a
transaction that will write takes the write lock at its start (`BEGIN IMMEDIATE`), because one that
reads first and upgrades later fails at once, whatever the busy timeout, when another has written
in between. A process writes through one connection: its own writers then wait in the pool's queue,
first come first served, and only different processes meet at SQLite's lock, which is polled and
not fair.

Postgres: what SQLite gets from its write lock, queries there get from row locks (`FOR UPDATE`,
which SQLite's dialect leaves out). Readers have connections of their own: writers who wait for
each other's locks hold up no look-up of a key. See `catalog.postgres`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import sqlite3
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sqlalchemy import URL, Connection, Table, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from catalog.addresses import parse_url
from catalog.errors import Broken, Interrupted, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from sqlalchemy.engine.interfaces import DBAPIConnection

__all__ = ["Database", "parse_url"]

BUSY_SECONDS_MAX = 10.0
"""How long SQLite waits for another process's write; one write takes milliseconds."""

READ_WAIT_SECONDS_MAX = 1.0
"""For a connection, pooled or new; then the caller is told to come again. A queue without end would
hold requests that nobody waits for any more."""
WRITE_WAIT_SECONDS_MAX = 5.0
"""The same for one that writes: a job's thousand ranks open its run at the same time."""
READERS_MAX = 4
"""Connections of one process that only read; in SQLite each is a thread."""
WRITERS_MAX = 6
"""The same of those that write, in Postgres."""
ATTEMPTS_MAX = 5
"""Of a transaction that others interrupt."""

_WRITER = "charon_is_writer"
_UNREACHABLE = "the catalogue's database cannot be used now; try again"
_CONTENTION = frozenset({"40001", "40P01"})
"""SQLSTATE of a serialization failure and a deadlock: nothing was written, and once more helps."""
_OURS = ("22", "54")
"""Classes of SQLSTATE that no repetition helps: a value out of range, one above a limit."""

T = TypeVar("T")


class Database:
    """Gives connections in a transaction; translates the drivers' failures into ours."""

    def __init__(self, url: str) -> None:
        self.url = parse_url(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        if self.is_sqlite:
            self._readers = _sqlite_engine(self.url, READERS_MAX)
            self._writers = _sqlite_engine(self.url, 1)
        else:
            from catalog import postgres  # noqa: PLC0415 - its driver is not for those with SQLite

            # A reader sees one state of the database, however many statements it takes.
            self._readers = postgres.engine(
                self.url, READERS_MAX, isolation_level="REPEATABLE READ"
            )
            self._writers = postgres.engine(self.url, WRITERS_MAX)
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
            async with _connected(self._readers, READ_WAIT_SECONDS_MAX) as connection:
                yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that may write; committed when the block ends well, else rolled back.

        Raises:
            Unavailable: no connection could be had, or the database failed; as Interrupted where
                nothing was written and the block may be run again, which `transact` does.
            IntegrityError: a unique constraint; for the caller to read.
        Durability: after the block, what it wrote survives a power cut.
        Cancellation: rolled back, unless the commit was already on its way.
        """
        await self._see_file()
        is_committing = False
        try:
            with _translated():
                async with _connected(self._writers, WRITE_WAIT_SECONDS_MAX) as connection:
                    await connection.execution_options(**{_WRITER: True})
                    async with connection.begin():
                        yield connection
                        is_committing = True
        except Interrupted as failure:
            if is_committing and failure.may_be_committed:
                raise Unavailable(_UNREACHABLE) from failure
            raise

    async def transact(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """What `work` gives in a transaction that may write; run again where others interrupt it.

        Two transactions may each hold what the other waits for, and Postgres ends one of them; or
        the server is restarted under one that has not come to its commit.

        Args:
            work: leaves nothing behind but in the database.

        Raises:
            Unavailable, IntegrityError: as `write`; after the last attempt.
        """
        for attempt in range(1, ATTEMPTS_MAX):
            try:
                async with self.write() as connection:
                    return await work(connection)
            except Interrupted:
                # Apart in time, or the same two would meet again.
                await asyncio.sleep(random.uniform(0.005, 0.02) * 2**attempt)  # noqa: S311
        async with self.write() as connection:
            return await work(connection)

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


@asynccontextmanager
async def _connected(engine: AsyncEngine, seconds: float) -> AsyncIterator[AsyncConnection]:
    async with contextlib.AsyncExitStack() as stack:
        async with asyncio.timeout(seconds):
            connection = await stack.enter_async_context(engine.connect())
        yield connection


def _sqlite_engine(url: URL, connections: int) -> AsyncEngine:
    engine = create_async_engine(
        url,
        pool_size=connections,
        max_overflow=0,
        pool_timeout=WRITE_WAIT_SECONDS_MAX,
        connect_args={"timeout": BUSY_SECONDS_MAX},
        hide_parameters=True,
    )
    event.listen(engine.sync_engine, "connect", _set_pragmas)
    event.listen(engine.sync_engine, "begin", _begin)
    return engine


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
        state = getattr(error.orig, "sqlstate", None) or ""
        if state.startswith(_OURS):
            raise Broken(f"a statement that Postgres does not take (SQLSTATE {state})") from error
        if state in _CONTENTION or error.connection_invalidated:
            lost = error.connection_invalidated
            raise Interrupted(_UNREACHABLE, may_be_committed=lost) from error
        raise Unavailable(_UNREACHABLE) from error
    except (PoolTimeoutError, OSError, TimeoutError) as error:
        raise Unavailable(_UNREACHABLE) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "asyncpg":
            raise
        # What of the driver's SQLAlchemy has no word for: a connection lost within a call.
        raise Interrupted(_UNREACHABLE, may_be_committed=True) from error


def _prepare_file(path: Path) -> None:
    """Blocking. The journal mode is a property of the file: set once, not for each connection."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    deadline = time.monotonic() + BUSY_SECONDS_MAX
    while True:
        try:
            with contextlib.closing(sqlite3.connect(path, timeout=BUSY_SECONDS_MAX)) as connection:
                connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            # Changing the mode needs the file for oneself, and is refused at once when another
            # process does the same. A full disk is not waited for: a start would last 10 s longer.
            is_busy = error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
            if not is_busy or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return
