"""The fast lane: what it serves, what it lends or gives to aiohttp, and nothing lost between."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct

import pytest

from buffer.errors import Closed, LogFull, OutcomeUnknown
from ingest.connection import ConnectionLimits
from ingest.lane import GATHERED_BYTES_MAX, SERVED_BYTES_MAX
from ingest.lane_kept import KEPT_BYTES_MAX
from tests.ingest.serving import KEY, LINE, serving

AUTH = b"Authorization: Bearer " + KEY.encode() + b"\r\n"
HEAD = (
    b"POST /ingest/metrics HTTP/1.1\r\nHost: a\r\n" + AUTH + b"X-Run-Id: 7\r\nX-Project-Name: p\r\n"
)


def post(body: bytes, more: bytes = b"") -> bytes:
    return HEAD + more + b"Content-Length: %d\r\n\r\n" % len(body) + body


def line(number: int) -> bytes:
    return b'{"time":1764423221123,"step":%d,"data":{"loss":0.5}}\n' % number


@pytest.fixture
async def server(tmp_path):
    limits = ConnectionLimits(header_seconds_max=5, idle_seconds_max=0.6, connections_max=100)
    async with serving(tmp_path, limits=limits) as running:
        # What makes a first request unusual: its key and its run are not known.
        assert (await running.post(body=b"")).status == 200
        yield running


class Client:
    """One connection."""

    def __init__(self, server):
        self.server = server

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        return self

    async def __aexit__(self, *_error):
        self.writer.close()

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> tuple[int, dict]:
        async with asyncio.timeout(5):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            body = await self.reader.readexactly(length)
        return int(head.split()[1]), json.loads(body)


def lanes(server) -> tuple[float, float]:
    return server.count("lane_requests", lane="fast"), server.count("lane_requests", lane="aiohttp")


async def test_plain_requests_are_served_one_after_the_other_and_counted(server):
    async with Client(server) as client:
        for number in range(3):
            client.send(post(line(number)))
            status, body = await client.answer()
            assert (status, body) == (200, {"accepted": 1, "rejected": 0, "errors": []})
    assert lanes(server) == (3, 1)
    assert server.count("rows_accepted", stream="metrics") == 3
    assert server.count("body_bytes", stream="metrics") == 3 * len(line(0))
    assert server.count("requests", route="/ingest/metrics", status="200") == 4
    assert len(server.buffer.submissions) == 3
    assert server.admission.statistics().inflight_bytes == 0


async def test_a_request_about_which_something_is_unusual_is_lent_and_the_lane_goes_on(server):
    async with Client(server) as client:
        client.send(post(line(1)))
        assert (await client.answer())[1]["accepted"] == 1
        client.send(b"GET /version HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await client.answer())[1]["service"] == "ingest"
        client.send(post(line(2), b"Idempotency-Key: k\r\n"))
        assert (await client.answer())[1]["accepted"] == 1
        client.send(post(line(1)))
        assert (await client.answer())[1]["repeat"] is True
        client.send(post(line(3)))
        assert (await client.answer())[1]["accepted"] == 1
    assert lanes(server) == (2, 3)


async def test_what_is_sent_ahead_is_answered_in_order_in_both_lanes(server):
    async with Client(server) as client:
        odd = b"GET /version HTTP/1.1\r\nHost: a\r\n\r\n"
        requests = [post(line(number)) if number % 3 else odd for number in range(40)]
        client.send(b"".join(requests))
        for number in range(40):
            _, body = await client.answer()
            assert ("service" in body) == (number % 3 == 0)
    assert [chunks.row_count for chunks in server.buffer.chunks] == [1] * 26
    assert lanes(server)[0] == 26


async def test_a_client_that_sends_ahead_without_end_is_not_read_on(server):
    server.buffer.is_held = True
    many = b"".join(post(line(number)) for number in range(200))
    async with Client(server) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_send_without_end(client, many), 1)
        (connection,) = [one for one in server.app_connections() if one._lane.is_busy]
        assert len(connection._lane._kept) <= KEPT_BYTES_MAX + 2**18
        server.buffer.is_held = False
        server.buffer.commit()
        assert (await client.answer())[1]["accepted"] == 1


@pytest.mark.parametrize("cut", [1, 30, len(HEAD) + 3])
async def test_a_head_in_pieces_is_served_all_the_same(server, cut):
    async with Client(server) as client:
        request = post(line(cut))
        client.send(request[:cut])
        await asyncio.sleep(0.05)
        client.send(request[cut:])
        assert (await client.answer())[1]["accepted"] == 1


@pytest.mark.parametrize(
    ("size", "lane"), [(GATHERED_BYTES_MAX - 100, 0), (SERVED_BYTES_MAX + 100, 1)]
)
async def test_a_body_behind_its_head_is_gathered_up_to_a_bound(server, size, lane):
    count = size // len(line(0))
    body = b"".join(line(number % 10) for number in range(count))
    request = post(body)
    at = request.index(b"\r\n\r\n") + 4
    async with Client(server) as client:
        client.send(request[:at])
        await client.writer.drain()
        await asyncio.sleep(0.02)
        for start in range(at, len(request), 10_000):
            client.send(request[start : start + 10_000])
            await asyncio.sleep(0)
        assert (await client.answer())[1]["accepted"] == count
    assert lanes(server)[lane] == 1 + lane
    assert server.admission.statistics().inflight_bytes == 0


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [(OutcomeUnknown("x"), 503, "OUTCOME_UNKNOWN"), (Closed("x"), 503, "SERVICE_UNAVAILABLE")],
)
async def test_a_failed_commit_is_told(server, failure, status, code):
    server.buffer.failure_on_commit = failure
    async with Client(server) as client:
        client.send(post(line(1)))
        found, body = await client.answer()
        assert (found, body["code"]) == (status, code)
    assert server.count("requests", route="/ingest/metrics", status="503") == 1
    assert server.admission.statistics().inflight_bytes == 0


async def test_a_commit_that_found_no_room_is_held_for_room_by_aiohttp(server):
    server.buffer.failure_on_commit = LogFull("full")
    async with Client(server) as client:
        client.send(post(line(1)))
        async with asyncio.timeout(5):
            await server.buffer.room_asked.wait()
        server.buffer.failure_on_commit = None
        server.buffer.make_room()
        assert (await client.answer())[1]["accepted"] == 1
    assert len(server.buffer.submissions) == 1


async def test_a_revoked_key_is_refused_though_its_head_is_known(server):
    async with Client(server) as client:
        client.send(post(line(1)))
        assert (await client.answer())[0] == 200
        server.keys.add(KEY, revoked_at_ms=1)
        await server.app_auth().refresh()
        client.send(post(line(2)))
        assert (await client.answer())[1]["code"] == "TOKEN_REVOKED"
    assert len(server.buffer.submissions) == 1


async def test_a_body_that_stays_away_is_408_and_leaves_nothing_behind(tmp_path):
    async with serving(tmp_path, body_seconds_max=0.2) as server:
        await server.post(body=b"")
        async with Client(server) as client:
            client.send(post(line(1))[:-5])
            status, body = await client.answer()
            assert (status, body["code"]) == (408, "REQUEST_TIMEOUT")
            client.send(line(1))  # what follows is read and thrown away
        assert server.buffer.submissions == []
        assert server.admission._awaited == {}


async def test_an_idle_connection_is_closed_and_a_busy_one_is_not(server):
    async with Client(server) as client:
        for number in range(4):
            await asyncio.sleep(0.3)
            client.send(post(line(number)))
            assert (await client.answer())[0] == 200
        server.buffer.is_held = True
        client.send(post(line(9)))
        await asyncio.sleep(1)
        server.buffer.commit()
        assert (await client.answer())[0] == 200
        async with asyncio.timeout(3):
            assert await client.reader.read() == b""
    assert lanes(server)[0] == 5


async def test_f17_while_draining_an_answer_ends_its_connection(server):
    server.buffer.is_held = True
    async with Client(server) as client, Client(server) as other:
        client.send(post(line(1)))
        other.send(post(line(2)))
        assert (await asyncio.wait_for(_appended(server, 2), 5)) is None
        server.health.is_draining = True
        server.buffer.is_held = False
        server.buffer.commit()
        head = await client.reader.readuntil(b"\r\n\r\n")
        assert b"200 OK" in head
        assert b"Connection: close" in head
        assert (await client.reader.read()).endswith(b"}")
        assert (await other.answer())[0] == 200


async def _send_without_end(client: Client, data: bytes) -> None:
    while True:
        client.send(data)
        await client.writer.drain()


async def _appended(server, count: int) -> None:
    while len(server.buffer._pending) < count:
        await asyncio.sleep(0.01)


async def test_a_client_that_goes_before_its_answer_leaves_nothing_behind(server):
    server.buffer.is_held = True
    async with Client(server) as client:
        client.send(post(line(1)))
        await asyncio.wait_for(_appended(server, 1), 5)
        sock = client.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
    async with asyncio.timeout(5):
        while any(one._lane.is_busy for one in server.app_connections()):
            await asyncio.sleep(0.01)
    server.buffer.commit()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert server.admission.statistics().inflight_bytes == 0
    assert len(server.buffer.submissions) == 1


VERSION = b"GET /version HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize("is_fast", [True, False])
@pytest.mark.parametrize(
    ("sent", "answers"),
    [
        ([1], 1),
        ([VERSION], 1),
        ([1, 1], 2),  # the second, a repeat, is aiohttp's
        ([1, VERSION, 2, 3], 4),
        ([VERSION, post(line(5), b"Connection: close\r\n")], 2),
    ],
)
async def test_who_sends_no_more_gets_all_answers_and_then_the_end(
    tmp_path, is_fast, sent, answers
):
    async with serving(tmp_path, fast_lane=is_fast) as server, Client(server) as client:
        assert (await server.post(body=b"")).status == 200
        client.send(b"".join(post(line(one)) if isinstance(one, int) else one for one in sent))
        client.writer.write_eof()
        async with asyncio.timeout(5):
            said = await client.reader.read()
        assert said.count(b"HTTP/1.1 200 OK") == said.count(b"HTTP/1.1 ") == answers
        async with asyncio.timeout(5):
            while len(server.app_connections()) > 1:  # that of `post` stays
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("sent", [b"", post(line(1))[:-5], post(line(1))[:40]])
async def test_who_ends_in_the_middle_of_a_request_is_let_go(server, sent):
    async with Client(server) as client:
        client.send(sent)
        client.writer.write_eof()
        async with asyncio.timeout(2):
            assert not await client.reader.read()
    assert server.admission.statistics().inflight_bytes == 0


@pytest.mark.parametrize("is_fast", [True, False])
@pytest.mark.parametrize("first", [post(line(1)), VERSION, post(line(1)) + VERSION])
@pytest.mark.parametrize(
    "cut",
    [
        post(line(2))[:-5],
        post(line(2))[:40],
        post(line(2), b"Idempotency-Key: k\r\n")[:-5],  # aiohttp's
        post(line(2))[: -len(line(2))],
    ],
)
async def test_who_ends_in_the_middle_of_a_later_request_gets_the_former_answers(
    tmp_path, is_fast, first, cut
):
    async with serving(tmp_path, fast_lane=is_fast) as server, Client(server) as client:
        assert (await server.post(body=b"")).status == 200
        client.send(first + cut)
        client.writer.write_eof()
        async with asyncio.timeout(2):
            said = await client.reader.read()
        assert said.count(b"HTTP/1.1 200 OK") == said.count(b"HTTP/1.1 ") == first.count(b"Host: ")
        assert len(server.buffer.submissions) == first.count(b"POST")
        async with asyncio.timeout(2):
            while len(server.app_connections()) > 1:  # that of `post` stays
                await asyncio.sleep(0.01)
        assert server.admission.statistics().inflight_bytes == 0
        assert server.count("request_failures") == 0


@pytest.mark.parametrize("is_fast", [True, False])
async def test_who_is_refused_and_ends_before_its_body_is_let_go_at_once(tmp_path, is_fast):
    refused = b"POST /ingest/metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n{"
    async with serving(tmp_path, fast_lane=is_fast) as server, Client(server) as client:
        client.send(refused)
        assert (await client.answer())[0] in {401, 413}
        client.writer.write_eof()
        async with asyncio.timeout(2):  # less than it would be read on for
            assert not await client.reader.read()
            while server.app_connections():
                await asyncio.sleep(0.01)


LARGE = b"".join(map(line, range(6_000)))
"""More than aiohttp's parser gives before a handler has read some."""


