"""Heartbeats in the fast lane: the answers are aiohttp's, and so is whatever is unusual."""

from __future__ import annotations

import json
import re

import pytest

from catalog.errors import Unavailable
from catalog.statuses import Status
from ingest.api_runs import run_routes
from ingest.appkeys import HEARTBEATS
from ingest.heartbeats import HeartbeatBoard
from ingest.metrics import WorkerMetrics
from tests.ingest.serving import KEY, TENANT, serving

PATH = "/api/runs/trigger"
ANSWERED = "requests"


class NoCatalogue:
    """Away: what is answered, is from memory."""

    async def states(self, run_ids):
        raise Unavailable("away")


def board_of(*runs: tuple[int, Status]) -> HeartbeatBoard:
    board = HeartbeatBoard(NoCatalogue(), None, set, WorkerMetrics())
    for run_id, status in runs:
        board.learn(TENANT, run_id, status)
    return board


def request(body: bytes, *, key: str = KEY, run: object = 7, more: str = "") -> bytes:
    return (
        f"POST {PATH} HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nX-Run-Id: {run}\r\nX-Project-Name: p\r\n{more}"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


async def exchange(server, sent: bytes) -> bytes:
    """The answer to one request, its Date cut out."""
    answer = await server.raw(sent, until=b"}")
    return re.sub(rb"Date: [^\r]*", b"Date:", answer)


@pytest.fixture
async def lanes(tmp_path):
    """The same server with and without a fast lane; run 7 runs, run 8 has failed."""
    runs = ((7, Status.RUNNING), (8, Status.FAILED))
    async with (
        serving(tmp_path / "fast", routes=run_routes(), heartbeats=board_of(*runs)) as fast,
        serving(
            tmp_path / "slow", routes=run_routes(), heartbeats=board_of(*runs), fast_lane=False
        ) as slow,
    ):
        for server in (fast, slow):
            await server.post()  # its key is known from now on
        yield fast, slow


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"runId": 7}', 200),
        (b' {\n"runId":8 } ', 200),
        (b'{"runId": 9}', 503),
        (b'{"runId": -7}', 503),
        (b'{"runId": 07}', 400),
        (b'{"runId": "7"}', 200),
        (b'{"runId": 7.5}', 422),
        (b'{"runId": 7, "more": 1}', 200),
        (b'{"runId": 8, "runId": 7}', 200),
        (b"{}", 422),
        (b"", 400),
        (b" " * 100_000 + b'{"runId": 7}', 200),
    ],
)
async def test_both_lanes_answer_alike(lanes, monkeypatch, body, status):
    monkeypatch.setattr("ingest.heartbeats.LOOK_SECONDS_MAX", 0.01)
    fast, slow = [await exchange(server, request(body)) for server in lanes]
    assert fast == slow
    assert int(fast.split()[1]) == status


async def test_a_plain_heartbeat_is_answered_without_aiohttp_and_counted(lanes, monkeypatch):
    fast, _ = lanes

    async def never(*_):
        raise AssertionError("asked aiohttp")

    monkeypatch.setattr(HeartbeatBoard, "beat", never)
    for run_id, status in ((7, "RUNNING"), (8, "FAILED"), (7, "RUNNING")):
        answer = await exchange(fast, request(b'{"runId": %d}' % run_id))
        body = answer.partition(b"\r\n\r\n")[2]
        assert json.loads(body) == {"status": status, "triggers": None}
    assert fast.count(ANSWERED, route=PATH, status="200") == 3


async def test_a_key_that_is_none_is_refused_in_the_words_of_the_run_api(lanes):
    for key, more in (("mlps_" + "x" * 24, ""), (KEY, "Authorization: Bearer other\r\n")):
        sent = request(b'{"runId": 7}', key=key, more=more)
        fast, slow = [await exchange(server, sent) for server in lanes]
        assert fast == slow
        assert b'"detail"' in fast


async def test_a_run_that_is_forgotten_is_aiohttps_to_find(lanes, monkeypatch):
    monkeypatch.setattr("ingest.heartbeats.LOOK_SECONDS_MAX", 0.01)
    fast, _ = lanes
    assert b" 200 " in await exchange(fast, request(b'{"runId": 7}'))
    fast.app[HEARTBEATS].forget(TENANT, 7)
    assert b" 503 " in await exchange(fast, request(b'{"runId": 7}'))


async def test_heads_of_many_runs_that_beat_drive_none_of_ingest_out(lanes, monkeypatch):
    fast, _ = lanes
    monkeypatch.setattr(fast.factory._fast.heads._beats, "_bytes_max", 5_000)
    heads = fast.factory._fast.heads
    before = len(heads)
    for run in range(10):
        await exchange(fast, request(b'{"runId": 7}', run=run))
    assert before + 2 <= len(heads) <= before + 6
    assert len(heads._known) == before


async def test_while_the_server_drains_an_answer_ends_its_connection(lanes):
    fast, slow = lanes
    answers = []
    for server in (fast, slow):
        server.health.is_draining = True
        answers.append(await exchange(server, request(b'{"runId": 7}')))
    assert answers[0] == answers[1]
    assert b"Connection: close" in answers[0]
