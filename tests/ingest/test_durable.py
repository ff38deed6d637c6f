"""Requests into a real write-ahead log on a real disk; a model of ClickHouse behind it."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from buffer.clock import SystemClock
from buffer.fs import RealFileSystem
from buffer.metrics import NoMetrics
from buffer.options import BufferOptions
from buffer.writeahead import WriteAheadBuffer
from schema.streams import StreamKind
from tests.fakes.sink import FakeSink
from tests.ingest.serving import LINE, TENANT, serving

MIB = 2**20


@contextlib.asynccontextmanager
async def durable(tmp_path, sink, *, room_seconds_max: float = 5.0, **options):
    buffer = await WriteAheadBuffer.open(
        tmp_path / "log",
        BufferOptions(**{"disk_free_bytes_min": 0, "batch_age_seconds_max": 0.05, **options}),
        sink=sink,
        clock=SystemClock(),
        fs=RealFileSystem(),
        metrics=NoMetrics(),
    )
    await buffer.start()
    try:
        async with serving(tmp_path, buffer=buffer, room_seconds_max=room_seconds_max) as running:
            yield running
    finally:
        await buffer.close(5.0)


def line(step: int) -> bytes:
    return b'{"time":1764423221123,"step":%d,"data":{"loss":0.5,"name/%d":1}}\n' % (step, step)


async def delivered(sink: FakeSink, count: int) -> list[dict]:
    async with asyncio.timeout(10):
        while len(sink.tables[StreamKind.METRICS].rows) < count:
            await asyncio.sleep(0.01)
    return sink.tables[StreamKind.METRICS].rows


async def test_what_is_acknowledged_reaches_the_table_once_repeats_included(tmp_path):
    sink = FakeSink()
    async with durable(tmp_path, sink) as server:
        posts = [server.post(body=line(step)) for step in range(50)]
        answers = await asyncio.gather(
            *posts, *(server.post(body=line(step)) for step in range(50))
        )
        assert {answer.status for answer in answers} == {200}
        rows = await delivered(sink, 100)
    assert len(rows) == 100
    assert {(row["tenantId"], row["projectName"], row["runId"]) for row in rows} == {
        (TENANT, "demo", 7)
    }
    assert sorted(row["step"] for row in rows) == sorted([*range(50)] * 2)


async def test_a_repeat_is_known_after_a_restart(tmp_path):
    sink = FakeSink()
    sink.is_down = True
    async with durable(tmp_path, sink) as server:
        assert (await server.post(body=LINE + b"{}\n")).json["accepted"] == 1
    async with durable(tmp_path, sink) as server:
        again = await server.post(body=LINE + b"{}\n")
        assert again.json == {"accepted": 1, "rejected": 1, "errors": [], "repeat": True}
        sink.is_down = False
        assert len(await delivered(sink, 1)) == 1


async def test_a_full_log_holds_requests_and_takes_them_when_clickhouse_is_back(tmp_path):
    sink = FakeSink()
    sink.is_down = True
    options = {"segment_bytes_max": 64 * 1_024, "log_bytes_max": 256 * 1_024}
    text = b'{"time":1764423221123,"message":"%s","lineNumber":%d,"logType":"INFO"}\n'
    async with durable(tmp_path, sink, room_seconds_max=20.0, **options) as server:
        posts = []
        for number in range(20):
            sent = server.post("/ingest/logs", text % (b"x" * 30_000, number))
            posts.append(asyncio.create_task(sent))
            while not posts[-1].done() and not server.admission.statistics().held_requests:
                await asyncio.sleep(0.01)
        assert 5 < sum(post.done() for post in posts) < 10
        assert (await server.get("/health")).status == 200
        sink.is_down = False
        answers = await asyncio.gather(*posts)
    assert {answer.status for answer in answers} == {200}
    rows = sink.tables[StreamKind.LOGS].rows
    assert sorted(row["lineNumber"] for row in rows) == [*range(20)]


async def test_a_full_log_refuses_in_the_end_and_says_when_to_come_back(tmp_path):
    sink = FakeSink()
    sink.is_down = True
    options = {"segment_bytes_max": 64 * 1_024, "log_bytes_max": 128 * 1_024}
    async with durable(tmp_path, sink, room_seconds_max=0.2, **options) as server:
        statuses = []
        for number in range(12):
            answer = await server.post(
                "/ingest/logs",
                b'{"time":1764423221123,"message":"%s","lineNumber":%d,"logType":"INFO"}\n'
                % (b"x" * 30_000, number),
            )
            statuses.append(answer.status)
        assert answer.json["code"] == "LOG_FULL"
        assert int(answer.headers["Retry-After"]) >= 1
        assert set(statuses) == {200, 503}
        sink.is_down = False
        accepted = statuses.count(200)
        async with asyncio.timeout(10):
            while len(sink.tables[StreamKind.LOGS].rows) < accepted:
                await asyncio.sleep(0.01)
    assert len(sink.tables[StreamKind.LOGS].rows) == accepted


@pytest.mark.slow
async def test_a_body_of_many_frames_is_one_answer_and_every_row_is_stored(tmp_path):
    sink = FakeSink()
    body = b"".join(
        b'{"time":%d,"step":%d,"data":{"a":1,"b":2,"c":3,"d":4,"e":5}}\n' % (1764423221123 + i, i)
        for i in range(30_000)
    )
    assert MIB < len(body) < 4 * MIB
    async with durable(tmp_path, sink) as server:
        answer = await server.post(body=_slices(body))
        assert answer.json["accepted"] == 150_000
        rows = await delivered(sink, 150_000)
    assert len(rows) == 150_000
    assert {row["step"] for row in rows} == set(range(30_000))


async def _slices(body: bytes):
    for start in range(0, len(body), 100_000):
        yield body[start : start + 100_000]