@pytest.mark.parametrize("is_fast", [True, False])
async def test_who_ends_behind_a_large_request_gets_its_answer(tmp_path, is_fast):
    async with serving(tmp_path, fast_lane=is_fast) as server:
        for before, behind in ((0, 0), (1, 0), (1, 2)):
            async with Client(server) as client:
                for number, body in enumerate([line(0)] * before + [LARGE] + [line(1)] * behind):
                    client.send(post(body, b"X-Number: %d\r\n" % number))
                client.writer.write_eof()
                for _ in range(before + 1 + behind):
                    assert (await client.answer())[0] == 200
                async with asyncio.timeout(2):
                    assert not await client.reader.read()


@pytest.mark.parametrize("is_fast", [True, False])
async def test_who_ends_within_a_large_request_is_let_go_at_once(tmp_path, is_fast):
    async with serving(tmp_path, fast_lane=is_fast) as server:
        for body in (LARGE[:-5], LARGE[:200_000], LARGE[:100_000]):
            async with Client(server) as client:
                client.send(post(line(0)))
                client.send(post(LARGE).partition(b"\r\n\r\n")[0] + b"\r\n\r\n" + body)
                client.writer.write_eof()
                assert (await client.answer())[0] == 200
                async with asyncio.timeout(2):
                    assert not await client.reader.read()
                    while server.app_connections():
                        await asyncio.sleep(0.01)
            assert server.admission.statistics().inflight_bytes == 0
            assert len(server.buffer.submissions) == 1


