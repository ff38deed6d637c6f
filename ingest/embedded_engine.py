"""chDB in this process: connections, statements run in threads, and the slots kept for inserts.

Everything here blocks or runs in a pool; nothing knows HTTP.
"""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, Protocol

from ingest.embedded_config import limits_of_this_machine, write_config
from ingest.embedded_errors import EngineError, parse_error
from ingest.embedded_statement import ALLOWED_TABLE_FUNCTIONS, REFUSED_FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


class Connection(Protocol):
    """What is used of a chDB connection; it serves one statement at a time."""

    def query(
        self, query_str: str, format: str = ..., *, params: Mapping[str, str] = ...
    ) -> Any: ...  # noqa: A002, D102
    def classify_query(self, sql: str, target_database: str = ...) -> dict[str, Any]: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


class Slot(Enum):
    """Which threads run a statement. Each kind has its own, so that none waits for another kind."""

    INSERT = auto()
    READ = auto()
    COMMAND = auto()
    CONTROL = auto()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a statement gave: its answer (where it was not written to a file) and its counts."""

    body: bytes
    rows_read: int
    bytes_read: int
    rows_written: int
    bytes_written: int
    rows_out: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Job:
    """One statement, ready to run.

    `settings` are raw values by name; `params` are values of the statement's `{name:Type}` places, escaped as
    ClickHouse's HTTP interface takes them.
    """

    sql: str
    query_id: str
    database: str
    settings: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    format: str = "TabSeparated"
    classes: frozenset[str] | None = None
    """The classes that the engine's parser may find in `checked`; None: our own text, or no need."""
    checked: str = ""
    """The client's text, where `sql` is one made from it."""


QUERY_ID_SETTING: Final = "log_comment"
"""Carries the client's query_id: chDB gives each statement an id of its own and takes none."""


class Engine:
    """The one engine of this process. `start`, then jobs from any task, then `close`."""

    def __init__(self, path: Path, *, database: str, threads: int) -> None:
        if set("?&#%") & set(str(path)):
            raise ValueError(f"the engine's path may not contain any of ?&#%: {path}")
        self._path = path
        self.database = database
        self.limits = limits_of_this_machine()
        self.version = ""
        self.timezone = "UTC"
        self.refused_functions: frozenset[str] = REFUSED_FUNCTIONS
        self.base_settings: dict[str, str] = {}
        self._pools = {
            Slot.INSERT: ThreadPoolExecutor(2, "insert"),
            Slot.READ: ThreadPoolExecutor(max(1, threads - 2), "read"),
            Slot.COMMAND: ThreadPoolExecutor(1, "command"),
            Slot.CONTROL: ThreadPoolExecutor(1, "control"),
        }
        self._connect: Callable[[str], Connection] | None = None
        self._keeper: Connection | None = None

    def start(self) -> None:
        """Opens the path and makes the database. Blocks for about a second.

        Raises:
            EngineError: the engine cannot open the path or make the database.
        """
        os.environ["TZ"] = "UTC"  # else times depend on the machine: chDB knows no <timezone>
        from chdb import _chdb  # noqa: PLC0415 - 0.3 s and 300 MB, for this process alone

        _chdb.set_signal_handlers_enabled(0)
        config = write_config(self._path, self.limits)
        self._connect = _chdb.connect
        try:
            # Held open for the process's life: with no connection left chDB shuts its engine down.
            self._keeper = _chdb.connect(f"{self._path}?config-file={config}")
        except RuntimeError as error:
            raise parse_error(str(error), "") from error
        self.version = self._value("SELECT version()")
        self.timezone = self._value("SELECT timezone()")
        self._rows(f"CREATE DATABASE IF NOT EXISTS `{self.database}` ENGINE = Atomic")
        named = self._rows("SELECT lower(name) FROM system.table_functions")
        self.refused_functions = frozenset(named) - ALLOWED_TABLE_FUNCTIONS | REFUSED_FUNCTIONS
        changed = self._rows("SELECT name, value FROM system.settings WHERE changed")
        self.base_settings = dict(row.split("\t", 1) for row in changed)

    def connect(self) -> Connection:
        """A connection of one's own: settings and temporary tables are its alone. About 0.3 ms."""
        assert self._connect is not None, "started"
        return self._connect(str(self._path))

    async def run(
        self, slot: Slot, job: Job, connection: SessionConnection | None = None
    ) -> Outcome:
        """Runs a job on its slot's threads.

        Raises:
            EngineError: the statement failed; nothing of an insert is stored then.

        Cancellation: the job goes on to its end; `kill` ends it.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pools[slot], self._run, job, connection)

    async def kill(self, query_id: str) -> None:
        """Asks the engine to end whatever runs under this id."""
        quoted = query_id.replace("\\", "\\\\").replace("'", "\\'")
        sql = f"KILL QUERY WHERE Settings['{QUERY_ID_SETTING}'] = '{quoted}' ASYNC"  # noqa: S608 - quoted
        await self.run(Slot.CONTROL, Job(sql, "", self.database))

    async def remember(self, session: SessionConnection) -> None:
        """Notes what a SET or USE of the client's changed, so that it outlives the next request's settings."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._pools[Slot.CONTROL], session.remember)

    def close(self) -> None:
        """Waits for what runs, then closes the engine: what an insert wrote is on disk."""
        for pool in self._pools.values():
            pool.shutdown(wait=True, cancel_futures=True)
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None

    def _run(self, job: Job, session: SessionConnection | None) -> Outcome:
        started = time.monotonic()
        connection = session.connection if session is not None else self.connect()
        try:
            self._prepare(connection, job, session)
            result = connection.query(job.sql, job.format, params=job.params)
            if result.has_error():
                raise parse_error(result.error_message(), self.version)
            return Outcome(
                body=result.bytes(),
                rows_read=result.storage_rows_read(),
                bytes_read=result.storage_bytes_read(),
                rows_written=result.rows_written(),
                bytes_written=result.bytes_written(),
                rows_out=result.rows_read(),
                seconds=time.monotonic() - started,
            )
        except RuntimeError as error:
            raise parse_error(str(error), self.version) from None
        finally:
            if session is None:
                connection.close()

    def _prepare(self, connection: Connection, job: Job, session: SessionConnection | None) -> None:
        if job.classes is not None:
            _check_class(connection, job)
        wanted = {**job.settings, QUERY_ID_SETTING: job.query_id}
        if session is not None:
            wanted = session.difference(wanted, self.base_settings)
        if wanted:
            clauses = ", ".join(f"{name} = {_literal(value)}" for name, value in wanted.items())
            connection.query(f"SET {clauses}")
        if session is None or session.database != job.database:
            connection.query(f"USE {quote_name(job.database)}")
            if session is not None:
                session.database = job.database

    def _rows(self, sql: str) -> list[str]:
        assert self._keeper is not None, "started"
        try:
            body: bytes = self._keeper.query(sql, "TabSeparated").bytes()
        except RuntimeError as error:
            raise parse_error(str(error), self.version) from error
        return body.decode().splitlines()

    def _value(self, sql: str) -> str:
        return self._rows(sql)[0]


