"""The reaper as a worker has it, put together from the worker's other parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog.addresses import parse_url
from catalog.leadership import REAPER_LOCK, leading
from catalog.stale_runs import Grace
from ingest.reaper import Reaper, ReaperOptions
from ingest.reaper_rows import latest_rows
from schema.streams import METRICS

if TYPE_CHECKING:
    from catalog import Catalog
    from ingest.heartbeats import HeartbeatBoard
    from ingest.metrics import WorkerMetrics
    from ingest.reader import Reader
    from ingest.settings import Settings
    from ingest.status import StatusBoard


def make_reaper(
    settings: Settings,
    *,
    catalog: Catalog,
    reader: Reader,
    heartbeats: HeartbeatBoard,
    metrics: WorkerMetrics,
    status: StatusBoard,
) -> Reaper:
    """One, for one worker of the server."""

    async def backlog_seconds() -> float:
        """The worst of all workers: each has a log of its own."""
        gauges = (await status.metrics()).gauges
        label = ("table", METRICS.table)
        waits = (
            value
            for (name, labels), value in gauges.items()
            if name == "backlog_seconds" and label in labels
        )
        return max(waits, default=0.0)

    direct = settings.database_direct_url
    lock_url = catalog.direct_url if direct is None else parse_url(direct.get_secret_value())
    return Reaper(
        catalog.stale_runs,
        leading=lambda: leading(lock_url, REAPER_LOCK),
        latest_rows=lambda silent: latest_rows(reader, silent),
        heard_ms=heartbeats.heard_ms,
        backlog_seconds=backlog_seconds,
        metrics=metrics,
        options=ReaperOptions(
            Grace(
                beat_ms=int(settings.heartbeat_grace_seconds * 1_000),
                silent_ms=int(settings.silence_grace_seconds * 1_000),
            ),
            settings.reaper_interval_seconds,
        ),
    )
