"""Tasks that must not end."""

import asyncio

from buffer.errors import Broken
from buffer.metrics import NoMetrics
from buffer.retry import Backoff
from buffer.statistics import TASK_DEAD_SECONDS
from buffer.tasks import SupervisedTask
from tests.buffer.delivery_rig import LeapingClock


def supervised(run, clock=None):
    return SupervisedTask(
        "writer one", run, clock=clock or LeapingClock(), metrics=NoMetrics(), random=lambda: 0.0
    )


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


async def test_it_is_started_again_until_it_returns():
    lives = []

    async def run():
        lives.append(1)
        if len(lives) < 4:
            raise RuntimeError("boom")

    task = supervised(run)
    task.start()
    await task.join()
    assert len(lives) == 4
    assert task.is_done
    assert task.statistics().failures == 3


async def test_a_life_that_lasts_forgives_what_was_before():
    clock = LeapingClock()
    gate = asyncio.Event()
    lives = []

    async def run():
        lives.append(1)
        if len(lives) < 3:
            raise RuntimeError("boom")
        await gate.wait()

    task = supervised(run, clock)
    task.start()
    await until(lambda: len(lives) == 3)
    assert task.statistics().failing_seconds > 0
    clock.offset += 11
    assert task.statistics().failing_seconds == 0
    await task.stop()


async def test_one_that_dies_and_dies_is_dead_within_seconds():
    clock = LeapingClock()

    async def run():
        raise RuntimeError("boom")

    task = supervised(run, clock)
    task.start()
    begun = clock.monotonic()
    await until(lambda: task.statistics().failing_seconds >= TASK_DEAD_SECONDS)
    assert clock.monotonic() - begun < 5
    assert "boom" in task.statistics().last_error
    await task.stop()


async def test_a_broken_invariant_is_not_tried_again():
    lives = []

    async def run():
        lives.append(1)
        raise Broken("state unknown")

    task = supervised(run)
    task.start()
    await task.join()
    assert len(lives) == 1
    assert not task.statistics().is_alive
    assert task.statistics().last_error == "Broken: state unknown"


async def test_cancelling_ends_it():
    task = supervised(asyncio.Event().wait)
    task.start()
    await asyncio.sleep(0)
    assert task.statistics().is_alive
    await task.stop()
    assert not task.statistics().is_alive


def test_waits_double_to_their_cap_and_have_a_random_half():
    low, high = Backoff(0.1, 10.0, lambda: 0.0), Backoff(0.1, 10.0, lambda: 0.999999)
    assert [round(low.seconds(n), 3) for n in (1, 2, 3)] == [0.05, 0.1, 0.2]
    assert low.seconds(10**9) == 5.0
    assert 9.99 < high.seconds(10**9) <= 10.0
