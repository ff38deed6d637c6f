"""Keeps one program running until told to stop."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from ingest.processes import Backoff, Child

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from structlog.typing import FilteringBoundLogger

    from ingest.processes import Program

LOOK_SECONDS = 0.5
"""How often heartbeats are looked at."""
START_TRIES = 3
"""Ends before the first ready word, after which it is said that the program cannot start."""


class Keeper:
    """Starts a program, restarts it when it ends, kills it when it stops beating.

    `run` is its task; `stop` ends both. One owner: the supervisor.

    Attributes:
        was_ready: set at the first ready word.
        cannot_start: set when it has ended three times without ever having been ready; it is
            started again all the same.

    Args:
        program: what is kept.
        log: told about each start and end.
        on_ready: run as a task at each ready word; cancelled when that process ends.
    """

    def __init__(
        self,
        program: Program,
        log: FilteringBoundLogger,
        on_ready: Callable[[Child], Awaitable[None]] | None = None,
    ) -> None:
        self.program = program
        self.child: Child | None = None
        self.starts = 0
        self.was_ready = asyncio.Event()
        self.cannot_start = asyncio.Event()
        self._log = log
        self._on_ready = on_ready
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Keep it running until `stop` is called.

        Cancellation: the process is killed.
        """
        backoff, tries = Backoff(), 0
        while not self._stopping.is_set():
            ready_seconds = await self._run_once()
            if self._stopping.is_set():
                return
            tries += 1
            if tries >= START_TRIES and not self.was_ready.is_set():
                self.cannot_start.set()
            backoff.served(ready_seconds)
            wait_seconds = backoff.next_seconds()
            if wait_seconds:
                self._log.warning("restart_waits", process=self.program.name, seconds=wait_seconds)
            try:
                async with asyncio.timeout(wait_seconds):
                    await self._stopping.wait()
            except TimeoutError:
                continue

    async def stop(self) -> None:
        """Stop restarting, and stop the process orderly; returns when it has ended."""
        self._stopping.set()
        if self.child is not None:
            await self.child.stop()

    def hasten(self) -> None:
        """Kill the process now: someone asked twice."""
        self._stopping.set()
        if self.child is not None:
            self.child.signal(signal.SIGKILL)

    async def _run_once(self) -> float:
        """One process from start to end; how long it was ready, in seconds."""
        loop = asyncio.get_running_loop()
        try:
            self.child = child = await Child.start(self.program)
        except OSError as error:
            self._log.error("start_failed", process=self.program.name, error=str(error))
            return 0.0
        self.starts += 1
        self._log.debug("started", process=self.program.name, pid=child.pid)
        if self._stopping.is_set():  # stop came while it was being started
            await child.stop()
        watch = asyncio.create_task(self._watch(child))
        ready_at: list[float] = []
        welcome = asyncio.create_task(self._welcome(child, ready_at))
        try:
            status = await child.listen()
        except BaseException:
            child.signal(signal.SIGKILL)
            raise
        finally:
            await _end(watch, welcome)
            self.child = None
        if not self._stopping.is_set():
            self._log.warning(
                "ended", process=self.program.name, pid=child.pid, status=_words(status)
            )
        return loop.time() - ready_at[0] if ready_at else 0.0

    async def _welcome(self, child: Child, ready_at: list[float]) -> None:
        await child.is_ready.wait()
        ready_at.append(asyncio.get_running_loop().time())
        self.was_ready.set()
        self._log.debug("ready", process=self.program.name, pid=child.pid, **child.details)
        if self._on_ready is not None:
            await self._on_ready(child)

    async def _watch(self, child: Child) -> None:
        """Kill it when it is late: a beat, or the first ready word."""
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(LOOK_SECONDS)
            now = loop.time()
            if now - before > 2 * LOOK_SECONDS + 1:
                # We were stopped ourselves (a debugger, a frozen container): its beats are in the
                # pipe, unread.
                child.last_beat = now
            if child.is_ready.is_set():
                late = now - child.last_beat > self.program.beat_seconds_max
            else:
                late = now - child.started > self.program.start_seconds_max
            if late:
                self._log.error("killed_as_late", process=self.program.name, pid=child.pid)
                child.signal(signal.SIGKILL)
                return


async def _end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result


def _words(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
