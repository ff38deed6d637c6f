"""A run's status, who may change it to what, and what a change leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """As the wire spells them. All but RUNNING are terminal; rows are taken for those runs too."""

    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    TERMINATED = "TERMINATED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"


class Source(StrEnum):
    """Who asks for a change."""

    API = "api"
    RESUME = "resume"
    STALE_MONITOR = "stale-monitor"
    THRESHOLD_TRIGGER = "threshold-trigger"


_SEVERITY = {Status.COMPLETED: 0, Status.TERMINATED: 1, Status.CANCELLED: 2, Status.FAILED: 3}


@dataclass(frozen=True, slots=True)
class Transition:
    """What becomes of a request for a status."""

    is_applied: bool
    """False: answered as a success, and nothing is written."""
    is_change: bool
    """The status is another than before: an event is recorded."""
    stamps: bool
    """`status_updated_at_ms` becomes now, unless the request names a time."""


def transition(current: Status, wanted: Status, source: Source) -> Transition:
    """The rule: of several ranks' final words the worst one stays, and any run may run again.

    A client cannot replace a terminal status by a milder one; the server's own sources can.
    """
    is_change = wanted is not current
    is_milder = (
        source is Source.API
        and current is not Status.RUNNING
        and wanted is not Status.RUNNING
        and _SEVERITY[wanted] < _SEVERITY[current]
    )
    return Transition(
        is_applied=not is_milder,
        is_change=is_change and not is_milder,
        stamps=not is_milder and (is_change or wanted is Status.RUNNING),
    )