async def test_while_answers_are_not_read_no_request_is_begun(server):
    async with Client(server) as client:
        client.send(post(line(0)))
        assert (await client.answer())[0] == 200
        (connection,) = [one for one in server.app_connections() if one._request_count == 0]
        connection.pause_writing()  # as its transport does
        await client.writer.drain()
        connection.data_received(b"".join(post(line(number)) for number in range(1, 2_000)))
        connection.data_received(post(line(2_000)))
        await asyncio.sleep(0.7)  # longer than an idle connection stays
        assert len(server.buffer.submissions) == 1
        assert not connection.transport.is_reading()
        connection.resume_writing()
        for _ in range(2_000):
            assert (await client.answer())[1]["accepted"] == 1
        assert len(server.buffer.submissions) == 2_001
        assert connection.transport.is_reading()
        client.send(post(line(2_001)))
        assert (await client.answer())[0] == 200


async def test_what_all_clients_send_ahead_is_bounded_and_modest_ones_stay(server, monkeypatch):
    monkeypatch.setattr("ingest.lane_kept.ALL_KEPT_BYTES_MAX", 100_000)
    server.buffer.is_held = True
    ahead = b"".join(post(line(number)) for number in range(200))
    async with Client(server) as first, Client(server) as modest, Client(server) as hungry:
        for number, client in enumerate((first, modest, hungry), 1):
            rest = post(line(0)) if client is modest else ahead * 2
            client.send(post(line(number + 1_000)) + rest)
            if client is hungry:
                async with asyncio.timeout(5):
                    with contextlib.suppress(ConnectionError):
                        assert not await client.reader.read()
            else:
                await asyncio.wait_for(_appended(server, number), 5)
        assert server.count("answers_abandoned") == 1
        server.buffer.is_held = False
        server.buffer.commit()
        for client in (modest, first):
            assert (await client.answer())[1]["accepted"] == 1
            assert (await client.answer())[1]["accepted"] == 1


