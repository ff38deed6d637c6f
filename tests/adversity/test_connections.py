"""Thousands of connections that are slow, idle or deaf: a normal client does not notice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.adversity.bystander import TIME_MS, head, undisturbed

if TYPE_CHECKING:
    from loadtest.throwaway import Server

pytestmark = pytest.mark.slow

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def opened(server: Server, count: int, sent: bytes) -> list[Connection]:
    async def one() -> Connection:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(sent)
        return reader, writer

    found: list[Connection] = []
    while len(found) < count:
        found += await asyncio.gather(*(one() for _ in range(min(200, count - len(found)))))
    return found


async def ends(connections: list[Connection], seconds: float) -> Counter[str]:
    """How each ended: the status of its answer, or `open` where it has none in time."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        try:
            async with asyncio.timeout(seconds):
                line = await reader.readline()
            return line[9:12].decode() if line else "closed"
        except TimeoutError:
            return "open"
        except ConnectionError:
            return "closed"
        finally:
            writer.transport.abort()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    return Counter(await asyncio.gather(*(one(*connection) for connection in connections)))


@pytest.mark.parametrize("what", ["headers", "bodies"])
async def test_f15_two_thousand_drips_are_ended_in_time(server: Server, what: str) -> None:
    sent = b"POST /ing" if what == "headers" else head(server, b"Content-Length: 999\r\n\r\n{")
    async with undisturbed(server):
        drips = await opened(server, 2_000, sent)
        for _ in range(4):
            await asyncio.sleep(0.5)
            for _, writer in drips:
                if writer.is_closing():
                    continue
                writer.write(b" " if what == "bodies" else b"e")
        found = await ends(drips, 8)
    # What is sent after the end may reset the connection before its answer is read: how often is
    # the machine's business.
    assert found["408"] + found["closed"] == 2_000
    assert found["408"] > 0


async def test_ten_thousand_idle_connections_cost_a_normal_client_nothing(
    server: Server, descriptors: int
) -> None:
    count = min(10_000, descriptors - 500)
    async with undisturbed(server):
        idle = await opened(server, count, b"")
        found = await ends(idle, 8)
    assert found["408"] == count


@pytest.mark.parametrize(
    ("count", "more"),
    [
        (200, b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"),
        (1_100, b"Content-Length: 131072\r\n\r\n{"),
    ],
    ids=["chunked", "of 128 KiB"],
)
async def test_bodies_that_drip_do_not_hold_the_memory_that_others_wait_for(
    server: Server, count: int, more: bytes
) -> None:
    # Each reserves memory with its first byte, together all that there is.
    async with undisturbed(server):
        drips = await opened(server, count, head(server, more))
        await asyncio.sleep(2)
        found = await ends(drips, 6)
    assert found["408"] + found["closed"] == count


async def test_small_bodies_that_stall_are_bounded_in_the_memory_they_take(server: Server) -> None:
    sent = head(server, b"Content-Length: 61000\r\n\r\n{" + b" " * 60_000)
    async with undisturbed(server):
        stalled = await opened(server, 3_000, sent)
        found = await ends(stalled, 8)
    # Where bytes of the body are unread at the end, the kernel's reset may overtake the answer.
    assert found["408"] + found["closed"] == 3_000
    assert found["408"] > 2_900


async def test_a_client_that_never_reads_its_answers_is_not_answered_for_ever(
    server: Server,
) -> None:
    one = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"
    async with undisturbed(server):
        connections = await opened(server, 20, b"")
        for _, writer in connections:
            writer.transport.pause_reading()
            writer.write(one * 2_000)
        await asyncio.sleep(3)
        for _, writer in connections:
            writer.transport.abort()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def test_twenty_thousand_pipelined_requests_are_all_answered(server: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n" * 20_000)
    found, end = 0, b""
    async with undisturbed(server):
        async with asyncio.timeout(20):
            while found < 20_000:
                data = end + await reader.read(2**20)
                found += data.count(b"HTTP/1.1 200")
                end = data[-11:]
    writer.close()
    await writer.wait_closed()


async def test_who_sent_all_in_time_is_answered_though_the_server_stood_still(
    server: Server,
) -> None:
    """As when a machine is suspended: its deadlines of 2 and 3 s are over when it goes on."""
    line = b'{"time":%d,"step":1,"data":{"a":1}}\n' % TIME_MS
    create = b'{"runName":"r","projectName":"p"}'
    requests = [
        (head(server, b"Content-Length: %d\r\n\r\n" % len(body), path=path), body)
        for path, body in ((b"/ingest/metrics", line * 20_000), (b"/api/runs/create", create))
    ]
    (worker,) = server.worker_pids()
    cuts = [(whole + body, at) for whole, body in requests for at in (30, len(whole) + 5)]
    connections = [(await opened(server, 1, sent[:at]))[0] for sent, at in cuts]
    await asyncio.sleep(0.3)  # until it has read so much
    os.kill(worker, signal.SIGSTOP)
    try:
        for (_, writer), (sent, at) in zip(connections, cuts, strict=True):
            writer.write(sent[at:])
        await asyncio.sleep(3.5)
    finally:
        os.kill(worker, signal.SIGCONT)
    assert await ends(connections, 20) == {"200": 4}
