"""Whether this server can take rows, and what it depends on: one worker's view, and all's.

Liveness asks nothing: a process that answers lives. Readiness asks one thing: can new rows be made
durable, by tasks that all live? ClickHouse or the catalogue being away makes a server `degraded`,
not unready: rows wait in the log and known keys are known. Nothing here holds an address, a user or
an error's text: anyone may read it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import structlog

from buffer.statistics import TableCondition
from ingest.refused_ring import RingStatistics

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from buffer.statistics import BufferStatistics
    from ingest.metrics import WorkerMetrics

PROBE_SECONDS = 2.0
PROBE_SECONDS_MAX = 1.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """One worker's state, as it goes into its status file.

    Attributes:
        clickhouse_ms: latency of the last probe; None: it did not answer.
        tables: by name, for those not delivered as they should be: condition and ClickHouse's code.
        dead_tasks: names of tasks that do not stay alive.
    """

    is_writable: bool = False
    is_draining: bool = False
    dead_tasks: tuple[str, ...] = ()
    clickhouse_ms: float | None = None
    catalogue_ms: float | None = None
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    quarantine_entries: int = 0
    quarantine_rows: int = 0
    quarantine_bytes: int = 0
    is_quarantine_full: bool = False
    refused_lines: int = 0
    refused_bytes: int = 0
    refused_overwritten: int = 0

    @property
    def is_ready(self) -> bool:
        """New rows can be made durable, every writer lives, and it is not about to stop."""
        return self.is_writable and not self.is_draining and not self.dead_tasks

    def as_json(self) -> dict[str, Any]:
        """What `from_json` takes."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> WorkerHealth:
        """Raises TypeError for what is not ours: a file of another release."""
        return cls(**{**values, "dead_tasks": tuple(values.get("dead_tasks", ()))})


class Health:
    """This worker's own health, probed in the background.

    Args:
        statistics: the buffer's. refused: of the lines that are kept for their senders to see.
        probe_clickhouse, probe_catalogue: return when the far side has answered, raise when it has
            not.
    """

    def __init__(
        self,
        *,
        statistics: Callable[[], BufferStatistics],
        probe_clickhouse: Callable[[], Awaitable[object]],
        probe_catalogue: Callable[[], Awaitable[object]],
        metrics: WorkerMetrics,
        refused: Callable[[], RingStatistics] = RingStatistics,
        probe_seconds: float = PROBE_SECONDS,
    ) -> None:
        self._statistics = statistics
        self._probes = {"clickhouse": probe_clickhouse, "catalogue": probe_catalogue}
        self._latency_ms: dict[str, float | None] = {"clickhouse": None, "catalogue": None}
        self._is_up: dict[str, bool] = {}
        self._metrics = metrics
        self._refused = refused
        self._probe_seconds = probe_seconds
        self.is_draining = False

    async def run(self) -> None:
        """Probe both sides again and again until cancelled."""
        while True:
            await self.probe()
            await asyncio.sleep(self._probe_seconds)

    async def probe(self) -> None:
        """Probe both sides once, each for a second at most."""
        await asyncio.gather(*(self._probe_one(name) for name in self._probes))

    def own(self) -> WorkerHealth:
        """This worker's health now."""
        statistics, refused = self._statistics(), self._refused()
        return WorkerHealth(
            is_writable=statistics.is_writable,
            is_draining=self.is_draining,
            dead_tasks=statistics.dead_tasks,
            clickhouse_ms=self._latency_ms["clickhouse"],
            catalogue_ms=self._latency_ms["catalogue"],
            tables={
                name: {"condition": table.condition.value, "code": table.code}
                for name, table in statistics.tables.items()
                if table.condition is not TableCondition.OK
            },
            quarantine_entries=statistics.quarantine.entries,
            quarantine_rows=statistics.quarantine.rows,
            quarantine_bytes=statistics.quarantine.bytes,
            is_quarantine_full=statistics.quarantine.is_full,
            refused_lines=refused.lines,
            refused_bytes=refused.bytes,
            refused_overwritten=refused.overwritten,
        )

    def gauges(self) -> None:
        """Set the gauges that come from the buffer's statistics."""
        statistics = self._statistics()
        gauge = self._metrics.gauge
        gauge("writable", statistics.is_writable)
        gauge("log_bytes", statistics.log_bytes)
        gauge("log_segments", statistics.log_segments)
        gauge("log_queue_bytes", statistics.queue_bytes)
        gauge("clickhouse_up", self._latency_ms["clickhouse"] is not None)
        gauge("catalogue_up", self._latency_ms["catalogue"] is not None)
        gauge("quarantine_rows", statistics.quarantine.rows)
        gauge("quarantine_bytes", statistics.quarantine.bytes)
        for name, table in statistics.tables.items():
            gauge("backlog_bytes", table.backlog_bytes, table=name)
            gauge("backlog_seconds", table.oldest_seconds, table=name)

    async def _probe_one(self, name: str) -> None:
        started = time.monotonic()
        reason = None
        try:
            async with asyncio.timeout(PROBE_SECONDS_MAX):
                await self._probes[name]()
        except Exception as error:  # noqa: BLE001 - whatever it raises, the far side did not answer
            reason = type(error).__name__
        is_up = reason is None
        self._latency_ms[name] = round((time.monotonic() - started) * 1_000, 1) if is_up else None
        was_up = self._is_up.get(name)
        if was_up != is_up:
            self._is_up[name] = is_up
            if not is_up:
                log.warning("dependency_down", dependency=name, reason=reason)
            elif was_up is not None:  # that the first look finds it there is no news
                log.info("dependency_up", dependency=name)