class SessionConnection:
    """A connection that lives as long as a client's session, and what was set on it for the last request."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.database = ""
        self.own: dict[str, str] = {}
        """What the client's SET statements set: to be put back after a request's own settings."""
        self._applied: dict[str, str] = {}

    def remember(self) -> None:
        """Reads back what is set and which database is current. Blocks for a millisecond."""
        body = self.connection.query(
            "SELECT name, value FROM system.settings WHERE changed", "TabSeparated"
        ).bytes()
        changed = dict(line.split("\t", 1) for line in body.decode().splitlines())
        self.own = {name: value for name, value in changed.items() if name not in self._applied}
        self.database = (
            self.connection.query("SELECT currentDatabase()", "TabSeparated")
            .bytes()
            .decode()
            .strip()
        )

    def difference(
        self, wanted: Mapping[str, str], base: Mapping[str, str]
    ) -> dict[str, str | None]:
        """What has to be set so that this request finds its own settings and none of the last one's."""
        changes: dict[str, str | None] = {
            name: self.own.get(name, base.get(name)) for name in self._applied if name not in wanted
        }
        changes |= {
            name: value for name, value in wanted.items() if self._applied.get(name) != value
        }
        self._applied = dict(wanted)
        return changes


def quote_name(name: str) -> str:
    """An identifier in backquotes."""
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


def _literal(value: str | None) -> str:
    if value is None:
        return "DEFAULT"
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _check_class(connection: Connection, job: Job) -> None:
    """The engine's own parser has the last word on how many statements there are and what they do."""
    verdict = connection.classify_query(job.checked or job.sql)
    if verdict["statement_count"] == 0:
        return  # it does not parse: running it gives the parser's message
    assert job.classes is not None, "asked only then"
    if verdict["statement_count"] != 1 or verdict["query_class"].name not in job.classes:
        raise EngineError(
            497,
            "ACCESS_DENIED",
            f"Code: 497. DB::Exception: Statements of this kind ({verdict['query_class'].name}) are not offered "
            f"by the embedded engine (ACCESS_DENIED)",
        )
