"""Large requests are taken, within bounds of memory, and do not stand in others' way."""

from __future__ import annotations

import asyncio
import time
import urllib.error
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import orjson
import pytest

from tests.e2e.conftest import eventually

if TYPE_CHECKING:
    from loadtest.throwaway import Server

TIME_MS = 1_764_423_221_123
PEAK_MIB_MAX = 400.0
POINTS_RUN, FIRST_RUN = 2_000, 2_001


def headers(server: Server, run: int = 1) -> dict[str, str]:
    return {
        "Authorization": f"Bearer {server.key}",
        "X-Run-Id": str(run),
        "X-Project-Name": "bounds",
        "Content-Type": "application/x-ndjson",
    }


def line(step: int, data: dict[str, float]) -> bytes:
    return orjson.dumps({"time": TIME_MS + step, "step": step, "data": data}) + b"\n"


def memory_mib(pid: int, field: str) -> float:
    """`VmHWM` (peak) or `VmRSS` (now) of a process."""
    for row in Path(f"/proc/{pid}/status").read_text().splitlines():
        if row.startswith(field + ":"):
            return int(row.split()[1]) / 1024
    raise AssertionError(f"no {field} of {pid}")


async def post(session: aiohttp.ClientSession, server: Server, body: bytes, run: int = 1) -> dict:
    async with session.post(
        server.url + "/ingest/metrics", data=BytesIO(body), headers=headers(server, run)
    ) as response:
        answer = await response.json()
        return {"status": response.status, **answer}


def session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=110))


def test_an_idle_worker_is_small(server: Server) -> None:
    (worker,) = server.worker_pids()
    assert memory_mib(worker, "VmRSS") < 120


@pytest.mark.slow
async def test_fifty_thousand_names_and_a_million_points_are_taken_whole(server: Server) -> None:
    wide = line(0, {f"wide/n{n}": n / 3 for n in range(50_000)})
    names = [f"long/m{n}" for n in range(100)]
    long = b"".join(line(s, {n: s + i / 7 for i, n in enumerate(names)}) for s in range(10_000))
    async with session() as client:
        for body, rows in ((wide, 50_000), (long, 1_000_000)):
            answer = await post(client, server, body, POINTS_RUN)
            assert (answer["status"], answer["accepted"], answer["rejected"]) == (200, rows, 0)
    await asyncio.to_thread(
        eventually, lambda: rows_of(server, POINTS_RUN) == 1_050_000, 60, "1,050,000 rows"
    )
    (sums,) = server.sql(
        "SELECT uniqExact(logName), sumIf(value, startsWith(logName, 'wide/')), "
        "sumIf(value, startsWith(logName, 'long/')), uniqExact(tuple(logName, step)) "
        f"FROM mlop_metrics WHERE runId = {POINTS_RUN}"
    )
    assert int(sums[0]) == 50_100
    assert sums[1] == pytest.approx(sum(n / 3 for n in range(50_000)))
    assert sums[2] == pytest.approx(sum(s + i / 7 for s in range(10_000) for i in range(100)))
    assert int(sums[3]) == 1_050_000
    (worker,) = server.worker_pids()
    assert memory_mib(worker, "VmHWM") < PEAK_MIB_MAX


@pytest.mark.slow
async def test_twenty_bodies_of_64_mib_leave_room_for_others(server: Server) -> None:
    # Long names make few rows of many bytes, so that the body's size is what is tested.
    head = "big/" + "n" * 60_000
    part = b"".join(line(s, {f"{head}{n}": float(n) for n in range(4)}) for s in range(16))
    body = part * (64 * 2**20 // len(part))
    assert 60 * 2**20 < len(body) <= 64 * 2**20

    async def one(run: int) -> int:
        # Each differs in its run, so none is a repeat. A refusal for want of room says so.
        async with session() as client:
            answer = await post(client, server, body, run)
        assert answer["status"] in {200, 503}, answer
        return answer["status"]

    async def others() -> list[float]:
        waits = []
        async with session() as client:
            while not bodies.done():
                began = time.monotonic()
                answer = await post(client, server, line(len(waits), {"small": 1.0}), run=1_000)
                assert answer["status"] == 200, answer
                waits.append(time.monotonic() - began)
                await asyncio.sleep(0.02)
        return waits

    bodies = asyncio.ensure_future(asyncio.gather(*(one(run) for run in range(1, 21))))
    waits = await others()
    assert (await bodies).count(200) >= 1
    (worker,) = server.worker_pids()
    assert memory_mib(worker, "VmHWM") < PEAK_MIB_MAX
    assert len(waits) >= 5
    assert max(waits) < 10.0


def test_a_start_does_not_wait_for_the_engine(server: Server) -> None:
    # How long a start takes is in docs/benchmarks.md; here, that it takes no engine.
    server.stop()
    server.start(is_ready=False)

    async def first() -> dict:
        async with session() as client:
            return await post(client, server, line(1, {"first": 1.0}), FIRST_RUN)

    assert asyncio.run(first())["accepted"] == 1
    eventually(lambda: rows_of(server, FIRST_RUN) == 1, 30, "the first row")


def rows_of(server: Server, run: int) -> int | None:
    """Rows of a run; None while the engine does not answer."""
    try:
        return int(server.sql(f"SELECT count() FROM mlop_metrics WHERE runId = {run}")[0][0])
    except urllib.error.URLError:
        return None
