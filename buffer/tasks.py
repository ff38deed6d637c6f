"""Tasks that must not end: restarted with backoff when they do, and seen while they are down.

The first failed insert of a comparable service killed its writer, and the service went on saying
200 (F22 of the field cases). Here a dead task is a number that readiness reads.
"""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING

import structlog

from buffer.errors import Broken
from buffer.retry import TASK_SECONDS, Backoff
from buffer.statistics import TaskStatistics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from buffer.clock import Clock
    from buffer.metrics import Metrics

_log = structlog.get_logger()

SETTLED_SECONDS = 10.0
"""A life this long forgives the failures before it."""


class SupervisedTask:
    """Runs a coroutine function again whenever it raises; ends when it returns or is cancelled."""

    def __init__(
        self,
        name: str,
        run: Callable[[], Awaitable[None]],
        *,
        clock: Clock,
        metrics: Metrics,
        random: Callable[[], float],
    ) -> None:
        self._name = name
        self._run = run
        self._clock = clock
        self._metrics = metrics
        self._backoff = Backoff(*TASK_SECONDS, random)
        self._failures = 0
        self._is_alive = False
        self._started_at = 0.0
        self._failing_since: float | None = None
        self._last_error: str | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts the task; once."""
        assert self._task is None, f"task {self._name} was started before"
        self._task = asyncio.create_task(self._supervise(), name=self._name)

    @property
    def is_done(self) -> bool:
        """Whether it has come to its end: returned, stopped or cancelled; not when it died."""
        return self._task is not None and self._task.done()

    async def join(self) -> None:
        """Waits until the coroutine function has returned. Cancellation: the task goes on."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def stop(self) -> None:
        """Cancels the task and waits for its end."""
        self.cancel()
        await self.join()

    def cancel(self) -> None:
        """Cancels the task without waiting."""
        if self._task is not None:
            self._task.cancel()

    def statistics(self) -> TaskStatistics:
        """How it lives."""
        now = self._clock.monotonic()
        if self._is_alive and now - self._started_at >= SETTLED_SECONDS:
            self._failing_since = None
        since = self._failing_since
        return TaskStatistics(
            name=self._name,
            is_alive=self._is_alive,
            failures=self._failures,
            failing_seconds=0.0 if since is None else now - since,
            last_error=self._last_error,
        )

    async def _supervise(self) -> None:
        failures_in_a_row = 0
        while True:
            self._started_at = self._clock.monotonic()
            self._is_alive = True
            try:
                await self._run()
            except Broken as error:
                self._note(error)
                _log.critical("task_stopped", task=self._name, error=self._last_error)
                return
            except Exception as error:  # noqa: BLE001 - the top of a task loop: nothing may end it
                if self._clock.monotonic() - self._started_at >= SETTLED_SECONDS:
                    failures_in_a_row, self._failing_since = 0, None
                failures_in_a_row += 1
                self._note(error)
                wait = self._backoff.seconds(failures_in_a_row)
                _log.error(
                    "task_died",
                    task=self._name,
                    failures=self._failures,
                    retry_seconds=wait,
                    traceback=traceback.format_exc(limit=-8),  # text: no renderer shows its locals
                )
            else:
                return
            finally:
                self._is_alive = False
            await self._clock.sleep(wait)

    def _note(self, error: Exception) -> None:
        if self._failing_since is None:
            self._failing_since = self._clock.monotonic()
        self._failures += 1
        self._last_error = f"{type(error).__name__}: {error}"[:500]
        self._metrics.count("task_failures", task=self._name.split()[0])
