"""One run: workers, clients, a storm, then a healed world, a full drain and the audit."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from buffer.shard import list_shards
from buffer.statistics import TableCondition
from tests.simulation.audit import audit, audit_files
from tests.simulation.clickhouse import ServerMood
from tests.simulation.clients import Request, Told, make_request, submit
from tests.simulation.disk import DiskMood
from tests.simulation.loop import SimLoop, Stuck
from tests.simulation.machine import ROOT, Machine, Report, Violation
from tests.simulation.scenario import Scenario, scenario_of
from tests.simulation.storm import Storm
from tests.simulation.surroundings import seeded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    Weather = Callable[["World"], Coroutine[object, object, None]]

DRAIN_SECONDS = 240.0
LOOK_SECONDS = 0.5
MUCH = 2**20
STEPS_MAX = 400_000


class World(Machine):
    """The machine, its clients, and what is asked of it in the end."""

    def __init__(self, scenario: Scenario, loop: SimLoop) -> None:
        super().__init__(scenario, loop)
        self.weather: Weather = lambda world: Storm(world).blow()
        self.requests: list[Request] = []
        self._next_row = 0

    async def run(self) -> None:
        scenario = self.scenario
        self.note(f"{scenario}")
        self.want_workers(scenario.workers)
        clients = [self.loop.create_task(self._client()) for _ in range(scenario.clients)]
        watch = self.loop.create_task(self._watch())
        await self.weather(self)
        self._heal()
        if not await self._until(lambda: all(client.done() for client in clients)):
            self.problems.append("clients are still not answered in a healed world")
            return
        for client in clients:
            client.result()
        keeper = self.loop.create_task(self._keep_quarantines())
        await self._drain()
        if self.problems:
            return
        await self._probe()
        await self._reconcile()
        if self.random.random() < 0.5:
            await self._once_more()
        watch.cancel()
        keeper.cancel()
        await self._stop()
        audit(self)
        audit_files(self)

    # -- clients --

    async def _client(self) -> None:
        random = self.random
        for _ in range(self.scenario.requests):
            await asyncio.sleep(random.random() ** 2 * self.scenario.storm_seconds / 4)
            chance = random.random()
            if chance < 0.05:
                request = self._new_request()
                await asyncio.gather(self._deliver(request), self._deliver(request))
            elif chance < 0.2:
                burst = [self._new_request() for _ in range(random.randrange(2, 6))]
                await asyncio.gather(*map(self._deliver, burst))
            else:
                await self._deliver(self._new_request())

    def _new_request(self) -> Request:
        request = make_request(len(self.requests), self.random, self._next_row)
        ids = [row for rows in request.rows.values() for row in rows]
        self._next_row += len(ids)
        share = 0.1 if "bad_rows" in self.scenario.troubles else 0.0
        if "small_quarantine" in self.scenario.troubles:
            share = 0.3
        if share and self.random.random() < share:
            self.bad.add(self.random.choice(ids))
        self.requests.append(request)
        return request

    async def _deliver(self, request: Request) -> None:
        random = self.random
        for _ in range(12):
            told = await self._try(request)
            if told is Told.STORED and random.random() < 0.95:
                return
            if told is not None and random.random() < 0.1:
                return  # it gives up
            await asyncio.sleep(random.random() * 0.6)

    async def _try(self, request: Request) -> Told | None:
        up = [slot for slot in self.slots if slot.buffer is not None]
        if not up:
            return None
        slot = self.random.choice(up)
        buffer, process = slot.buffer, slot.process
        assert buffer is not None
        assert process is not None
        shard = buffer._own.name
        told = await submit(buffer, process, request, shard, self.random)
        self.note(f"request {request.number} at {process.name}: {told.value}")
        return told

    # -- the end --

    def _heal(self) -> None:
        self.note("the world is healed")
        self.is_healed = True
        self.disk.mood = DiskMood()
        self.disk.capacity = None
        self.server.mood = ServerMood()
        self.server.come_up()
        for table in self.server.tables.values():
            table.is_missing = table.has_constraint = False
        self.want_workers(1 + (self.random.random() < 0.4))

    async def _until(self, condition: object) -> bool:
        assert callable(condition)
        deadline = self.loop.time() + DRAIN_SECONDS
        while not condition():
            if self.loop.time() > deadline:
                return False
            await asyncio.sleep(LOOK_SECONDS)
        return True

    async def _drain(self) -> None:
        if not await self._until(lambda: not self._undelivered()):
            self.problems.append(f"not delivered in a healed world: {self._undelivered()}")

    def _undelivered(self) -> list[str]:
        held: set[str] = set()
        left: list[str] = []
        for slot in self.slots:
            if not slot.is_wanted:
                continue
            if slot.buffer is None:
                left.append(f"{slot.name} is not up")
                continue
            state = slot.buffer.statistics()
            held.add(slot.buffer._own.name)
            left += [
                f"{slot.name} {name}: {table.backlog_frames} frames, {table.condition}"
                for name, table in state.tables.items()
                if table.backlog_frames or table.pending_rows
            ]
            left += [f"{slot.name} drains {name}" for name in state.adopted]
        for directory in list_shards(self.disk, ROOT):
            names = self.disk.list_dir(directory)
            if directory.name not in held and "checkpoint" in names:
                left.append(f"shard {directory.name[:8]} is left")
        return left

    async def _probe(self) -> None:
        """A healed server says that it is, and takes requests."""
        if not await self._until(lambda: not self._complaints()):
            self.problems.append(f"healed and drained, but {self._complaints()}")
        request = self._new_request()
        self.bad.difference_update(row for rows in request.rows.values() for row in rows)
        for _ in range(20):  # its answer may be lost all the same
            if await self._try(request) is Told.STORED:
                break
            await asyncio.sleep(0.5)
        else:
            self.problems.append("a healed server stores nothing")
        await self._drain()

    def _complaints(self) -> list[str]:
        """What the workers say is wrong."""
        said: list[str] = []
        for slot in self.slots:
            if slot.buffer is None:
                continue
            state = slot.buffer.statistics()
            said += [] if state.is_writable else [f"{slot.name}: {state.reason}"]
            said += [f"{slot.name}: {task}" for task in state.dead_tasks]
            said += [
                f"{slot.name} {name}: {table.condition} {table.reason}"
                for name, table in state.tables.items()
                if table.condition is not TableCondition.OK
            ]
        return said

    async def _keep_quarantines(self) -> None:
        """An operator, where the quarantine is small."""
        while self.scenario.options.quarantine_bytes_max < MUCH:
            self.empty_quarantines()
            await asyncio.sleep(3.0)

    async def _reconcile(self) -> None:
        """Blocks that were confirmed and are gone are told of, where nothing else went wrong."""
        server = self.server
        lost = [
            key
            for key, rows in server.lost_blocks.items()
            # Some came again, as the same block, or with a client's repeat at another worker.
            if key in server.confirmed and not server.stored(key[0]).issuperset(rows)
        ]
        if not lost or set(self.scenario.troubles) != {"server_power"}:
            return

        def told() -> int:
            return self.metrics.counts.get("missing_batches", 0)

        if not await self._until(lambda: told() >= len(lost)):
            self.problems.append(f"{len(lost)} confirmed blocks are gone, {told()} are told of")

    async def _once_more(self) -> None:
        """What is delivered stays delivered, whatever happens then."""
        if self.random.random() < 0.5:
            self.cut_power()
        else:
            for slot in self.slots:
                self.kill(slot)
        await asyncio.sleep(1.0)
        await self._drain()

    async def _watch(self) -> None:
        """A worker whose sync does not come back says that it is not ready."""
        patience = self.scenario.options.sync_stall_seconds
        while True:
            await asyncio.sleep(0.5)
            for slot in self.slots:
                if slot.buffer is None or slot.files is None:
                    continue
                since = slot.files.syncing_since
                is_stalled = since is not None and self.loop.time() - since > patience + 0.01
                if is_stalled and slot.buffer.statistics().is_writable:
                    self.problems.append(f"{slot.name} is ready, and a sync hangs since {since}")

    async def _stop(self) -> None:
        self.want_workers(0)
        keepers = [slot.keeper for slot in self.slots if slot.keeper is not None]
        if not await self._until(lambda: all(keeper.done() for keeper in keepers)):
            self.problems.append("a worker does not stop")
        for keeper in keepers:
            if keeper.done():
                keeper.result()


def run(seed: int, focus: tuple[str, ...] = ()) -> Report:
    """Runs one seed.

    Raises:
        Violation: a promise was not kept.
    """
    return run_scenario(scenario_of(seed, focus), lambda world: None)


def run_scenario(scenario: Scenario, prepare: Callable[[World], None]) -> Report:
    """Runs one scenario; ``prepare`` may change the world before it begins.

    Raises:
        Violation: a promise was not kept.
    """
    loop = SimLoop(Random(f"{scenario.seed} loop"))
    world = World(scenario, loop)
    prepare(world)
    with seeded(loop, scenario.seed, world.note):
        try:
            _finish(loop, world)
        finally:
            loop.close()
    report = world.report
    report.requests, report.seconds = len(world.requests), loop.time() - 1_000
    report.rows = sum(len(rows) for one in world.requests for rows in one.rows.values())
    report.tries = sum(len(one.tries) for one in world.requests)
    report.acknowledged = sum(one.is_acknowledged for one in world.requests)
    report.faults = world.disk.injected | world.server.happened | world.rot.happened
    problems = [*world.problems, *world.server.violations, *loop.faults]
    problems += [f"unknown metric {name}" for name in sorted(world.metrics.unknown)]
    if problems:
        raise Violation("\n".join(problems[:20]), report)
    return report


def _finish(loop: SimLoop, world: World) -> None:
    async def bounded() -> None:
        main = loop.create_task(world.run())
        while not main.done():
            await asyncio.wait([main], timeout=5.0)
            if loop.steps > STEPS_MAX:
                world.problems.append(f"no end after {loop.steps} steps of the loop")
                break
        else:
            main.result()
        for slot in world.slots:
            if slot.process is not None:
                slot.process.kill()
        for slot in world.slots:
            if slot.keeper is not None:
                slot.keeper.cancel()
        await asyncio.sleep(0.1)
        left = [task for task in asyncio.all_tasks(loop) if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=1.0) if left else None

    work: Awaitable[None] = bounded()
    try:
        loop.run_until_complete(work)
    except Stuck as stuck:
        world.problems.append(str(stuck))
