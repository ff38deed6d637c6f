"""A worker's status file, written once a second, and what all workers' files say together.

`status/worker-<slot>.json` is replaced by renaming, so that a reader sees a whole one. It stays
when its worker dies: the counters in it still count, and the worker that takes the slot goes on
from them.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
import structlog

from ingest.health import WorkerHealth, readiness
from ingest.metrics import WorkerMetrics, merge
from ingest.refused_ring import RingStatistics

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ingest.health import Health

WRITE_SECONDS = 1.0
FRESH_SECONDS = 4.0
"""A worker whose file is older is stuck, or gone: readiness has to turn within 5 s."""
FORMAT = 1

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One worker's file."""

    slot: int
    pid: int
    written_at_ms: int
    metrics: dict[str, Any]
    health: WorkerHealth


class StatusBoard:
    """Writes this worker's file and reads all of them.

    Args:
        directory: of the status files.
        slot: this worker's.
        workers: how many the server runs; slots are 0 … workers - 1.
    """

    def __init__(
        self,
        directory: Path,
        *,
        slot: int,
        workers: int,
        metrics: WorkerMetrics,
        health: Health,
    ) -> None:
        self._directory = directory
        self._slot = slot
        self._workers = workers
        self._metrics = metrics
        self._health = health
        self._collectors: list[Callable[[], None]] = []

    def before_each(self, collect: Callable[[], None]) -> None:
        """Call this before each snapshot, to set gauges of what is read and not counted."""
        self._collectors.append(collect)

    def take_over(self) -> None:
        """Begin from the counters of the slot's former worker. Blocks; once, before serving."""
        self._directory.mkdir(parents=True, exist_ok=True)
        former = _read(self._path(self._slot))
        if former is not None:
            self._metrics.add(former.metrics)

    async def run(self) -> None:
        """Write once a second until cancelled."""
        while True:
            try:
                await self.write()
            except OSError as error:
                # A full disk, perhaps: the buffer says so by itself, and a number is no reason to
                # stop.
                log.warning("status_not_written", error=error.strerror)
            await asyncio.sleep(WRITE_SECONDS)

    async def write(self) -> None:
        """Write this worker's file now.

        Raises:
            OSError: it could not be written; the former one is in place.
        """
        await asyncio.to_thread(_write, self._path(self._slot), self._own())

    async def ready(self) -> tuple[int, Any]:
        """Status and body of `/health/ready`, for the whole server."""
        living, stuck, missing = self._living(await self._all())
        return readiness(
            {slot: snapshot.health for slot, snapshot in living.items()},
            stuck=stuck,
            missing=missing,
        )

    async def metrics(self) -> WorkerMetrics:
        """The whole server's numbers."""
        snapshots = await self._all()
        living, _, _ = self._living(snapshots)
        return merge({slot: snapshot.metrics for slot, snapshot in snapshots.items()}, living)

    async def quarantine(self) -> tuple[int, int, int]:
        """Entries, rows and bytes that are set aside, over all workers' own shards."""
        healths = [snapshot.health for snapshot in (await self._all()).values()]
        return (
            sum(health.quarantine_entries for health in healths),
            sum(health.quarantine_rows for health in healths),
            sum(health.quarantine_bytes for health in healths),
        )

    async def refused(self) -> RingStatistics:
        """What the workers keep of refused lines, all together."""
        healths = [snapshot.health for snapshot in (await self._all()).values()]
        return RingStatistics(
            lines=sum(health.refused_lines for health in healths),
            bytes=sum(health.refused_bytes for health in healths),
            overwritten=sum(health.refused_overwritten for health in healths),
        )

    async def _all(self) -> dict[int, Snapshot]:
        """Every slot's last snapshot; this worker's own is of now."""
        snapshots = await asyncio.to_thread(_read_all, self._directory)
        snapshots[self._slot] = self._own()
        return snapshots

    def _living(self, snapshots: dict[int, Snapshot]) -> tuple[dict[int, Snapshot], int, int]:
        """Fresh snapshots by slot, the number of stuck workers, and of those not running."""
        oldest = _now_ms() - FRESH_SECONDS * 1_000
        living: dict[int, Snapshot] = {}
        stuck = missing = 0
        for slot in range(self._workers):
            snapshot = snapshots.get(slot)
            if snapshot is None or not _is_alive(snapshot.pid):
                missing += 1
            elif snapshot.written_at_ms < oldest:
                stuck += 1
            else:
                living[slot] = snapshot
        return living, stuck, missing

    def _own(self) -> Snapshot:
        for collect in self._collectors:
            collect()
        return Snapshot(
            slot=self._slot,
            pid=os.getpid(),
            written_at_ms=_now_ms(),
            metrics=self._metrics.snapshot(),
            health=self._health.own(),
        )

    def _path(self, slot: int) -> Path:
        return self._directory / f"worker-{slot}.json"


def _write(path: Path, snapshot: Snapshot) -> None:
    body = {
        "format": FORMAT,
        "slot": snapshot.slot,
        "pid": snapshot.pid,
        "written_at_ms": snapshot.written_at_ms,
        "metrics": snapshot.metrics,
        "health": snapshot.health.as_json(),
    }
    temporary = path.with_suffix(f".{snapshot.pid}.tmp")
    temporary.write_bytes(orjson.dumps(body))
    temporary.replace(path)


def _read_all(directory: Path) -> dict[int, Snapshot]:
    found = (_read(path) for path in directory.glob("worker-*.json"))
    return {snapshot.slot: snapshot for snapshot in found if snapshot is not None}


def _read(path: Path) -> Snapshot | None:
    """None for a file that is not there, or is not ours: a former release's, or a torn disk's."""
    try:
        body = orjson.loads(path.read_bytes())
        if body["format"] != FORMAT:
            return None
        WorkerMetrics().add(body["metrics"])  # raises for what could not be merged later
        return Snapshot(
            slot=int(body["slot"]),
            pid=int(body["pid"]),
            written_at_ms=int(body["written_at_ms"]),
            metrics=body["metrics"],
            health=WorkerHealth.from_json(body["health"]),
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
