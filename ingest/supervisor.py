"""`charon serve`: starts the engine and the workers, keeps them running, and stops them in order.

```
lock the data directory ─▶ reserve the port ─▶ ┬─ engine ─▶ its tables ─┬─▶ workers ─▶ stop
                                               └─ catalogue ────────────┘
```

Workers do not wait for an engine that takes long: they accept without it, and deliver later. They
stop before the engine, so that what they still flush finds it. When this process is killed, the end
of their pipes tells the others to stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import signal
import time
from typing import TYPE_CHECKING

import structlog

from ingest.banner import banner, key_command
from ingest.data_dir import (
    NO_ROOM_ERRNOS,
    DataDirLock,
    forget_server,
    has_no_room,
    note_server,
)
from ingest.keeper import Keeper
from ingest.layout import Layout
from ingest.ports import is_free, reserve
from ingest.processes import Backoff, Child, TaskFailed, run_once
from ingest.programs import (
    ENGINE_HOST,
    Commands,
    catalogue_task,
    engine_program,
    place_clickhouse,
    table_task,
    worker_program,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ingest.settings import Settings

ENGINE_WAIT_SECONDS = 2.0
"""How long the first start of the workers waits for the engine and its tables."""
CATALOGUE_WAIT_SECONDS = 10.0
"""How long it waits for a catalogue in Postgres."""
ROOM_SECONDS = 1.0
"""Between tries of what a full disk refused."""
PREDECESSOR_SECONDS_MAX = 15.0
"""Children of a killed supervisor end within 10 s; until then they hold the port."""


class StartFailed(Exception):
    """The server cannot start; says why and what to do."""


def serve(
    settings: Settings,
    *,
    commands: Commands | None = None,
    show: Callable[[str], None] | None = None,
) -> None:
    """Run the server until SIGTERM, SIGINT or SIGHUP; a second one kills instead of waiting.

    Raises:
        DataDirUnusable, PortUnusable, StartFailed: it cannot start.
    """
    layout = Layout(settings.data_dir.absolute())
    lock = DataDirLock.take(layout)
    try:
        if lock.was_killed:
            _await_predecessor(settings)
        reservation = reserve(settings.host, settings.port)
        try:
            placed = settings.model_copy(update={"port": reservation.port, "data_dir": layout.root})
            supervisor = Supervisor(placed, layout, commands or Commands(), show or _print)
            asyncio.run(supervisor.run())
        finally:
            reservation.close()
    finally:
        forget_server(layout)
        lock.release()


class Supervisor:
    """Owns the child processes of one server. Used once, by `run`.

    Args:
        settings: with the port that was really taken and an absolute data directory.
        layout: of that directory, which this process has locked.
        commands: what to start.
        show: prints to the user.
    """

    def __init__(
        self, settings: Settings, layout: Layout, commands: Commands, show: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._commands = commands
        self._layout = layout
        self._show = show
        self._log = structlog.get_logger("supervisor")
        self._signals = 0
        self._stop_asked = asyncio.Event()
        self._has_tables = asyncio.Event()
        self._engine: Keeper | None = None
        self._workers: list[Keeper] = []
        self._later: list[asyncio.Task[None]] = []
        self._clickhouse = place_clickhouse(settings, layout)
        wanted = settings.embedded_port
        if settings.is_embedded and wanted not in {0, self._clickhouse.port}:
            self._log.warning("embedded_port_taken", port=wanted, instead=self._clickhouse.port)

    async def run(self) -> None:
        """Start, keep, stop.

        Raises:
            StartFailed: the catalogue cannot be prepared; what was started has been stopped.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal)
        async with asyncio.TaskGroup() as tasks:
            if not self._is_noted():
                self._later.append(tasks.create_task(self._until("server_noted", self._note)))
            starting = tasks.create_task(self._start(tasks))
            asked = tasks.create_task(self._stop_asked.wait())
            await asyncio.wait({starting, asked}, return_when=asyncio.FIRST_COMPLETED)
            failure = starting.result() if starting.done() else None
            if failure is None:
                await asked
            for task in (starting, asked, *self._later):
                task.cancel()
            await self._stop()
        if failure is not None:
            raise failure

    async def _start(self, tasks: asyncio.TaskGroup) -> StartFailed | None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        if self._settings.is_embedded:
            self._engine = Keeper(
                engine_program(self._commands, self._settings, self._layout, self._clickhouse),
                self._log,
                self._migrate,
            )
            tasks.create_task(self._engine.run())
        key: str | None = None
        if self._settings.database_url is not None:
            if self._settings.role == "all":
                await self._prepare_shared_catalogue(tasks)
        elif self._layout.catalog.exists() and has_no_room(self._layout):
            # What is in the log must be delivered all the same, or the disk stays full.
            self._log.error("no_room", waits="catalogue")
            prepare = self._until("catalogue_prepared", self._prepare_catalogue)
            self._later.append(tasks.create_task(prepare))
        else:
            try:
                key = await self._prepare_catalogue()
            except TaskFailed as error:
                return StartFailed(f"the catalogue cannot be prepared: {error}")
        if self._engine is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(begun + ENGINE_WAIT_SECONDS):
                    await self._has_tables.wait()
        for slot in range(self._settings.workers):
            program = worker_program(self._commands, self._settings, slot, self._clickhouse)
            worker = Keeper(program, self._log)
            self._workers.append(worker)
            tasks.create_task(worker.run())
        try:
            if not await self._workers_serve():
                return StartFailed(
                    "no worker can start; what each said of it is above. Mend that, and start again"
                )
        finally:  # a key that was made is shown even if the server is stopped before it serves
            if key is not None or all(worker.was_ready.is_set() for worker in self._workers):
                self._show(self._banner(key))
        return None

    async def _workers_serve(self) -> bool:
        """Wait for all workers; False when none has been ready and none can start."""

        async def look(worker: Keeper) -> None:
            events = [
                asyncio.create_task(e.wait()) for e in (worker.was_ready, worker.cannot_start)
            ]
            try:
                await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for event in events:
                    event.cancel()

        await asyncio.gather(*(look(worker) for worker in self._workers))
        if not any(worker.was_ready.is_set() for worker in self._workers):
            return False
        for worker in self._workers:  # one that others serve beside is tried again for ever
            await worker.was_ready.wait()
        return True

    async def _stop(self) -> None:
        self._log.info("stopping", workers=len(self._workers))
        # Each step is bounded by its program's time, and one that fails does not skip the next.
        await asyncio.gather(*(worker.stop() for worker in self._workers), return_exceptions=True)
        if self._engine is not None:
            await self._engine.stop()
        self._log.info("stopped")

    def _on_signal(self) -> None:
        self._signals += 1
        self._stop_asked.set()
        if self._signals > 1:
            self._log.warning("killing", reason="a second signal")
            for keeper in (*self._workers, *([self._engine] if self._engine else [])):
                keeper.hasten()

    async def _migrate(self, child: Child) -> None:
        """Bring the embedded engine's tables up to date, at each of its starts."""
        backoff = Backoff()
        while True:
            try:
                await run_once(self._commands.prepare, table_task(self._settings, self._clickhouse))
            except TaskFailed as error:
                self._log.error("migration_failed", error=str(error), pid=child.pid)
                await asyncio.sleep(backoff.next_seconds())
            else:
                self._has_tables.set()
                return

    async def _prepare_catalogue(self) -> str | None:
        task = catalogue_task(self._settings, self._layout)
        result = await run_once(self._commands.prepare, task)
        key = result.get("key")
        return key if isinstance(key, str) else None

    async def _prepare_shared_catalogue(self, tasks: asyncio.TaskGroup) -> None:
        """Bring the catalogue in Postgres up to date; where that is away, go on without it.

        What is in the log is delivered all the same, and keys are looked up once it is back.
        """
        tried = asyncio.Event()

        async def prepare() -> None:
            backoff = Backoff()
            while True:
                try:
                    await self._prepare_catalogue()
                except TaskFailed as error:
                    self._log.error("catalogue_not_prepared", error=str(error))
                    tried.set()
                    await asyncio.sleep(backoff.next_seconds())
                else:
                    tried.set()
                    return

        self._later.append(tasks.create_task(prepare()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CATALOGUE_WAIT_SECONDS):
                await tried.wait()

    async def _until(self, what: str, do: Callable[[], Awaitable[object]]) -> None:
        """Do what a full disk has refused, once it does not."""
        while True:
            await asyncio.sleep(ROOM_SECONDS)
            try:
                await do()
            except (OSError, TaskFailed):
                continue
            self._log.info(what)
            return

    def _is_noted(self) -> bool:
        try:
            self._note_now()
        except OSError as error:
            if error.errno not in NO_ROOM_ERRNOS:
                raise
            self._log.error("no_room", waits="note of what runs", error=str(error))
            return False
        return True

    async def _note(self) -> None:
        self._note_now()

    def _note_now(self) -> None:
        note_server(
            self._layout,
            {
                "pid": os.getpid(),
                "host": self._settings.host,
                "port": self._settings.port,
                "clickhouse_url": self._clickhouse.url,
                "clickhouse_port": self._clickhouse.port if self._settings.is_embedded else None,
                "started_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            },
        )

    def _banner(self, key: str | None) -> str:
        where, settings = self._clickhouse.url, self._settings
        usual = type(settings).model_fields["data_dir"].default.absolute()
        is_told = settings.database_url is None and settings.data_dir.absolute() != usual
        return banner(
            address=self._settings.address,
            data_dir=str(self._layout.root),
            workers=self._settings.workers,
            clickhouse=f"embedded, {where}" if self._settings.is_embedded else where,
            key=key,
            make_key=key_command(settings.data_dir if is_told else None),
            is_ingest_only=self._settings.role == "ingest",
        )


def _await_predecessor(settings: Settings) -> None:
    """Let the children of a killed server end: they notice, and let their ports go."""
    places = [(settings.host, settings.port)]
    if settings.is_embedded:
        places.append((ENGINE_HOST, settings.embedded_port))
    end = time.monotonic() + PREDECESSOR_SECONDS_MAX
    for host, port in places:
        while port and not is_free(host, port) and time.monotonic() < end:
            time.sleep(0.05)


def _print(text: str) -> None:
    print(text, flush=True)
