"""Memory for bodies: bounded, first come first served, and never a deadlock."""

from __future__ import annotations

import asyncio
import random

import pytest

from ingest.admission import GROWERS_MAX, Admission
from ingest.answers import RequestRefused

MIB = 2**20


def admission(wait_seconds_max: float = 5.0) -> Admission:
    return Admission(
        inflight_bytes_max=128 * MIB, body_bytes_max=64 * MIB, wait_seconds_max=wait_seconds_max
    )


async def test_twenty_bodies_of_64_mib_go_one_after_the_other_and_small_ones_pass():
    pool = admission()
    most = served = 0

    async def large() -> None:
        nonlocal most, served
        async with pool.admit(64 * MIB) as reservation:
            await reservation.grow(1)
            most = max(most, pool.statistics().inflight_bytes)
            await asyncio.sleep(0.01)
            served += 1

    tasks = [asyncio.create_task(large()) for _ in range(20)]
    await asyncio.sleep(0)
    for _ in range(5):
        async with asyncio.timeout(0.5):
            assert await _admit(pool, 50_000) == 50_000
    await asyncio.gather(*tasks)
    assert served == 20
    assert most <= 128 * MIB
    assert pool.statistics().inflight_bytes == 0


async def test_a_wait_is_bounded_and_takes_nothing():
    pool = admission(wait_seconds_max=0.05)
    async with pool.admit(64 * MIB) as reservation:
        await reservation.grow(1)
        with pytest.raises(RequestRefused) as caught:
            await _admit(pool, 60 * MIB)
        assert caught.value.response().status == 503
        assert pool.statistics().inflight_bytes == 64 * MIB
    assert await _admit(pool, 60 * MIB) == 60 * MIB


async def test_a_waiter_that_is_cancelled_lets_the_next_one_in():
    pool = admission()
    async with pool.admit(100 * MIB) as reservation:
        await reservation.grow(1)
        first = asyncio.create_task(_admit(pool, 60 * MIB))
        await asyncio.sleep(0)
        second = asyncio.create_task(_admit(pool, 10 * MIB))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        async with asyncio.timeout(1):
            assert await second == 10 * MIB
    assert pool.statistics().inflight_bytes == 0


async def test_a_body_of_unknown_size_takes_a_mib_then_the_largest_and_gives_the_rest_back():
    pool = admission()
    async with pool.admit(None) as reservation:
        assert reservation.size == 0
        await reservation.grow(10)
        await reservation.grow(MIB)
        assert reservation.size == MIB
        await reservation.grow(MIB + 1)
        assert reservation.size == 64 * MIB
        await reservation.grow(64 * MIB)
        assert reservation.size == 64 * MIB
        reservation.shrink(3 * MIB)
        assert reservation.size == pool.statistics().inflight_bytes == 3 * MIB
    assert pool.statistics().inflight_bytes == 0


async def test_growing_bodies_do_not_starve_small_ones():
    pool = admission(wait_seconds_max=0.2)
    async with pool.admit(64 * MIB) as reservation:
        await reservation.grow(1)
        growers = [asyncio.create_task(_grow(pool, 2 * MIB)) for _ in range(50)]
        await asyncio.sleep(0.05)
        async with asyncio.timeout(0.1):
            assert await _admit(pool, 50_000) == 50_000
        outcomes = await asyncio.gather(*growers, return_exceptions=True)
        assert all(isinstance(outcome, RequestRefused) for outcome in outcomes)
    assert pool.statistics().inflight_bytes == 0


async def test_small_bodies_use_the_large_pool_when_theirs_is_used_up():
    pool = admission()
    async with asyncio.TaskGroup() as group:
        leave = asyncio.Event()
        for _ in range(100):
            group.create_task(_hold(pool, MIB, leave))
        await asyncio.sleep(0.01)
        assert pool.statistics().inflight_bytes == 100 * MIB
        leave.set()
    assert pool.statistics().inflight_bytes == 0


async def test_held_requests_are_bounded_in_number_and_bytes():
    pool = Admission(inflight_bytes_max=10 * MIB, body_bytes_max=4 * MIB, held_requests_max=2)
    async with pool.hold(3 * MIB) as first, pool.hold(3 * MIB) as second, pool.hold(1) as third:
        assert (first, second, third) == (True, False, True)
        async with pool.hold(1) as fourth:
            assert fourth is False
    assert pool.statistics().held_bytes == 0


@pytest.mark.parametrize("seed", range(20))
async def test_random_bodies_all_end_and_all_is_given_back(seed):
    chance = random.Random(seed)
    pool = Admission(inflight_bytes_max=12 * MIB, body_bytes_max=4 * MIB, wait_seconds_max=30.0)

    async def one() -> None:
        known = chance.random() < 0.5
        size = int(4 * MIB * chance.random() ** 4) + 1
        try:
            async with asyncio.timeout(chance.choice([0.001, 0.01, 5])):
                async with pool.admit(size if known else None) as reservation:
                    for part in range(1, 6):
                        await reservation.grow(size * part // 5)
                        assert pool.statistics().inflight_bytes <= 12 * MIB
                        await asyncio.sleep(0)
                    reservation.shrink(size)
                    assert reservation.size == size
                    await asyncio.sleep(0)
        except (RequestRefused, TimeoutError):
            pass

    # Well below the bounded wait: nobody's time runs out because two wait for each other.
    async with asyncio.timeout(10):
        await asyncio.gather(*(one() for _ in range(100)))
    assert pool.statistics().inflight_bytes == 0
    assert pool.statistics().waiting_requests == 0
    assert GROWERS_MAX * MIB < 12 * MIB - 4 * MIB


async def _admit(pool: Admission, size: int) -> int:
    async with pool.admit(size) as reservation:
        await reservation.grow(1)
        return reservation.size


async def _grow(pool: Admission, size: int) -> None:
    async with pool.admit(None) as reservation:
        for at in range(0, size + 1, MIB // 4):
            await reservation.grow(at)


async def _hold(pool: Admission, size: int, leave: asyncio.Event) -> None:
    async with pool.admit(size) as reservation:
        await reservation.grow(1)
        await leave.wait()
