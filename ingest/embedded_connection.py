"""One statement on one chDB connection: its settings, its database, the engine's verdict on it.

A connection's settings are its own and stay on it, so a request without a session takes a fresh
connection, and a session's connection is put right before each request.
"""

from __future__ import annotations

import importlib
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from ingest.embedded_errors import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

QUERY_ID_SETTING: Final = "log_comment"
"""Carries the client's query_id: chDB gives each statement an id of its own and takes none."""


class Result(Protocol):
    """What is used of a chDB result."""

    def bytes(self) -> bytes:
        """The answer, in the format asked for."""

    def rows_read(self) -> int:
        """Rows of the answer."""

    def storage_rows_read(self) -> int:
        """Rows that the engine looked at."""

    def storage_bytes_read(self) -> int:
        """Bytes that the engine looked at."""

    def rows_written(self) -> int:
        """Rows stored."""

    def bytes_written(self) -> int:
        """Bytes stored."""


class Connection(Protocol):
    """What is used of a chDB connection; it serves one statement at a time, and blocks."""

    def query(
        self, query_str: str, output: str = "TabSeparated", /, *, params: Mapping[str, str] = ...
    ) -> Result:
        """Runs a statement; a RuntimeError holds ClickHouse's exception."""

    def classify_query(self, sql: str) -> dict[str, Any]:
        """The parser's view: `statement_count` and `query_class`."""

    def close(self) -> None:
        """Gives it back."""


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

    Attributes:
        settings: raw values by name.
        params: values of the statement's `{name:Type}` places, escaped as ClickHouse's HTTP
            interface takes them.
        checked: the client's text, for the engine's parser to judge; empty where `sql` was put
            together here from parts that were judged.
        classes: what the parser may find it to be.
        changes_session: a SET or USE, to be remembered.
        is_void: set when nobody wants it any more; a job that still waits then never starts.
    """

    sql: str
    query_id: str
    database: str
    settings: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    format: str = "TabSeparated"
    checked: str = ""
    classes: frozenset[str] = frozenset()
    changes_session: bool = False
    is_void: threading.Event = field(default_factory=threading.Event)


class SessionConnection:
    """A connection that lives as long as a client's session, and what was last set on it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.database = ""
        self._own: dict[str, str] = {}
        self._applied: dict[str, str] = {}

    def difference(
        self, wanted: Mapping[str, str], base: Mapping[str, str]
    ) -> dict[str, str | None]:
        """What to set so that a request finds its own settings and none of the last one's.

        Returns: a value, or None for the default, by name.
        """
        changes: dict[str, str | None] = {
            name: self._own.get(name, base.get(name))
            for name in self._applied
            if name not in wanted
        }
        changes |= {
            name: value for name, value in wanted.items() if self._applied.get(name) != value
        }
        return changes

    def applied(self, wanted: Mapping[str, str]) -> None:
        """The difference was set."""
        self._applied = dict(wanted)

    def remember(self) -> None:
        """Reads back what a SET or USE left: it outlives the settings of single requests."""
        sql = "SELECT name, value FROM system.settings WHERE changed"
        lines = self.connection.query(sql, "TabSeparated").bytes().decode().splitlines()
        changed = dict(line.split("\t", 1) for line in lines)
        self._own = {
            name: value for name, value in changed.items() if self._applied.get(name) != value
        }
        current = self.connection.query("SELECT currentDatabase()", "TabSeparated").bytes()
        self.database = current.decode().rstrip("\n")


def connect_chdb() -> Callable[[str], Connection]:
    """Loads chDB: 0.3 s and 300 MB, for this process alone."""
    chdb = importlib.import_module("chdb._chdb")
    # SIGTERM is ours; chDB would end the process on it.
    chdb.set_signal_handlers_enabled(0)
    connect: Callable[[str], Connection] = chdb.connect
    return connect


def run_job(
    connection: Connection,
    job: Job,
    session: SessionConnection | None,
    base_settings: Mapping[str, str],
    started: float,
) -> Outcome:
    """Runs a job on a connection that is its alone meanwhile. Blocks.

    Raises:
        EngineError: the job is void, or is not what its kind of statement may be.
        RuntimeError: ClickHouse's exception.
    """
    if job.checked:
        _check_class(connection, job)
    _prepare(connection, job, session, base_settings)
    if job.is_void.is_set():
        raise refuse(394, "QUERY_WAS_CANCELLED", "Query was cancelled before it began")
    result = connection.query(job.sql, job.format, params=job.params)
    if session is not None and job.changes_session:
        session.remember()
    return Outcome(
        body=result.bytes(),
        rows_read=result.storage_rows_read(),
        bytes_read=result.storage_bytes_read(),
        rows_written=result.rows_written(),
        bytes_written=result.bytes_written(),
        rows_out=result.rows_read(),
        seconds=time.monotonic() - started,
    )


def literal(value: str) -> str:
    """A string literal."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _prepare(
    connection: Connection,
    job: Job,
    session: SessionConnection | None,
    base_settings: Mapping[str, str],
) -> None:
    wanted = {**job.settings, QUERY_ID_SETTING: job.query_id}
    changes: Mapping[str, str | None] = wanted
    if session is not None:
        changes = session.difference(wanted, base_settings)
    if changes:
        clauses = ", ".join(
            f"{name} = {'DEFAULT' if value is None else literal(value)}"
            for name, value in changes.items()
        )
        connection.query(f"SET {clauses}")
    if session is not None:
        session.applied(wanted)
    if session is None or session.database != job.database:
        name = job.database.replace("\\", "\\\\").replace("`", "\\`")
        connection.query(f"USE `{name}`")
        if session is not None:
            session.database = job.database


def _check_class(connection: Connection, job: Job) -> None:
    """The engine's own parser says how many statements there are and what they do."""
    verdict = connection.classify_query(job.checked)
    found = verdict["query_class"].name
    if verdict["statement_count"] == 0:
        return  # it does not parse: running it gives the parser's message
    if verdict["statement_count"] > 1:
        raise refuse(62, "SYNTAX_ERROR", "Syntax error: send one statement a request")
    if found not in job.classes:
        raise refuse(
            497, "ACCESS_DENIED", f"Statements of this kind ({found}) are not offered here"
        )
