"""The numbers that the buffer counts: their names in one list, and the door they leave by."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class MetricKind(Enum):
    """How values of one name add up."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One name: its kind, its unit, what it says, and the labels it always carries."""

    name: str
    kind: MetricKind
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()


_C, _G, _H = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM

METRICS: tuple[Metric, ...] = (
    Metric("log_requests_committed", _C, "requests", "requests whose frames were made durable"),
    Metric("log_frames_committed", _C, "frames", "frames made durable"),
    Metric("log_bytes_committed", _C, "bytes", "log bytes made durable, headers included"),
    Metric("log_groups_committed", _C, "groups", "group commits that succeeded"),
    Metric("log_requests_refused", _C, "requests", "requests not stored", ("reason",)),
    Metric("log_requests_unknown", _C, "requests", "requests answered as of unknown outcome"),
    Metric("log_no_room", _C, "events", "writes that found no room on the disk or in the quota"),
    Metric("log_fenced", _C, "segments", "segments fenced after a failed write or sync"),
    Metric("log_sync_seconds", _H, "seconds", "one group's write and sync"),
    Metric("log_group_requests", _H, "requests", "requests that shared one sync"),
    Metric("log_queue_bytes", _G, "bytes", "waiting for the committer"),
    Metric("log_bytes", _G, "bytes", "the shard's segments on disk"),
    Metric("log_segments", _G, "files", "the shard's segments on disk"),
    Metric("log_all_bytes", _G, "bytes", "segments of all shards, as last measured"),
    Metric("disk_free_bytes", _G, "bytes", "free space beside the log, as last measured"),
    Metric("log_looks_failed", _C, "errors", "looks at the disk's figures that failed"),
    Metric("log_torn_bytes", _C, "bytes", "unfinished end of the log, cut at a start"),
    Metric("log_damaged_bytes", _C, "bytes", "log bytes that were not what had been written"),
    Metric("log_repeats", _C, "requests", "requests answered from the repeat window", ("state",)),
    Metric("task_failures", _C, "failures", "ends of tasks that must not end", ("task",)),
    Metric("log_segments_released", _C, "segments", "delivered segments deleted"),
    Metric("delivery_rows", _C, "rows", "rows confirmed as stored", ("table",)),
    Metric("delivery_batches", _C, "batches", "batches done with", ("table",)),
    Metric("delivery_seconds", _H, "seconds", "one insert, to its confirmation", ("table",)),
    Metric("delivery_failures", _C, "tries", "inserts that failed", ("table", "condition")),
    Metric("delivery_unknown", _C, "inserts", "inserts of unknown outcome", ("table",)),
    Metric("delivery_generations", _C, "batches", "batches sent under a new token", ("table",)),
    Metric("delivery_endpoint_changes", _C, "changes", "endpoints left for another", ("table",)),
    Metric("quarantined_rows", _C, "rows", "rows set aside as undeliverable", ("table",)),
    Metric("damaged_ranges", _C, "ranges", "damaged ranges of the log set aside"),
    Metric("journal_failures", _C, "blocks", "delivered blocks that could not be noted"),
    Metric("reconciled_batches", _C, "blocks", "delivered blocks found stored", ("table",)),
    Metric("reconcile_skipped", _C, "blocks", "delivered blocks that were not compared"),
    Metric("reconcile_failures", _C, "looks", "looks for stored blocks that failed", ("table",)),
    Metric("missing_batches", _C, "blocks", "delivered blocks found not stored", ("table",)),
    Metric("batches_missing", _G, "blocks", "delivered blocks that are not stored, now"),
    Metric("resent_batches", _C, "blocks", "blocks sent again on request", ("table",)),
    Metric("shards_adopted", _C, "shards", "orphan shards taken over to be drained"),
    Metric("shards_unreadable", _C, "shards", "shards whose directory could not be read"),
)
"""What the buffer counts. Names get the server's prefix where they are exported."""


class Metrics(Protocol):
    """Where numbers go. Cheap enough for once a frame; never for once a row."""

    def count(self, name: str, n: int = 1, **labels: str) -> None:
        """Adds ``n`` to a counter."""
        ...

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Sets a gauge."""
        ...

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Adds one observation, in the unit of the name, to a histogram."""
        ...


class NoMetrics:
    """Numbers that nobody wants."""

    def count(self, name: str, n: int = 1, **labels: str) -> None:
        """Forgets it."""

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Forgets it."""

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Forgets it."""
