"""Connections: deadlines for headers, what is no HTTP, too many. Raw bytes on real sockets."""

from __future__ import annotations

import asyncio
import gc
import json

import pytest
import structlog.testing

from ingest.connection import ConnectionLimits
from tests.ingest.serving import KEY, serving

HEADERS = (
    b"Host: a\r\nAuthorization: Bearer "
    + KEY.encode()
    + b"\r\nX-Run-Id: 7\r\nX-Project-Name: p\r\n"
)


@pytest.fixture(params=[True, False], ids=["fast", "aiohttp"])
async def server(request, tmp_path):
    limits = ConnectionLimits(header_seconds_max=0.3, idle_seconds_max=0.8, connections_max=50)
    async with serving(tmp_path, limits=limits, fast_lane=request.param) as running:
        yield running


async def test_f15_headers_that_drip_are_ended_at_an_absolute_time(server):
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    started = asyncio.get_running_loop().time()
    text = b""
    for byte in b"POST /ingest/metrics HTTP/1.1\r\nHost: a\r\n" * 5:
        try:
            writer.write(bytes([byte]))
            await writer.drain()
            async with asyncio.timeout(0.05):
                text = await reader.read()
            break
        except TimeoutError:
            continue
        except ConnectionError:
            break
    assert asyncio.get_running_loop().time() - started < 2
    assert b" 408 " in text.split(b"\r\n")[0]
    assert server.count("header_timeouts") == 1
    writer.close()


async def test_a_body_that_begins_in_two_parts_at_once_is_not_taken_for_a_head(server):
    """Two reads of one turn of the event loop, before the request's handler has its own turn."""
    head = b"POST /ingest/metrics HTTP/1.1\r\n" + HEADERS + b"Content-Length: 300000\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    while not server.app_connections():
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    (connection,) = server.app_connections()
    connection.data_received(head + b"\n" * 100_000)
    connection.data_received(b"\n" * 100_000)
    await asyncio.sleep(0.5)  # longer than the time for headers
    writer.write(b"\n" * 100_000)
    async with asyncio.timeout(3):
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    assert server.count("header_timeouts") == 0
    writer.close()


async def test_a_connection_that_says_nothing_is_ended_too(server):
    assert b" 408 " in await server.raw(b"", seconds=3)


async def test_the_second_requests_headers_have_a_deadline_too(server):
    first = b"POST /ingest/metrics HTTP/1.1\r\n" + HEADERS + b"Content-Length: 0\r\n\r\n"
    text = await server.raw(first + b"GET /hea", seconds=3)
    assert text.startswith(b"HTTP/1.1 200 ")


async def test_an_idle_connection_is_kept_between_requests_and_then_closed(server):
    request = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    for _ in range(2):
        writer.write(request)
        assert (await reader.readuntil(b"\r\n\r\nOK")).startswith(b"HTTP/1.1 200 ")
        await asyncio.sleep(
            0.45
        )  # longer than the time for headers: it counts from their first byte
    async with asyncio.timeout(3):
        assert await reader.read() == b""
    assert server.count("header_timeouts") == 0
    writer.close()


async def test_f15_slow_connections_do_not_hold_a_normal_client_up(server):
    slow = [asyncio.create_task(server.raw(b"POST /in", seconds=5)) for _ in range(40)]
    await asyncio.sleep(0.05)
    async with asyncio.timeout(1):
        assert (await server.post()).status == 200
    for one in slow:
        assert b" 408 " in await one


async def test_above_the_limit_of_connections_there_is_a_503(server):
    held = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(50)]
    await asyncio.sleep(0.05)
    text = await server.raw(b"")
    assert b" 503 " in text.split(b"\r\n")[0]
    assert server.count("connections_refused") == 1
    for _, writer in held:
        writer.close()
    async with asyncio.timeout(3):
        while server.factory.connection_count > 10:
            await asyncio.sleep(0.01)
    assert (await server.post()).status == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"POST /ingest/metrics HTTP/1.1\r\n"
        + HEADERS
        + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /ingest/metrics HTTP/1.1\r\n"
        + HEADERS
        + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"POST /ingest/metrics HTTP/1.1\r\n"
        + HEADERS
        + b"Transfer-Encoding: chunked\r\n\r\n2;a\nb\r\n{}\r\n0\r\n\r\n",
        b"POST /ingest/metrics HTTP/1.1\r\n" + HEADERS + b"Content-Length: -1\r\n\r\n",
        b"POST /ingest/metrics HTTP/1.1\r\nAuthorization : Bearer " + KEY.encode() + b"\r\n\r\n",
        b"POST /ingest/metrics HTTP/1.1\r\nAuthorization: Bearer " + KEY.encode() + b"\0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 TLS to a plain port\r\n\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: " + b"a" * 20_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 1_000 + b"\r\n",
    ],
    ids=[
        *("CL+TE", "two CLs", "LF in a chunk extension", "CL below 0", "space before colon", "NUL"),
        *("TLS", "long path", "long header", "many headers"),
    ],
)
async def test_f16_what_is_not_http_is_400_and_closed(server, sent, capsys):
    text = await server.raw(sent)
    head, _, body = text.partition(b"\r\n\r\n")
    assert b" 400 " in head.split(b"\r\n")[0], text
    assert b"Connection: close" in head
    assert json.loads(body)["code"] == "MALFORMED_REQUEST"
    assert server.buffer.submissions == []
    assert KEY[:12] not in capsys.readouterr().out + text.decode()


async def test_two_requests_in_one_segment_are_both_answered(server):
    body = b'{"time":1764423221123,"step":3,"data":{"loss":0.5}}'
    one = b"POST /ingest/metrics HTTP/1.1\r\n" + HEADERS + b"Content-Length: %d\r\n\r\n%s"
    one %= (len(body), body)
    text = await server.raw(one + one)
    assert text.count(b"HTTP/1.1 200 ") == 2


async def connected(server):
    """A client's writer, and the server's own side of its connection."""
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    async with asyncio.timeout(5):
        while not (known := server.app_connections()):
            await asyncio.sleep(0.01)
    (connection,) = known
    return writer, connection


async def test_a_request_whose_client_is_gone_before_it_begins_is_no_error_of_ours(server):
    told = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))
    writer, connection = await connected(server)
    task = connection._task_handler
    # What a loop may do in one turn: a whole request is there, and then the reset that follows it.
    connection.data_received(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
    connection.connection_lost(ConnectionResetError())
    await asyncio.wait([task], timeout=5)
    assert task.cancelled() or task.exception() is None
    del task, connection
    gc.collect()
    await asyncio.sleep(0)
    assert told == []
    writer.close()


async def test_a_client_gone_between_its_head_and_the_handler_is_no_error_of_ours(server):
    writer, connection = await connected(server)
    task = connection._task_handler
    connection.data_received(
        b"POST /ingest/metrics HTTP/1.1\r\n" + HEADERS + b"Idempotency-Key: k\r\n"
        b"Content-Length: 9\r\n\r\n{"
    )
    await asyncio.sleep(0)  # aiohttp has taken the request, and its handler waits for its turn
    with structlog.testing.capture_logs() as said:
        connection.connection_lost(ConnectionResetError())
        await asyncio.wait([task], timeout=5)
    assert [one["event"] for one in said if one["log_level"] == "error"] == []
    assert server.admission.statistics().inflight_bytes == 0
    writer.close()