async def test_f18_many_clients_each_read_their_own_counts(server):
    async def one(number: int) -> None:
        async with Client(server) as client:
            for turn in range(10):
                count = 1 + (number * 7 + turn) % 23
                body = b"".join(line(number * 1_000 + turn * 30 + one) for one in range(count))
                client.send(post(body))
                assert (await client.answer())[1]["accepted"] == count

    await asyncio.gather(*(one(number) for number in range(50)))
    assert lanes(server)[0] == 500


async def test_unknown_keys_and_refused_lines_are_told_as_ever(server):
    async with Client(server) as client:
        client.send(post(line(1)).replace(KEY.encode(), b"x" * len(KEY)))
        assert (await client.answer())[1]["code"] == "INVALID_TOKEN"
        client.send(post(line(1) + b'{"time":1}\n'))
        status, body = await client.answer()
        assert (status, body["accepted"], body["rejected"]) == (200, 1, 1)
        client.send(post(LINE[:-2] + b"\n"))
        status, body = await client.answer()
        assert (body["accepted"], "hint" in body) == (0, True)
    refused = await server.client.get(
        server.url + "/ingest/refused", headers={"Authorization": f"Bearer {KEY}"}
    )
    assert len((await refused.json())["refused"]) == 2


async def test_a_head_is_kept_for_a_connection_whose_last_request_was_accepted_alone(server):
    async with Client(server) as client:

        def kept():
            (lane,) = [one._lane for one in server.app_connections() if one._lane._like]
            return lane._like.ingest.to.run_id

        async def asked(data):
            client.send(data)
            return (await client.answer())[0]

        assert await asked(post(line(1))) == 200
        assert kept() == 7
        assert await asked(post(line(2)).replace(b"Run-Id: 7", b"Run-Id: 8")) == 200  # lent
        assert await asked(post(line(3)).replace(b"Run-Id: 7", b"Run-Id: 8")) == 200
        assert kept() == 8
        strangers = post(line(4)).replace(KEY.encode(), KEY.encode()[::-1])
        refusals = strangers, post(line(5), b"X-Padding: %b\r\n" % (b"a" * 2_048))
        for number, refused in enumerate(refusals, 10):
            assert await asked(post(line(number))) == 200
            assert kept() == 7
            await asked(refused)
            assert not [one for one in server.app_connections() if one._lane._like]
        assert await asked(post(line(20))) == 200
        assert kept() == 7
        assert await asked(post(line(6) * (SERVED_BYTES_MAX // len(line(6)) + 1))) == 200
        assert not [one for one in server.app_connections() if one._lane._like]
