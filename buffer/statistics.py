"""Frozen snapshots for observers: readiness, ``/metrics``, ``doctor``. Nobody peeks inside."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from buffer.lsn import Lsn


class TableCondition(Enum):
    """What a table's flusher is doing about its batches."""

    OK = "ok"
    RETRYING = "retrying"
    """Something that clears by itself: the same batch is sent again and again."""
    WAITING = "waiting"
    """Somebody has to act: the operator, or whoever empties the quarantine. Tried all the same."""
    STOPPED = "stopped"
    """A bug of ours: nothing more is sent to that table until a restart."""


@dataclass(frozen=True, slots=True)
class LogStatistics:
    """The log at one moment.

    ``bytes`` are on disk; ``kept_bytes`` of them were delivered by all tables at the last
    `Log.release`, and are kept for the repeat window.
    """

    bytes: int
    segments: int
    kept_bytes: int
    oldest_lsn: Lsn
    durable_lsn: Lsn
    next_lsn: Lsn
    fenced: int
    """Segments fenced since the start."""


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """One stream's way into its table, in one shard."""

    table: str
    condition: TableCondition
    reason: str | None
    """Why the condition is not ``OK``; one bounded line."""
    code: int | None
    """ClickHouse's exception code, where there was one."""
    failures: int
    """Failed tries in a row."""
    since_seconds: float
    """How long the condition has held."""
    backlog_frames: int
    """LSNs from the table's checkpoint to the end of the log, other tables' frames among them."""
    backlog_bytes: int
    """Log bytes of those LSNs; an estimate by their share of the log."""
    pending_rows: int
    oldest_seconds: float
    """Age of the oldest row that is read and not delivered; 0 where there is none."""
    delivered_rows: int
    """Since this process started."""
    delivered_batches: int


@dataclass(frozen=True, slots=True)
class QuarantineStatistics:
    """What is set aside in one shard."""

    entries: int
    rows: int
    bytes: int
    damaged_ranges: int
    is_full: bool


@dataclass(frozen=True, slots=True)
class TaskStatistics:
    """A task that must not end. ``failing_seconds`` is 0 unless its last lives were short."""

    name: str
    is_alive: bool
    failures: int
    failing_seconds: float
    last_error: str | None


TASK_DEAD_SECONDS = 2.0
"""A task that has failed for this long is dead for readiness; below it a restart was enough. With
the second between two readings this keeps within the five in which readiness has to turn."""


@dataclass(frozen=True, slots=True)
class BufferStatistics:
    """The whole buffer of one worker."""

    is_writable: bool
    """New rows can be made durable."""
    reason: str | None
    """Why not, where they cannot."""
    log_bytes: int
    log_segments: int
    durable_lsn: int
    released_lsn: int
    queue_bytes: int
    last_sync_seconds: float
    tables: Mapping[str, TableStatistics]
    """By table name; the worker's own shard."""
    adopted: Mapping[str, Mapping[str, TableStatistics]]
    """By shard id, for shards that are being drained."""
    quarantine: QuarantineStatistics
    tasks: tuple[TaskStatistics, ...]

    @property
    def dead_tasks(self) -> tuple[str, ...]:
        """Names of the tasks that stay dead; readiness is false while there is one."""
        return tuple(task.name for task in self.tasks if task.failing_seconds >= TASK_DEAD_SECONDS)

    @property
    def is_degraded(self) -> bool:
        """Some table is not delivered as it should be, or its quarantine is full."""
        return self.quarantine.is_full or any(
            table.condition is not TableCondition.OK for table in self.tables.values()
        )
