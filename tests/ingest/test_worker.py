"""The worker process: what it needs to start, how it ends, what it takes while idle."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import aiohttp
import orjson
import pytest

from tests.ingest.worker_process import PASSWORD, ROOT, make_key, worker


def line(step: int) -> bytes:
    return b'{"time":1764423221123,"step":%d,"data":{"loss":0.5}}\n' % step


@pytest.fixture
async def key(tmp_path):
    return await make_key(tmp_path)


async def until(check, seconds: float = 15) -> None:
    async with asyncio.timeout(seconds):
        while not await check():
            await asyncio.sleep(0.05)


async def test_it_serves_with_clickhouse_away_beats_and_stops_in_order(tmp_path, key):
    async with worker(tmp_path) as one:
        status, _, text = await one.post(key, line(1))
        assert (status, orjson.loads(text)["accepted"]) == (200, 1)

        async def is_degraded() -> bool:
            status, _, text = await one.request("GET", "/health/ready")
            checks = orjson.loads(text)["checks"]
            assert status == 200
            return (
                checks["clickhouse"]["status"] == "down" and checks["catalogue"]["status"] == "up"
            )

        await until(is_degraded)

        async def beats() -> bool:
            return one.words.count("beat") >= 2

        await until(beats)
        assert await one.stop() == 0
        assert "Traceback" not in one.log


async def test_memory_of_an_idle_worker_is_under_120_mib(tmp_path):
    async with worker(tmp_path) as one:
        maps = Path(f"/proc/{one.process.pid}/smaps_rollup").read_text().splitlines()
        [resident] = [int(row.split()[1]) for row in maps if row.startswith("Rss:")]
        assert resident < 120 * 1_024


async def test_a_worker_loads_nothing_that_only_others_need():
    names = ("alembic", "typer", "chdb", "clickhouse_connect")
    code = f"import sys, ingest.worker; print([name for name in {names} if name in sys.modules])"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", code), stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    output, _ = await process.communicate()
    assert output == b"[]\n"


async def test_it_serves_with_the_catalogues_database_away(tmp_path):
    (tmp_path / "catalog.sqlite").mkdir()
    async with worker(tmp_path) as one:
        status, _, text = await one.post("mlps_whatever", line(1))
        assert (status, orjson.loads(text)["code"]) == (503, "DATABASE_UNAVAILABLE")
        assert (await one.request("GET", "/health"))[0] == 200
        assert (await one.request("GET", "/health/ready"))[0] == 200


async def test_a_repeat_is_known_after_kill_9_and_counters_go_on(tmp_path, key):
    async with worker(tmp_path) as one:
        assert (await one.post(key, line(1)))[0] == 200
        assert (await one.post(key, line(2)))[0] == 200

        async def is_written() -> bool:
            return b"rows_accepted" in (tmp_path / "status/worker-0.json").read_bytes()

        await until(is_written)
        await one.kill()
    async with worker(tmp_path) as two:
        _, _, text = await two.post(key, line(1))
        assert orjson.loads(text)["repeat"] is True
        _, _, text = await two.request("GET", "/metrics")
        assert 'charon_rows_accepted_total{stream="metrics"} ' in text


async def test_without_a_supervisor_it_ends_by_itself(tmp_path, key):
    async with worker(tmp_path, grace_seconds=60, drain_delay_seconds=60) as one:
        await one.post(key, line(1))
        one.process.stdin.close()
        async with asyncio.timeout(12):
            assert await one.process.wait() == 0


async def test_f17_on_sigterm_it_says_so_serves_on_and_then_finishes_what_is_in_flight(
    tmp_path, key
):
    async with worker(tmp_path, drain_delay_seconds=1.0) as one:
        started = time.monotonic()
        stopping = asyncio.create_task(one.stop())

        async def is_off() -> bool:
            return (await one.request("GET", "/health/ready"))[0] == 503

        await until(is_off)
        status, headers, _ = await one.post(key, line(1))
        assert (status, headers["Connection"]) == (200, "close")
        reader, slow = await asyncio.open_connection("127.0.0.1", one.port)
        slow.write(
            b"POST /ingest/metrics HTTP/1.1\r\nHost: a\r\nX-Run-Id: 1\r\nX-Project-Name: p\r\n"
            b"Authorization: Bearer %s\r\nContent-Length: %d\r\n\r\n" % (key.encode(), len(line(2)))
        )
        await slow.drain()
        await asyncio.sleep(max(0, started + 1.2 - time.monotonic()))
        slow.write(line(2))
        async with asyncio.timeout(5):
            answer = await reader.read()
        slow.close()
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert await stopping == 0


async def test_f42_no_secret_is_in_the_log_at_debug_level(tmp_path, key):
    async with worker(tmp_path, log_format="json") as one:
        await one.post(key, line(1))
        await one.post("mlps_unknownunknownunknown", line(1))
        await one.post("no key at all?", line(1))
        await one.request("POST", "/step", headers={"Authorization": f"Bearer {key}"})
        await one.request("GET", f"/{key}")
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
        writer.write(f"POST / HTTP/1.1\r\nAuthorization : Bearer {key}\r\n\r\n".encode())
        await reader.read()
        writer.close()
        _, _, metrics = await one.request("GET", "/metrics")
        await one.stop()
        everything = one.log + metrics + (tmp_path / "status/worker-0.json").read_text()
        for secret in (key[5:], "unknownunknown", "no key at all", PASSWORD):
            assert secret not in everything
        command = "".join(one.words)
        assert key not in command


async def test_f15_two_thousand_silent_connections_do_not_hold_a_client_up(tmp_path, key):
    async with worker(tmp_path, header_seconds_max=2) as one:
        held = []
        for _ in range(20):
            held += await asyncio.gather(
                *(asyncio.open_connection("127.0.0.1", one.port) for _ in range(100))
            )
        started = time.monotonic()
        for step in range(20):
            assert (await one.post(key, line(step)))[0] == 200
        assert time.monotonic() - started < 3
        for _, writer in held:
            writer.close()


async def test_two_workers_on_one_port_speak_for_each_other(tmp_path, key):
    async with (
        worker(tmp_path, workers=2) as one,
        worker(tmp_path, workers=2, slot=1, port=one.port) as two,
    ):
        for step in range(20):
            async with aiohttp.ClientSession() as one.client:  # a connection of its own each time
                assert (await one.post(key, line(step)))[0] == 200
        for asked in (one, two):

            async def is_whole(asked=asked) -> bool:
                async with aiohttp.ClientSession() as asked.client:
                    _, _, text = await asked.request("GET", "/metrics")
                return 'charon_rows_accepted_total{stream="metrics"} 20\n' in text

            await until(is_whole)
        await one.kill()

        async def is_missed() -> bool:
            async with aiohttp.ClientSession() as two.client:
                status, _, text = await two.request("GET", "/health/ready")
            return status == 200 and orjson.loads(text)["checks"]["workers"].get("starting") == 1

        await until(is_missed)
        async with aiohttp.ClientSession() as two.client:
            assert (await two.post(key, line(100)))[0] == 200
