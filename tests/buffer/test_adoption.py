"""Adopting shards on a disk that fails now and then."""

import asyncio
import errno

import pytest

from buffer.fs import RealFileSystem
from buffer.shard import list_shards
from tests.buffer.delivery_rig import LeapingClock, metrics
from tests.buffer.test_writeahead import Yard, submission, until


class Failing(RealFileSystem):
    """Segments cannot be opened for writing, so many times."""

    def __init__(self):
        self.failures = 0

    def open_write(self, path):
        if self.failures and path.suffix == ".seg":
            self.failures -= 1
            raise OSError(errno.EIO, "no")
        return super().open_write(path)


@pytest.fixture
async def yard(tmp_path):
    made = Yard(tmp_path)
    made.fs = Failing()
    yield made
    for buffer in made.opened:
        await buffer.close(0.5)


async def test_a_shard_that_the_disk_would_not_open_is_tried_again(yard):
    yard.sink.is_down = True
    first, second = await yard.open(), await yard.open()
    await first.append(submission(metrics(1.0)))
    await second.append(submission(metrics(2.0)))
    await yard.kill(first)
    await yard.kill(second)
    clock = LeapingClock()
    await yard.open(clock=clock)
    yard.sink.is_down = False
    yard.fs.failures = 3
    await until(lambda: sorted(yard.values()) == [1.0, 2.0])
    await until(lambda: len(list_shards(yard.fs, yard.root)) == 1)
    assert yard.fs.failures == 0
    assert "shards_unreadable" not in yard.metrics.counts


async def test_a_shard_whose_adoption_ends_half_way_is_free_again(yard, monkeypatch):
    class Ends:
        left = 2

        def __init__(self, *args):
            pass

        async def work_off(self):
            if Ends.left:
                Ends.left -= 1
                raise RuntimeError("half way")
            return []

    monkeypatch.setattr("buffer.adoption.Resender", Ends)
    yard.sink.is_down = True
    first, second = await yard.open(), await yard.open()
    await first.append(submission(metrics(1.0)))
    await second.append(submission(metrics(2.0)))
    await yard.kill(first)
    await yard.kill(second)
    yard.sink.is_down = False
    await yard.open(clock=LeapingClock())
    await until(lambda: sorted(yard.values()) == [1.0, 2.0])
    await asyncio.sleep(0)
    assert Ends.left == 0