def readiness(workers: Mapping[int, WorkerHealth], *, stuck: int, missing: int) -> tuple[int, Any]:
    """The answer of `/health/ready`.

    Args:
        workers: by slot, those whose snapshot is fresh; the answering one is among them.
        stuck: workers that live and have not written a snapshot for seconds: their share of the
            connections gets no answer.
        missing: workers that are not running; the supervisor is starting them.

    Returns:
        HTTP status and JSON body. 503 when any worker's share of requests cannot be served.
    """
    is_ready = not stuck and all(worker.is_ready for worker in workers.values())
    dependencies = {
        "clickhouse": _dependency([worker.clickhouse_ms for worker in workers.values()]),
        "catalogue": _dependency([worker.catalogue_ms for worker in workers.values()]),
    }
    tables: dict[str, Any] = {}
    for worker in workers.values():
        tables.update(worker.tables)
    is_full = any(worker.is_quarantine_full for worker in workers.values())
    dead = sorted({task for worker in workers.values() for task in worker.dead_tasks})
    checks: dict[str, Any] = {
        "buffer": {"status": "up" if all(w.is_writable for w in workers.values()) else "down"},
        **dependencies,
        "delivery": {"status": "degraded" if tables or is_full else "up"},
        "workers": {"status": "up", "serving": len(workers)},
    }
    if tables:
        checks["delivery"]["tables"] = tables
    if is_full:
        checks["delivery"]["quarantine"] = "full"
    if dead:
        checks["buffer"] = {"status": "down", "dead_tasks": dead}
    if stuck or missing:
        checks["workers"] |= {"status": "degraded", "stuck": stuck, "starting": missing}
    if any(worker.is_draining for worker in workers.values()):
        checks["workers"]["status"] = "stopping"
    is_degraded = any(check["status"] != "up" for check in checks.values())
    status = "degraded" if is_degraded else "ok"
    return (
        (200, {"status": status, "checks": checks})
        if is_ready
        else (
            503,
            {"status": "unavailable", "checks": checks},
        )
    )


def _dependency(latencies: list[float | None]) -> dict[str, Any]:
    """Up when every worker reaches it."""
    known = [latency for latency in latencies if latency is not None]
    if not known or len(known) < len(latencies):
        return {"status": "down"}
    return {"status": "up", "latency_ms": max(known)}
