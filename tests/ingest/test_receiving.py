"""One request to the ingest endpoints: what is answered, and what reaches the buffer."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import zlib

import pytest
from backports import zstd

from buffer.errors import Broken, Closed, OutcomeUnknown
from schema.reading import rows_of
from schema.streams import StreamKind
from tests.ingest.serving import ABSENT, KEY, LINE, TENANT, serving

LOG_LINE = b'{"time":1764423221123,"message":"hello","lineNumber":1,"logType":"INFO"}\n'
DATA_LINE = b'{"time":1764423221123,"data":"{}","dataType":"HISTOGRAM","logName":"h","step":1}\n'


@pytest.fixture(params=[True, False], ids=["fast", "aiohttp"])
async def server(request, tmp_path):
    async with serving(tmp_path, fast_lane=request.param) as running:
        yield running


@pytest.mark.parametrize(
    ("path", "line", "kind"),
    [
        ("/ingest/metrics", LINE, StreamKind.METRICS),
        ("/ingest/logs", LOG_LINE, StreamKind.LOGS),
        ("/ingest/data", DATA_LINE, StreamKind.DATA),
    ],
)
async def test_rows_reach_the_buffer_under_tenant_run_and_project(server, path, line, kind):
    answer = await server.post(path, line * 3)
    assert (answer.status, answer.json) == (200, {"accepted": 3, "rejected": 0, "errors": []})
    assert "X-Charon-Rejected" not in answer.headers
    [chunks] = server.buffer.chunks
    assert (chunks.kind, chunks.tenant, chunks.project) == (kind, TENANT, "demo")
    assert (chunks.run_id, chunks.row_count) == (7, 3)


async def test_f04_a_bad_line_is_told_and_its_neighbours_are_kept(server):
    lines = [LINE] * 100
    lines[59] = b'{"time":1\n'
    answer = await server.post(body=b"".join(lines))
    assert answer.status == 200
    assert (answer.json["accepted"], answer.json["rejected"]) == (99, 1)
    assert answer.json["errors"][0]["line"] == 60
    assert answer.headers["X-Charon-Rejected"] == "1"
    assert server.count("refusals", stream="metrics") == 1


async def test_nothing_accepted_is_a_success_with_a_hint_and_no_append(server):
    answer = await server.post(body=b'[{"time":1764423221123,"step":0,"data":{"a":1}}]')
    assert answer.status == 200
    assert answer.json["accepted"] == 0
    assert answer.json["hint"]
    assert server.buffer.submissions == []


async def test_an_empty_body_is_a_success(server):
    answer = await server.post(body=b"")
    assert (answer.status, answer.json["accepted"], answer.json["rejected"]) == (200, 0, 0)


async def test_strict_stores_nothing_when_anything_is_refused(server):
    answer = await server.post("/ingest/metrics?strict=1", LINE + b"{}\n")
    assert (answer.status, answer.json["code"]) == (422, "PROCESSING_FAILED")
    assert answer.json["details"]["rejected"] == 1
    assert answer.json["details"]["errors"][0]["line"] == 2
    assert server.buffer.submissions == []
    assert (await server.post("/ingest/metrics?strict=1", LINE)).status == 200
    assert (await server.post("/ingest/metrics?strict=maybe", LINE)).status == 400


async def test_strict_is_not_answered_from_a_lenient_request_before_it(server):
    body = LINE + b"{}\n"
    assert (await server.post(body=body)).status == 200
    assert (await server.post("/ingest/metrics?strict=1", body)).status == 422


@pytest.mark.parametrize("size", [1, 5_000], ids=["small", "large"])
@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        ("identity", bytes),
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("zstd", zstd.compress),
    ],
)
async def test_bodies_come_in_four_encodings(server, encoding, compress, size):
    lines = b"".join(
        b'{"time":1764423221123,"step":%d,"data":{"loss":0.5,"accuracy":%d}}\n' % (i, i)
        for i in range(size)
    )
    answer = await server.post(body=compress(lines), headers={"Content-Encoding": encoding})
    assert (answer.status, answer.json["accepted"]) == (200, 2 * size)
    rows = [row for chunks in server.buffer.chunks for row in rows_of(chunks)]
    assert [row["value"] for row in rows[1::2]] == list(range(size))


async def test_an_unknown_encoding_is_415_and_says_what_is_taken(server):
    for encoding in ("br", "gzip, gzip", "x"):
        answer = await server.post(headers={"Content-Encoding": encoding})
        assert (answer.status, answer.json["code"]) == (415, "UNSUPPORTED_ENCODING")
        assert "zstd" in answer.json["message"]


@pytest.mark.parametrize("body", [b"not gzip", gzip.compress(LINE, mtime=0)[:-3]])
async def test_a_body_that_is_not_of_its_encoding_is_400(server, body):
    answer = await server.post(body=body, headers={"Content-Encoding": "gzip"})
    assert (answer.status, answer.json["code"]) == (400, "INVALID_INPUT")
    assert server.buffer.submissions == []


@pytest.mark.parametrize(
    "run", ["0", "-1", "None", "", "x", "1.5", "18446744073709551616", "٣", "+1"]
)
async def test_a_run_that_is_no_number_is_400_and_never_run_0(server, run):
    answer = await server.post(headers={"X-Run-Id": run})
    assert (answer.status, answer.json["code"]) == (400, "INVALID_HEADER_FORMAT")
    assert "1 to 18446744073709551615" in answer.json["message"]


async def test_the_largest_run_number_is_taken(server):
    assert (await server.post(headers={"X-Run-Id": "18446744073709551615"})).status == 200
    assert server.buffer.chunks[0].run_id == 2**64 - 1


@pytest.mark.parametrize(
    ("project", "status", "code"),
    [
        (ABSENT, 400, "MISSING_REQUIRED_FIELD"),
        ("  ", 400, "MISSING_REQUIRED_FIELD"),
        ("p" * 256, 400, "INVALID_HEADER_FORMAT"),
        ("p" * 255, 200, None),
        ("projet-été", 200, None),
    ],
)
async def test_a_project_is_text_of_1_to_255_characters(server, project, status, code):
    answer = await server.post(headers={"X-Project-Name": project})
    assert answer.status == status
    assert (answer.json.get("code")) == code


async def test_a_missing_or_doubled_run_header_is_400(server):
    answer = await server.post(headers={"X-Run-Id": ABSENT})
    assert (answer.status, answer.json["code"]) == (400, "MISSING_REQUIRED_FIELD")
    text = await server.raw(
        b"POST /ingest/metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n"
        b"Authorization: Bearer " + KEY.encode() + b"\r\nX-Project-Name: p\r\n"
        b"X-Run-Id: 1\r\nX-Run-Id: 2\r\n\r\n"
    )
    assert b" 400 " in text.split(b"\r\n")[0]
    assert b"twice" in text


async def test_f13_the_limit_counts_what_is_read_chunked_bodies_included(tmp_path):
    async with serving(tmp_path, body_bytes_max=2**20) as server:

        async def drops(total: int):
            for _ in range(total // 2**16):
                yield b" " * 2**16

        over = await server.post(body=drops(8 * 2**20))
        assert (over.status, over.json["code"]) == (413, "BODY_TOO_LARGE")
        assert "1048576" in over.json["message"]
        assert (await server.post(body=io.BytesIO(b" " * (2**20 + 1)))).status == 413
        assert (await server.post(body=drops(2**20))).status == 200
        assert server.admission.statistics().inflight_bytes == 0


async def test_f14_a_compressed_bomb_is_cut_at_the_limit(tmp_path):
    bomb = gzip.compress(b"\0" * (64 * 2**20))
    async with serving(tmp_path, body_bytes_max=2**20) as server:
        answers = await asyncio.gather(
            *(server.post(body=bomb, headers={"Content-Encoding": "gzip"}) for _ in range(20))
        )
        assert {answer.status for answer in answers} <= {413, 503}
        assert (await server.post()).status == 200


async def test_f15_a_body_that_drips_is_given_up(tmp_path):
    async with serving(tmp_path, body_seconds_max=0.3) as server:
        slow = asyncio.create_task(server.raw(_request(b"{", length=1_000), until=b"}"))
        assert (await server.post()).status == 200
        text = await slow
        assert b" 408 " in text.split(b"\r\n")[0]
        assert b"REQUEST_TIMEOUT" in text


async def test_a_repeat_is_answered_with_the_former_counts_and_stores_nothing(server):
    body = LINE + b"{}\n"
    first, again = await server.post(body=body), await server.post(body=body)
    assert again.json == {"accepted": 1, "rejected": 1, "errors": [], "repeat": True}
    assert again.headers["X-Charon-Rejected"] == first.headers["X-Charon-Rejected"] == "1"
    assert len(server.buffer.submissions) == 1
    for headers in ({"X-Run-Id": "8"}, {"X-Project-Name": "other"}):
        assert "repeat" not in (await server.post(body=body, headers=headers)).json


async def test_a_repeat_is_the_same_body_whatever_its_encoding_and_doubled_slashes(server):
    await server.post(body=LINE)
    again = await server.post(
        "//ingest//metrics", gzip.compress(LINE), headers={"Content-Encoding": "gzip"}
    )
    assert again.json["repeat"] is True


async def test_a_repeat_of_a_pending_request_joins_its_outcome(server):
    server.buffer.is_held = True
    both = [asyncio.create_task(server.post()) for _ in range(2)]
    while not server.buffer._pending:
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)
    server.buffer.commit()
    answers = [await one for one in both]
    assert [answer.status for answer in answers] == [200, 200]
    assert len(server.buffer.submissions) == 1


async def test_an_idempotency_key_with_another_body_is_422(server):
    headers = {"Idempotency-Key": "a"}
    assert (await server.post(headers=headers)).status == 200
    assert (await server.post(headers=headers)).json["repeat"] is True
    other = await server.post(body=LINE * 2, headers=headers)
    assert (other.status, other.json["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert len(server.buffer.submissions) == 1
    assert (await server.post(headers={"Idempotency-Key": " "})).status == 400


async def test_a_request_is_held_until_there_is_room(server):
    server.buffer.fill()
    waiting = asyncio.create_task(server.post())
    await server.buffer.room_asked.wait()
    assert server.admission.statistics().held_requests == 1
    server.buffer.make_room()
    assert (await waiting).status == 200
    assert server.admission.statistics().held_requests == 0


async def test_without_room_in_time_it_is_503_with_a_time_to_come_back(tmp_path):
    async with serving(tmp_path, room_seconds_max=0.2) as server:
        server.buffer.fill()
        answer = await server.post()
        assert (answer.status, answer.json["code"]) == (503, "LOG_FULL")
        assert answer.headers["Retry-After"] == "3"
        assert server.admission.statistics().inflight_bytes == 0


async def test_only_so_many_are_held_for_room(tmp_path):
    async with serving(tmp_path, held_requests_max=2, room_seconds_max=1.0) as server:
        server.buffer.fill()
        started = asyncio.get_running_loop().time()
        posts = [asyncio.create_task(server.post()) for _ in range(6)]
        quick = [await one for one in asyncio.as_completed(posts)][:4]
        assert {answer.status for answer in quick} == {503}
        assert asyncio.get_running_loop().time() - started < 3


async def test_held_requests_are_let_go_when_the_server_stops(server):
    server.buffer.fill()
    waiting = asyncio.create_task(server.post())
    await server.buffer.room_asked.wait()
    server.health.is_draining = True
    answer = await waiting
    assert answer.status == 503
    assert answer.headers["Connection"] == "close"


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (OutcomeUnknown("sync failed"), "OUTCOME_UNKNOWN"),
        (Closed("closed"), "SERVICE_UNAVAILABLE"),
    ],
)
async def test_f05_what_may_clear_is_503(server, failure, code):
    server.buffer.failure_on_commit = failure
    answer = await server.post()
    assert (answer.status, answer.json["code"]) == (503, code)
    assert int(answer.headers["Retry-After"]) >= 1
    assert server.broken == []


async def test_a_broken_invariant_is_500_and_stops_the_worker(server):
    server.buffer.failure = Broken("shard 12ab: state unknown at /secret/path")
    answer = await server.post()
    assert (answer.status, answer.json["code"]) == (500, "INTERNAL_ERROR")
    assert "secret" not in answer.text
    assert server.broken == [server.buffer.failure]


async def test_the_catalogues_project_of_a_run_outranks_the_header(server):
    server.runs.projects[TENANT, 7] = "true home"
    assert (await server.post()).status == 200
    assert server.buffer.chunks[0].project == "true home"


async def test_with_the_catalogue_away_the_headers_project_stands(server):
    server.runs.failure = OSError("away")
    assert (await server.post()).status == 200
    assert (await server.post(body=LINE * 2)).status == 200
    assert server.buffer.chunks[0].project == "demo"
    assert server.runs.calls == 1  # no request is held up by a second try


async def test_a_client_that_hangs_up_in_its_body_leaves_nothing_reserved(server):
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(_request(b"{" * 70_000, length=3_000_000))
    await writer.drain()
    while not server.admission.statistics().inflight_bytes:
        await asyncio.sleep(0.01)
    writer.close()
    async with asyncio.timeout(5):
        while server.admission.statistics().inflight_bytes:
            await asyncio.sleep(0.01)
    assert server.count("request_failures") == 0


async def test_f18_each_client_reads_its_own_counts(server):
    async def client(number: int) -> None:
        body = json.dumps(
            {"time": 1764423221123, "step": number, "data": {f"m{i}": i for i in range(number)}}
        ).encode()
        for repeat in range(20):
            answer = await server.post(body=body, headers={"X-Run-Id": str(1 + repeat)})
            assert answer.json["accepted"] == number

    await asyncio.gather(*(client(number) for number in range(1, 21)))


def _request(body: bytes, *, length: int) -> bytes:
    return (
        b"POST /ingest/metrics HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n"
        b"Authorization: Bearer %s\r\nX-Run-Id: 7\r\nX-Project-Name: p\r\n\r\n%s"
        % (length, KEY.encode(), body)
    )
