"""Requests that are odd as HTTP: each has one decided answer, and stores rows or does not."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.ingest.serving import KEY, LINE, serving

AUTH = b"Authorization: Bearer " + KEY.encode() + b"\r\n"
RUN = b"X-Run-Id: 7\r\nX-Project-Name: p\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(LINE)
CLOSE = b"Connection: close\r\n"


@pytest.fixture(params=[True, False], ids=["fast", "aiohttp"])
async def server(request, tmp_path):
    async with serving(tmp_path, fast_lane=request.param) as running:
        yield running


def post(
    *heads: bytes, line: bytes = b"POST /ingest/metrics HTTP/1.1", body: bytes = LINE
) -> bytes:
    return line + b"\r\nHost: a\r\n" + b"".join(heads) + CLOSE + b"\r\n" + body


def status_and_code(text: bytes) -> tuple[int, str | None]:
    head, _, body = text.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n").partition(b"\r\n\r\n")
    status = int(head.split(b" ")[1])
    is_json = b"application/json" in head and body
    return status, json.loads(body).get("code") if is_json else None


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (post(AUTH, RUN, LENGTH, line=b"POST /ingest/metrics HTTP/1.0"), 200, None),
        (post(AUTH, RUN, LENGTH, line=b"POST http://other/ingest/metrics HTTP/1.1"), 200, None),
        (post(AUTH, RUN, LENGTH, line=b"POST //ingest//metrics HTTP/1.1"), 200, None),
        (post(AUTH, RUN, LENGTH, b"Expect: 100-continue\r\n"), 200, None),
        (post(AUTH, RUN, LENGTH, b"Upgrade: h2c\r\n"), 200, None),
        (post(AUTH, RUN, b"Content-Length: 0\r\n", body=b""), 200, None),
        (post(AUTH, RUN, LENGTH, line=b"POST /ingest/metrics?a=%00&b HTTP/1.1"), 200, None),
        (post(AUTH, RUN, LENGTH, line=b"POST /ingest/metrics HTTP/2.0"), 400, "MALFORMED_REQUEST"),
        (post(AUTH, RUN, LENGTH, line=b"post /ingest/metrics HTTP/1.1"), 400, "MALFORMED_REQUEST"),
        (post(AUTH, AUTH, RUN, LENGTH), 400, "INVALID_HEADER_FORMAT"),
        (post(AUTH, RUN, b"X-Run-Id: 8\r\n", LENGTH), 400, "INVALID_HEADER_FORMAT"),
        (post(AUTH, RUN, b"Idempotency-Key: a\r\n" * 2, LENGTH), 400, "INVALID_HEADER_FORMAT"),
        (
            post(AUTH, b"X-Run-Id: 7\r\nX-Project-Name: \xc2\xa0\r\n", LENGTH),
            400,
            "MISSING_REQUIRED_FIELD",
        ),
        (
            post(AUTH, b"X-Run-Id: 7\r\nX-Project-Name: a\xc2\x9bb\r\n", LENGTH),
            400,
            "INVALID_HEADER_FORMAT",
        ),
        (
            post(AUTH, RUN, b"Transfer-Encoding: gzip, chunked\r\n", body=b"0\r\n\r\n"),
            400,
            "MALFORMED_REQUEST",
        ),
        (
            post(AUTH, RUN, LENGTH, line=b"POST /ingest/metrics?strict=1&strict=0 HTTP/1.1"),
            400,
            "INVALID_INPUT",
        ),
        (
            post(AUTH, RUN, LENGTH, line=b"POST /ingest/metrics?strict HTTP/1.1"),
            400,
            "INVALID_INPUT",
        ),
        (post(AUTH, RUN, LENGTH, line=b"POST /ingest/metrics/ HTTP/1.1"), 404, "NOT_FOUND"),
        (post(AUTH, RUN, LENGTH, line=b"POST /ingest/%2e%2e/step HTTP/1.1"), 404, "NOT_FOUND"),
        (post(AUTH, RUN, LENGTH, line=b"POST /ingest/metrics%00 HTTP/1.1"), 404, "NOT_FOUND"),
        (post(line=b"OPTIONS * HTTP/1.1", body=b""), 404, "NOT_FOUND"),
        (post(line=b"CONNECT a:80 HTTP/1.1", body=b""), 404, "NOT_FOUND"),
        (post(line=b"OPTIONS /ingest/metrics HTTP/1.1", body=b""), 405, "METHOD_NOT_ALLOWED"),
        (post(line=b"TRACE /ingest/metrics HTTP/1.1", body=b""), 405, "METHOD_NOT_ALLOWED"),
        (post(line=b"HEAD /ingest/metrics HTTP/1.1", body=b""), 405, None),
        (post(line=b"HEAD /health HTTP/1.1", body=b""), 200, None),
        (post(AUTH, RUN, b"Content-Length: 9223372036854775807\r\n"), 413, "BODY_TOO_LARGE"),
        (post(AUTH, RUN, b"Content-Encoding: br\r\n", LENGTH), 415, "UNSUPPORTED_ENCODING"),
        (post(AUTH, RUN, b"Expect: 200-ok\r\n", LENGTH), 417, "EXPECTATION_FAILED"),
    ],
    ids=lambda value: value[:70].decode("latin1") if isinstance(value, bytes) else None,
)
async def test_each_has_one_answer(server, sent, status, code):
    text = await server.raw(sent, seconds=8, until=b"}" if code else b"")
    assert status_and_code(text) == (status, code)
    assert len(server.buffer.submissions) == (
        status == 200 and sent.startswith(b"POST") and LINE in sent
    )


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "..", "/", "C:\\x", "a/../b", "%2e%2e", "a;b"]
)
async def test_a_project_that_looks_like_a_path_is_a_name(server, name):
    assert (await server.post(headers={"X-Project-Name": name})).status == 200
    (submission,) = server.buffer.submissions
    assert submission.chunks[0].project == name


async def test_a_client_that_goes_in_the_middle_of_its_body_stores_nothing(server):
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(post(AUTH, RUN, b"Content-Length: 5000\r\n"))
    await writer.drain()
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()
    assert server.buffer.submissions == []
    assert server.count("http_malformed") == 0
    assert server.count("request_failures") == 0


async def test_the_same_request_many_times_at_once_is_stored_once(server):
    answers = await asyncio.gather(
        *(server.post(headers={"Idempotency-Key": "one"}) for _ in range(50))
    )
    assert {answer.status for answer in answers} == {200}
    assert {answer.json["accepted"] for answer in answers} == {1}
    assert sum("repeat" not in answer.json for answer in answers) == 1
    other = await server.post(headers={"Idempotency-Key": "one"}, body=LINE.replace(b"0.5", b"0.6"))
    assert (other.status, other.json["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")


async def test_a_burst_of_a_runs_first_requests_asks_for_its_project_once(server):
    bodies = [LINE.replace(b'"step":3', b'"step":%d' % step) for step in range(50)]
    answers = await asyncio.gather(*(server.post(body=body) for body in bodies))
    assert {answer.status for answer in answers} == {200}
    assert server.runs.calls == 1


async def test_what_was_refused_is_shown_to_its_owner_alone(server):
    server.keys.add("mlps_other", tenant="org-2")
    bad = b'{"time":1764423221123,"step":1,"data":{"a":true,"b":1}}\nnot json\n'
    assert (await server.post(body=bad + LINE)).json["rejected"] == 2
    for key, count in ((KEY, 2), ("mlps_other", 0)):
        async with server.client.get(
            server.url + "/ingest/refused", headers={"Authorization": f"Bearer {key}"}
        ) as answer:
            shown = (await answer.json())["refused"]
        assert len(shown) == count
        if count:
            assert [(one["line"], one["field"]) for one in shown] == [(2, "line"), (1, "data.a")]
            assert shown[0]["text"] == "not json\n"
            assert (shown[0]["runId"], shown[0]["stream"]) == (7, "metrics")
    refused = (await server.get("/health/dlq")).json["refused"]
    assert (refused["lines"], refused["overwritten"]) == (2, 0)
    assert (await server.get("/ingest/refused")).status == 401
