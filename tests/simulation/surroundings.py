"""What a simulated process is given besides files and sink: time, chance, logs and numbers."""

from __future__ import annotations

import asyncio
import contextlib
import random as chance
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import structlog

import buffer.shard
from buffer.log import Log
from buffer.metrics import METRICS
from buffer.shard import Shard
from tests.simulation.loop import Process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulation.loop import SimLoop

WALL_START_NS = 1_700_000_000_000_000_000

_LABELS = {metric.name: set(metric.labels) for metric in METRICS}


class SimClock:
    """A process's clock: the loop's time; the wall's may be set by somebody."""

    def __init__(self, loop: SimLoop, process: Process, wall: Wall) -> None:
        self._loop = loop
        self._process = process
        self._wall = wall

    def monotonic(self) -> float:
        return self._loop.time()

    def wall_ns(self) -> int:
        return self._wall.now_ns(self._loop)

    async def sleep(self, seconds: float) -> None:
        self._process.check()
        await asyncio.sleep(seconds)
        self._process.check()


class Wall:
    """The machine's clock on the wall."""

    def __init__(self) -> None:
        self.offset_ns = 0

    def now_ns(self, loop: SimLoop) -> int:
        return WALL_START_NS + self.offset_ns + int(loop.time() * 1e9)

    def jump(self, seconds: float) -> None:
        self.offset_ns += int(seconds * 1e9)


class SimMetrics:
    """Counts for the audit; a name or a label that is not in the list is a finding."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.unknown: set[str] = set()

    def count(self, name: str, n: int = 1, **labels: str) -> None:
        self.observe(name, n, **labels)
        self.counts[name] = self.counts.get(name, 0) + n

    def gauge(self, name: str, value: float, **labels: str) -> None:
        self.observe(name, value, **labels)

    def observe(self, name: str, value: float, **labels: str) -> None:
        if _LABELS.get(name) != set(labels):
            self.unknown.add(f"{name} {sorted(labels)}")


@contextlib.contextmanager
def seeded(loop: SimLoop, seed: int, note: Callable[[str], None]) -> Iterator[None]:
    """Everything that is drawn or waited for elsewhere comes from the seed and from the loop."""
    kept_state = chance.getstate()
    kept_logs = structlog.get_config() if structlog.is_configured() else None
    create: Any = Shard.create
    log: Any = Log.__init__
    shard: Any = buffer.shard
    kept = create.__func__.__defaults__, log.__kwdefaults__["random_bytes"], shard.time
    draw = chance.Random(f"{seed} bytes").randbytes

    def tell(logger: object, method: str, event: Any) -> Any:
        process = Process.current.get()
        words = " ".join(f"{key}={value}" for key, value in event.items() if key != "event")
        note(f"{process.name if process else '-'}: {event['event']} {words}")
        raise structlog.DropEvent

    chance.seed(seed)
    structlog.configure(processors=[tell])
    create.__func__.__defaults__ = (draw,)
    log.__kwdefaults__["random_bytes"] = draw
    shard.time = SimpleNamespace(sleep=loop.pause)
    try:
        yield
    finally:
        chance.setstate(kept_state)
        structlog.reset_defaults()
        if kept_logs is not None:
            structlog.configure(**kept_logs)
        create.__func__.__defaults__, log.__kwdefaults__["random_bytes"], shard.time = kept
