"""A replay: rows are in the quarantine or in a shard of their own, whenever it is killed."""

import asyncio
import shutil
from dataclasses import replace

import pytest

from buffer.errors import LogFull, ShardTaken
from buffer.fs import RealFileSystem
from buffer.options import BufferOptions
from buffer.replay import Replayed, complete, make_shard, replaying
from buffer.shard import list_shards
from tests.buffer.delivery_rig import LeapingClock, logs, metrics
from tests.buffer.test_writeahead import Yard

FS = RealFileSystem()
OPTIONS = BufferOptions(batch_age_seconds_max=0.02, disk_free_bytes_min=0)
SHARD = "ab" * 16


@pytest.fixture
def root(tmp_path):
    entry = tmp_path / SHARD / "quarantine" / "rows-x.q"
    entry.parent.mkdir(parents=True)
    entry.write_bytes(b"an entry")
    return tmp_path


def frames(*values):
    return [Replayed(metrics(value), 1_000) for value in values]


def entries(root):
    return [path.name for path in root.glob("*/quarantine/*")]


def makes(root, *values, fs=FS, options=OPTIONS):
    with replaying(fs, root):
        return asyncio.run(make_shard(fs, root, frames(*values), options, take_out=["rows-x.q"]))


async def delivered(root, *, count):
    """The values that a living worker's table has, once there are so many."""
    yard = Yard(root)
    buffer = await yard.open(clock=LeapingClock())
    async with asyncio.timeout(10):
        while len(yard.values()) < count or len(list_shards(FS, root)) > 2:
            await asyncio.sleep(0.01)
    await buffer.close(1.0)
    return yard.values()


def test_a_shard_of_its_own_is_adopted_and_drained_by_a_living_worker(root):
    made = makes(root, 1.0, 2.0, 3.0)
    assert (made.frames, made.rows) == (3, 3)
    assert entries(root) == []
    assert [one.name for one in list_shards(FS, root)] == sorted([SHARD, made.shard])
    assert asyncio.run(delivered(root, count=3)) == [1.0, 2.0, 3.0]


def test_nothing_to_send_makes_nothing(root):
    assert makes(root).shard == ""
    assert [one.name for one in list_shards(FS, root)] == [SHARD]
    assert not list(root.glob("*.new"))


def test_one_replay_at_a_time(root):
    with replaying(FS, root), pytest.raises(ShardTaken), replaying(FS, root):
        pass


def test_without_room_nothing_is_left_and_nothing_is_taken_out(root):
    with pytest.raises(LogFull):
        makes(root, 1.0, options=replace(OPTIONS, disk_free_bytes_min=2**62))
    assert entries(root) == ["rows-x.q"]
    assert not list(root.glob("*.new"))


class Killed(BaseException):
    pass


class Dying(RealFileSystem):
    """Ends at its n-th change of the disk, as a kill does: nothing after it is done."""

    def __init__(self, left):
        self.left = left

    def _step(self):
        self.left -= 1
        if self.left < 0:
            raise Killed

    def create(self, path):
        self._step()
        return super().create(path)

    def rename(self, source, target):
        self._step()
        super().rename(source, target)

    def unlink(self, path):
        self._step()
        super().unlink(path)

    def pwritev(self, fd, pieces, offset):
        self._step()
        return super().pwritev(fd, pieces, offset)

    def fdatasync(self, fd):
        self._step()
        super().fdatasync(fd)


def test_a_kill_at_any_step_leaves_the_rows_in_one_place(root):
    template = root.with_name("template")
    root.rename(template)
    for steps in range(100):
        shutil.copytree(template, root)
        try:
            makes(root, 1.0, fs=Dying(steps))
        except Killed:
            is_killed = True
        else:
            is_killed = False
        with replaying(FS, root):  # the next replay finishes, or clears away
            pass
        made = [one for one in list_shards(FS, root) if one.name != SHARD]
        assert bool(entries(root)) != bool(made), f"killed at step {steps}"
        assert not list(root.glob("*.new"))
        if made:
            assert (made[0] / "checkpoint").exists()
        if not is_killed:
            break
        shutil.rmtree(root)
    assert not is_killed
    assert steps > 10
    assert complete(FS, root) == 0


def test_an_entry_that_moved_to_another_shard_meanwhile_is_taken_out_there(root):
    other = root / ("cd" * 16) / "quarantine"
    other.mkdir(parents=True)

    def moving():
        yield Replayed(logs("a"), 1_000)
        (root / SHARD / "quarantine" / "rows-x.q").rename(other / "rows-x.q")

    with replaying(FS, root):
        asyncio.run(make_shard(FS, root, moving(), OPTIONS, take_out=["rows-x.q"]))
    assert entries(root) == []
