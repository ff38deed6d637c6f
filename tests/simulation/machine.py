"""One machine: its disk, its clock, a ClickHouse, and a supervisor that keeps workers running."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from buffer.errors import BufferFailure
from buffer.quarantine import SUFFIX, Entry, read_entry
from buffer.writeahead import WriteAheadBuffer
from tests.fakes.disk import Crash
from tests.simulation.clickhouse import ModelSink, Server
from tests.simulation.disk import MachineDisk, ProcessFiles
from tests.simulation.loop import Process, SimLoop
from tests.simulation.rot import Rot
from tests.simulation.surroundings import SimClock, SimMetrics, Wall

if TYPE_CHECKING:
    from tests.simulation.scenario import Scenario

ROOT = Path("/data/log")
CLOSE_SECONDS = 5.0


@dataclass
class Report:
    """What one run went through."""

    seed: int
    requests: int = 0
    rows: int = 0
    tries: int = 0
    acknowledged: int = 0
    kills: int = 0
    power_cuts: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    trace: list[str] = field(default_factory=list)


class Violation(AssertionError):
    """A promise was not kept; says which."""

    def __init__(self, what: str, report: Report) -> None:
        super().__init__(what)
        self.report = report


@dataclass
class Slot:
    """A worker that the supervisor wants, and the process that is it now."""

    name: str
    is_wanted: bool = True
    process: Process | None = None
    buffer: WriteAheadBuffer | None = None
    files: ProcessFiles | None = None
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    lives: int = 0
    keeper: asyncio.Task[None] | None = None


class Machine:
    """What outlives the workers, and the workers."""

    def __init__(self, scenario: Scenario, loop: SimLoop) -> None:
        self.scenario = scenario
        self.loop = loop
        self.report = Report(scenario.seed)
        self.random = Random(f"{scenario.seed} world")
        self.disk = MachineDisk(ROOT, Random(f"{scenario.seed} disk"))
        self.disk.cut_power = self.cut_power
        self.bad: set[int] = set()
        self.server = Server(Random(f"{scenario.seed} server"), self.bad, self.note)
        self.wall = Wall()
        self.metrics = SimMetrics()
        self.rot = Rot(self.disk, Random(f"{scenario.seed} rot"))
        self.slots: list[Slot] = []
        self.problems: list[str] = []
        self.is_healed = False
        self.has_shrunk = False
        self.taken_out: list[Entry] = []
        """Of quarantines, by somebody who looked at them."""

    @property
    def may_double(self) -> bool:
        """Rot took what tells which rows are stored; identity makes one row of those sent twice."""
        return self.rot.has_hit_checkpoint or self.has_shrunk

    def note(self, text: str) -> None:
        self.has_shrunk |= "batch_shrunk" in text
        if "quarantine" in text and "table_waiting" in text:
            self.server.count("quarantine_full")
        self.report.trace.append(f"{self.loop.time() - 1_000:10.4f} {text}")

    def kill(self, slot: Slot) -> None:
        if slot.process is not None and slot.process.is_alive:
            self.note(f"{slot.process.name} is killed")
            self.report.kills += 1
            slot.process.kill()

    def cut_power(self) -> None:
        """All workers go, and the disk keeps what it must and some of what it may."""
        self.note("the power is cut")
        self.report.power_cuts += 1
        for slot in self.slots:
            if slot.process is not None:
                slot.process.kill()
        self.disk.power_cut(self.disk.random)

    def empty_quarantines(self) -> None:
        """Somebody moves away what was set aside, and makes room."""
        for path in entry_paths(self.disk):
            self.server.count("quarantine_emptied")
            self.taken_out.append(read_entry(self.disk, path))
            self.disk.take_out(path)

    def want_workers(self, count: int) -> None:
        """As a restart with another configuration would, but for those that stay."""
        wanted = [slot for slot in self.slots if slot.is_wanted]
        for slot in wanted[count:]:
            slot.is_wanted = False
            slot.stop.set()
        for _ in range(count - len(wanted)):
            slot = Slot(f"w{len(self.slots)}")
            self.slots.append(slot)
            slot.keeper = self.loop.create_task(self._keep(slot))

    async def _keep(self, slot: Slot) -> None:
        """What the supervisor does: a worker that has ended is started again while it is wanted."""
        while slot.is_wanted:
            slot.lives += 1
            process = slot.process = Process(self.loop, f"{slot.name}.{slot.lives}")
            is_healed = self.is_healed
            slot.stop.clear()
            life = process.spawn(self._live(slot, process))
            await asyncio.wait([life, process.died], return_when=asyncio.FIRST_COMPLETED)
            if life.done() and not life.cancelled() and (error := life.exception()) is not None:
                self._judge(process, error, is_healed=is_healed)
            process.kill()
            slot.buffer = None
            await asyncio.sleep(0.02 + self.random.random() * (0.3 if self.is_healed else 1.0))

    async def _live(self, slot: Slot, process: Process) -> None:
        files = slot.files = ProcessFiles(self.disk, process, self.loop)
        buffer = await WriteAheadBuffer.open(
            ROOT,
            self.scenario.options,
            sink=ModelSink(self.server, process),
            clock=SimClock(self.loop, process, self.wall),
            fs=files,
            metrics=self.metrics,
        )
        await buffer.start()
        slot.buffer = buffer
        self.note(f"{process.name} serves shard {buffer._own.name[:8]}")
        stopping = asyncio.ensure_future(slot.stop.wait())
        broken = asyncio.ensure_future(buffer.broken())
        await asyncio.wait([stopping, broken], return_when=asyncio.FIRST_COMPLETED)
        slot.buffer = None
        if broken.done():
            self.note(f"{process.name} stops: {broken.result()}")
            return
        self.note(f"{process.name} stops in order")
        await buffer.close(CLOSE_SECONDS if self.is_healed else self.random.random() * 2)
        self.note(f"{process.name} has stopped")

    def _judge(self, process: Process, error: BaseException, *, is_healed: bool) -> None:
        """An open that failed in the storm is tried again; anything else is a finding."""
        self.note(f"{process.name} ended: {error!r}")
        if isinstance(error, Crash):
            return
        is_trouble = isinstance(error, (OSError, BufferFailure))
        if not is_trouble or (is_healed and not self.disk.ordered):
            self.problems.append(f"{process.name} ended with {error!r}")


def entry_paths(disk: MachineDisk) -> list[Path]:
    """The entries of all quarantines."""
    return [path for path in disk.paths() if path.name.endswith(SUFFIX)]
