"""The catalogue locked by somebody's long transaction, or deleted: ingest goes on."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from typing import TYPE_CHECKING

import aiohttp
import pytest

from loadtest.throwaway import throwaway_server
from tests.adversity.bystander import TIME_MS, headers, undisturbed

if TYPE_CHECKING:
    from loadtest.throwaway import Server

pytestmark = pytest.mark.slow

LINE = b'{"time":%d,"step":1,"data":{"a":1}}\n' % TIME_MS


async def post(
    client: aiohttp.ClientSession, server: Server, path: str, body: bytes, run: int = 7, **more: str
) -> tuple[int, dict]:
    sent = {**headers(server, run), **more}
    async with client.post(server.url + path, data=body, headers=sent) as answer:
        return answer.status, await answer.json()


async def test_a_catalogue_that_is_locked_for_ten_seconds_holds_no_row_up(server: Server) -> None:
    def write() -> sqlite3.Connection:
        connection = sqlite3.connect(
            server.data_dir / "catalog.sqlite", isolation_level=None, check_same_thread=False
        )
        connection.execute("BEGIN EXCLUSIVE")
        return connection

    create = b'{"runName":"r","projectName":"locked"}'
    async with undisturbed(server), aiohttp.ClientSession() as client:
        with contextlib.closing(await asyncio.to_thread(write)) as lock:
            # A run's creation waits for the lock; rows, also of a run not heard of, do not.
            created = asyncio.create_task(post(client, server, "/api/runs/create", create))
            async with asyncio.timeout(10):
                for run in range(500, 600):
                    status, body = await post(client, server, "/ingest/metrics", LINE, run)
                    assert (status, body["accepted"]) == (200, 1)
                    await asyncio.sleep(0.05)
            assert not created.done()
            lock.execute("ROLLBACK")
        assert (await created)[0] == 200


async def test_a_catalogue_that_is_deleted_is_told_and_rows_are_taken() -> None:
    with throwaway_server(auth_refresh_seconds="0.5") as server:
        async with undisturbed(server), aiohttp.ClientSession() as client:
            for file in server.data_dir.glob("catalog.sqlite*"):
                file.unlink()
            create = b'{"runName":"r","projectName":"p"}'
            status, body = await post(client, server, "/api/runs/create", create)
            assert (status, body["code"]) == (503, "DATABASE_UNAVAILABLE")
            unknown = f"Bearer mlps_{'z' * 24}"
            status, body = await post(
                client, server, "/ingest/metrics", LINE, Authorization=unknown
            )
            assert (status, body["code"]) == (503, "DATABASE_UNAVAILABLE")
            async with asyncio.timeout(10):
                while True:
                    async with client.get(server.url + "/health/ready") as answer:
                        state = await answer.json()
                        assert answer.status == 200
                    if state["checks"]["catalogue"]["status"] == "down":
                        break
                    await asyncio.sleep(0.1)
            await asyncio.sleep(1)  # two refreshes of the key in use
            status, body = await post(client, server, "/ingest/metrics", LINE, 9)
            assert (status, body["accepted"]) == (200, 1)


async def test_a_flood_of_unknown_keys_is_refused_and_known_ones_are_served(
    server: Server,
) -> None:
    async with undisturbed(server), aiohttp.ClientSession() as client:

        async def one(number: int) -> int:
            key = f"Bearer mlps_{number:024d}"
            return (await post(client, server, "/ingest/metrics", LINE, Authorization=key))[0]

        found = await asyncio.gather(*(one(number) for number in range(1_000)))
    assert set(found) <= {401, 429, 503}
    assert found.count(401) >= 30
    assert found.count(429) >= 500  # their address has tried enough keys
