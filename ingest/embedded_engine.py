"""chDB in this process: connections, and statements run in threads of their kind.

Everything here blocks or runs in a pool; nothing knows HTTP.
"""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from ingest.embedded_config import limits_of_this_machine, write_config
from ingest.embedded_connection import connect_chdb, literal, run_job
from ingest.embedded_errors import parse_error
from ingest.embedded_functions import ALLOWED_TABLE_FUNCTIONS, REFUSED_FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ingest.embedded_connection import Connection, Job, Outcome, SessionConnection

_BAD_PATH: Final = frozenset("?&#%'")


class Slot(Enum):
    """Which threads run a statement. Each kind has its own, so that none waits for another kind."""

    INSERT = auto()
    READ = auto()
    COMMAND = auto()
    CONTROL = auto()


class Engine:
    """The one engine of this process. `start`, then jobs from any task, then `close`.

    Args:
        threads: statements at a time, inserts' two included; KILL and DDL have theirs beside.
    """

    def __init__(self, path: Path, *, database: str, threads: int) -> None:
        if _BAD_PATH & set(str(path)):
            raise ValueError(f"the engine's path may have none of ?&#%' in it: {path}")
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
            Slot.COMMAND: ThreadPoolExecutor(2, "command"),
            Slot.CONTROL: ThreadPoolExecutor(2, "control"),
        }
        self._connect: Callable[[str], Connection] | None = None
        self._keeper: Connection | None = None

    def start(self) -> None:
        """Opens the path and makes the database. Blocks for about a second.

        Raises:
            EngineError: the engine cannot open the path or make the database.
        """
        os.environ["TZ"] = "UTC"  # else times depend on the machine: chDB knows no <timezone>
        self._path.mkdir(parents=True, exist_ok=True)
        config = write_config(self._path, self.limits)
        self._connect = connect_chdb()
        try:
            # Held open for the process's life: with no connection left chDB shuts its engine down.
            self._keeper = self._connect(f"{self._path}?config-file={config}")
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

    async def run(self, slot: Slot, job: Job, session: SessionConnection | None = None) -> Outcome:
        """Runs a job on its slot's threads.

        Raises:
            EngineError: the statement failed; nothing of an insert is stored then.

        Cancellation: not to be cancelled while it runs, since the thread goes on with the files
            and the session that it was given: set `job.is_void` and call `kill`, then await it.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pools[slot], self._run, job, session)

    async def kill(self, query_id: str) -> None:
        """Asks the engine to end whatever runs under this id."""
        sql = f"KILL QUERY WHERE Settings['log_comment'] = {literal(query_id)} ASYNC"
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._pools[Slot.CONTROL], self._ask, sql)

    async def sees(self, query_id: str) -> bool:
        """Whether something runs under this id; what waits for a thread does not run yet."""
        sql = (
            "SELECT count() FROM system.processes "  # noqa: S608 - quoted
            f"WHERE Settings['log_comment'] = {literal(query_id)}"
        )
        loop = asyncio.get_running_loop()
        count = await loop.run_in_executor(self._pools[Slot.CONTROL], self._ask, sql)
        return count != b"0\n"

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
            return run_job(connection, job, session, self.base_settings, started)
        except RuntimeError as error:
            raise parse_error(str(error), self.version) from None
        finally:
            if session is None:
                connection.close()

    def _ask(self, sql: str) -> bytes:
        connection = self.connect()
        try:
            return connection.query(sql, "TabSeparated").bytes()
        finally:
            connection.close()

    def _rows(self, sql: str) -> list[str]:
        assert self._keeper is not None, "started"
        try:
            return self._keeper.query(sql, "TabSeparated").bytes().decode().splitlines()
        except RuntimeError as error:
            raise parse_error(str(error), self.version) from error

    def _value(self, sql: str) -> str:
        return self._rows(sql)[0]
