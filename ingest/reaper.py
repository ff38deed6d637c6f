"""Runs whose heartbeat and rows have stopped are marked FAILED, with the reason in their history.

A process that is killed says nothing. Once a minute the catalogue's silent runs are looked at
(`catalog.stale_runs`: who was not heard of, for how long), and those that ClickHouse has no recent
rows of are failed. One worker of one replica does it at a time.

It is careful, since a run that was failed wrongly stays FAILED when it ends well. Nobody is judged

* while one of the two stores cannot be read, or rows wait to be delivered for long: the cycle is
  skipped;
* for as long as the grace of a heartbeat after this process started, after a skipped cycle, and
  after the clock jumped (a laptop that slept, a time server): it is us who did not listen.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from catalog.errors import CatalogFailure
from ingest.answers import RequestRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from buffer.metrics import Metrics
    from catalog.stale_runs import Grace, SilentRun, StaleRuns

RUNS_AT_ONCE = 200
"""Of one question to each store."""
RUNS_PER_CYCLE_MAX = 10_000
"""The next cycle goes on from there."""
CLOCK_JUMP_SECONDS = 30.0
BACKLOG_SECONDS_MAX = 60.0
"""Rows that wait for longer may be younger signs of life than what ClickHouse has."""


log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ReaperOptions:
    """When and whom.

    Attributes:
        grace: how long runs may be silent.
        interval_seconds: between two cycles.
    """

    grace: Grace
    interval_seconds: float = 60.0


class Reaper:
    """Fails silent runs. `run` must be a task.

    Args:
        stale_runs: the catalogue's.
        leading: whether this process is the one that does it, as a context.
        latest_rows: what ClickHouse knows, by run id: the latest time of a metric row in ms; None
            for a run that cannot be judged now. Raises RequestRefused where it cannot be read.
        heard_ms: when a run (its id and tenant) beat at this worker last; younger than what is
            noted.
        backlog_seconds: for how long metric rows have waited to be delivered.
        metrics: counts what was done, and skipped.
        options: when and whom.
        wall_ms, monotonic: clocks.
    """

    def __init__(
        self,
        stale_runs: StaleRuns,
        *,
        leading: Callable[[], AbstractAsyncContextManager[bool]],
        latest_rows: Callable[[Sequence[SilentRun]], Awaitable[Mapping[int, int | None]]],
        heard_ms: Callable[[int, str], int | None],
        backlog_seconds: Callable[[], Awaitable[float]],
        metrics: Metrics,
        options: ReaperOptions,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stale_runs = stale_runs
        self._leading = leading
        self._latest_rows = latest_rows
        self._heard_ms = heard_ms
        self._backlog_seconds = backlog_seconds
        self._metrics = metrics
        self._options = options
        self._wall_ms = wall_ms
        self._monotonic = monotonic
        self._listening_since = monotonic()
        self._clock_offset = self._offset()
        self._after = 0

    async def run(self) -> None:
        """A cycle every `interval_seconds`, until cancelled."""
        while True:
            await asyncio.sleep(self._options.interval_seconds)
            await self.cycle()

    async def cycle(self) -> list[int]:
        """Look at all silent runs once; the ids of those that were failed."""
        self._see_clock()
        try:
            async with self._leading() as is_leading:
                if not is_leading:
                    return []
                backlog = await self._backlog_seconds()
                if backlog > BACKLOG_SECONDS_MAX:
                    return self._skip("backlog", seconds=round(backlog))
                if self._monotonic() - self._listening_since < self._options.grace.beat_ms / 1_000:
                    return []
                return await self._judge()
        except CatalogFailure as failure:
            return self._skip("catalogue", error=type(failure).__name__)
        except RequestRefused as refusal:
            return self._skip("clickhouse", error=refusal.code.value)

    async def _judge(self) -> list[int]:
        grace, failed = self._options.grace, list[int]()
        for _ in range(RUNS_PER_CYCLE_MAX // RUNS_AT_ONCE):
            silent = await self._stale_runs.silent(grace, after=self._after, limit=RUNS_AT_ONCE)
            if silent:
                self._after = silent[-1].run_id
                dead = self._dead(silent, await self._latest_rows(silent))
                done = await self._stale_runs.fail(dead, grace)
                if done:
                    self._metrics.count("runs_reaped", len(done))
                    log.warning("runs_failed_silent", count=len(done), run_ids=done[:20])
                failed += done
            if len(silent) < RUNS_AT_ONCE:
                self._after = 0
                break
        return failed

    def _dead(
        self, silent: Sequence[SilentRun], latest: Mapping[int, int | None]
    ) -> list[SilentRun]:
        now_ms, dead = self._wall_ms(), []
        for run in silent:
            row_ms = latest.get(run.run_id, 0)
            if row_ms is None:
                continue
            here_ms = self._heard_ms(run.run_id, run.tenant) or 0
            known = replace(run, heard_at_ms=max(run.heard_at_ms, row_ms, here_ms))
            if known.is_silent(now_ms, self._options.grace):
                dead.append(known)
        return dead

    def _skip(self, reason: str, **more: object) -> list[int]:
        """Not now. Beats may not have been noted meanwhile: everyone has a full grace again."""
        self._listening_since = self._monotonic()
        self._metrics.count("reaper_skips", reason=reason)
        log.warning("silent_runs_not_judged", reason=reason, **more)
        return []

    def _see_clock(self) -> None:
        jump = self._offset() - self._clock_offset
        if abs(jump) > CLOCK_JUMP_SECONDS:
            log.warning("clock_jumped", seconds=round(jump))
            self._listening_since = self._monotonic()
        self._clock_offset += jump

    def _offset(self) -> float:
        """Between the wall's clock and the monotonic one, which stands while a machine sleeps."""
        return self._wall_ms() / 1_000 - self._monotonic()
