"""What a shard's delivery is given, and what all deliveries of a process share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from buffer.building import BlockBuilder
    from buffer.checkpoint import Checkpoint
    from buffer.clock import Clock
    from buffer.disk import Disk
    from buffer.journal import Journal
    from buffer.log import Log
    from buffer.lsn import Lsn
    from buffer.metrics import Metrics
    from buffer.options import BufferOptions
    from buffer.quarantine import Quarantine
    from buffer.sink import Sink


@dataclass(slots=True)
class Hold:
    """From which frame on delivered log is kept, because some of it may have to be sent again."""

    from_lsn: Lsn | None = None
    """None: nothing is kept for that."""


@dataclass(frozen=True, slots=True)
class ShardParts:
    """One shard's files, as a flusher needs them."""

    shard: str
    tag: int
    log: Log
    checkpoint: Checkpoint
    quarantine: Quarantine
    disk: Disk
    journal: Journal | None = None
    hold: Hold = field(default_factory=Hold)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all flushers of a process share."""

    sink: Sink
    builder: BlockBuilder
    options: BufferOptions
    clock: Clock
    metrics: Metrics
    random: Callable[[], float]
