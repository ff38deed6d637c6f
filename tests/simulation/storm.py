"""The storm of a run: trouble at seeded times, of the kinds that the scenario has."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from schema.streams import StreamKind
from tests.simulation.clickhouse import ServerMood
from tests.simulation.disk import DiskMood

if TYPE_CHECKING:
    from tests.simulation.world import World


Mood = TypeVar("Mood", DiskMood, ServerMood)


class Storm:
    """Made for one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random

    async def blow(self) -> None:
        """Trouble after trouble until the storm's time is over."""
        world, random = self._world, self._random
        scenario = world.scenario
        end = world.loop.time() + scenario.storm_seconds
        self._trouble_tables()
        while (left := end - world.loop.time()) > 0:
            pause = random.random() ** 2 * scenario.storm_seconds / 3
            await asyncio.sleep(min(pause, left))
            self._strike(random.choice(scenario.troubles))

    def _trouble_tables(self) -> None:
        troubles = self._world.scenario.troubles
        if "no_batch_column" in troubles:
            for table in self._world.server.tables.values():
                table.has_batch = self._random.random() < 0.4
        if "bad_rows" in troubles or "small_quarantine" in troubles:
            for table in self._world.server.tables.values():
                table.has_constraint = True
                table.names_bad_row = self._random.random() < 0.5

    def _strike(self, trouble: str) -> None:
        world, random = self._world, self._random
        world.note(f"storm: {trouble}")
        match trouble:
            case "kill" if alive := [s for s in world.slots if s.process is not None]:
                world.kill(random.choice(alive))
            case "power":
                world.cut_power()
            case "kill_then_power":
                for slot in world.slots:
                    world.kill(slot)
                world.loop.call_later(random.random() * 2, self._cut_power_again)
            case "orderly":
                for slot in random.sample(world.slots, random.randint(1, len(world.slots))):
                    slot.stop.set()
            case "workers":
                world.want_workers(random.choice([1, 1, 2, 3]))
            case "wall_clock":
                world.wall.jump(random.choice([-3_600, -30, -1, 1, 30, 700, 90_000]))
            case "rot":
                self._rot()
            case "missing_table":
                table = world.server.tables[random.choice(list(StreamKind))]
                table.is_missing = not table.is_missing
            case "server_down":
                world.server.go_down()
                world.loop.call_later(random.random() * 2, world.server.come_up)
            case "server_power":
                world.server.lose_power()
                world.loop.call_later(random.random() * 2, world.server.come_up)
            case "small_quarantine":
                world.empty_quarantines()
            case "full_disk":
                world.disk.capacity = world.disk.used_bytes + random.randrange(2_000)
                world.loop.call_later(random.random() * 2, self._make_room)
            case _:
                self._mood(trouble)

    def _mood(self, trouble: str) -> None:
        """Something is likelier for a while."""
        random = self._random
        disk, server = DiskMood(), ServerMood()
        much = random.choice([0.1, 0.4, 0.9])
        match trouble:
            case "kill_at_call":
                disk.kills = much / 10
            case "cut_at_call":
                disk.cuts = much / 10
            case "sync_fails":
                disk.sync_fails = much
            case "write_fails":
                disk.write_fails, disk.write_short = much / 2, much / 2
            case "names_fail":
                disk.name_fails = much / 2
            case "reads_fail":
                disk.read_fails = much / 5
            case "slow_sync":
                disk.sync_slow, disk.sync_hung = much, much / 10
            case "server_refuses":
                server.refuses = much
            case "operator":
                server.refuses_for_operator = much
            case "lost_answers":
                server.loses_request, server.loses_answer = much / 2, much / 2
            case "slow_server":
                server.is_slow = much
            case "cracks":
                server.cracks = much
            case "late_requests":
                server.arrives_late, server.loses_answer = much, 0.1
            case "views_fail":
                server.view_fails = much
        world = self._world
        if disk != DiskMood():
            world.disk.mood = _joined(world.disk.mood, disk)
        if server != ServerMood():
            world.server.mood = _joined(world.server.mood, server)
        world.loop.call_later(random.random() * 2, self._calm, random.random())

    def _calm(self, chance: float) -> None:
        if chance < 0.7:
            self._world.disk.mood, self._world.server.mood = DiskMood(), ServerMood()

    def _cut_power_again(self) -> None:
        """What the next start read from the page cache may be gone."""
        if not self._world.is_healed:
            self._world.cut_power()

    def _make_room(self) -> None:
        self._world.disk.capacity = None

    def _rot(self) -> None:
        """Bytes change while nobody holds the file: found at the next start."""
        world = self._world
        world.cut_power()
        if (what := world.rot.strike()) is not None:
            world.note(what)
        world.server.is_strict = not world.rot.has_hit_checkpoint


def _joined(one: Mood, other: Mood) -> Mood:
    for name, value in vars(other).items():
        setattr(one, name, max(getattr(one, name), value))
    return one
