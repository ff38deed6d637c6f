"""What a shard's delivery is given, and what all deliveries of a process share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from buffer.building import BlockBuilder
    from buffer.checkpoint import Checkpoint
    from buffer.clock import Clock
    from buffer.disk import Disk
    from buffer.log import Log
    from buffer.metrics import Metrics
    from buffer.options import BufferOptions
    from buffer.quarantine import Quarantine
    from buffer.sink import Sink


@dataclass(frozen=True, slots=True)
class ShardParts:
    """One shard's files, as a flusher needs them."""

    shard: str
    tag: int
    log: Log
    checkpoint: Checkpoint
    quarantine: Quarantine
    disk: Disk


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all flushers of a process share."""

    sink: Sink
    builder: BlockBuilder
    options: BufferOptions
    clock: Clock
    metrics: Metrics
    random: Callable[[], float]
