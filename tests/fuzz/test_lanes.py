"""The same bytes get the same answers from both lanes, wherever they are cut and whatever they are.

Two servers in this process, one with the fast lane and one without, with the same history. Each
example is a stream of requests, sound ones and mutated ones, cut into segments at any place.
Compared: status, headers and body of each answer, how many there are (so where each request ends),
whether the connection ends, and the rows that were stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ingest.connection import ConnectionLimits
from tests.ingest.serving import KEY, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.ingest.serving import Serving

END = b"GET /version HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
"""The last request of each stream: an answer to it says that all before it came to an end."""
LINE = b'{"time":1764423221123,"step":%d,"data":{"a":1,"b":0.5}}\n'
AUTH = b"Authorization: Bearer " + KEY.encode()
BODIES = st.builds(
    lambda step, count, tail: LINE % step * count + tail,
    st.integers(0, 30),
    st.integers(0, 4),
    st.sampled_from(
        [b"", b"{", b'{"time":1}\n', b"\xff\n", b"\r\n\r\n", END, b"POST /ingest/metrics"]
    ),
)
HEADERS = st.sampled_from(
    [
        AUTH,
        AUTH + b"x",
        AUTH.lower(),
        b"Authorization: " + KEY.encode(),
        b"X-Run-Id: 7",
        b"x-run-id: 8",
        b"X-Run-Id: None",
        b"X-Project-Name: p",
        b"X-Project-Name: \xc3\xa4",
        b"X-Project-Name: \xff",
        b"X-Other: 1",
        b"Expect: 100-continue",
        b"Connection: keep-alive",
        b"Connection: close",
        b"Connection: upgrade",
        b"Upgrade: websocket",
        b"Idempotency-Key: a",
        b"Content-Encoding: identity",
        b"Content-Encoding: gzip",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: identity",
        b"Content-Length: 0",
        b"Content-Length: 5",
        b"Content-Length:",
        b"Content-Length: +5",
        b"Content-Length: 05",
        b"Content-Length : 5",
        b" folded",
        b"\tContent-Length: 3",
        b"Content-Length: 4\nX-Bare: 1",
        b"X-Bare: 1\rContent-Length: 4",
        b"X-Nul: \0",
        b"no colon",
        b"",
    ]
)
PATHS = st.sampled_from(
    [
        *(b"/ingest/metrics", b"/ingest/metrics", b"/ingest/metrics", b"/ingest/logs"),
        *(b"/ingest/metrics?strict=1", b"//ingest/metrics", b"/ingest/metrics/", b"/version"),
        *(
            b"/ingest/data",
            b"/ingest/nothing",
            b"http://a/ingest/metrics",
            b"*",
            b"/ingest/met rics",
        ),
    ]
)
VERSIONS = st.sampled_from([b"HTTP/1.1"] * 8 + [b"HTTP/1.0", b"HTTP/2.0", b"HTTP/1.2", b"http/1.1"])
METHODS = st.sampled_from(
    [b"POST"] * 8 + [b"GET", b"PUT", b"OPTIONS", b"post", b"CONNECT", b"HEAD"]
)
USUAL = [AUTH, b"X-Run-Id: 7", b"X-Project-Name: p"]


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """One request: usual, or with odd headers, another length, a broken line."""
    body = draw(BODIES)
    if draw(st.booleans()):
        method, path, version, headers = b"POST", b"/ingest/metrics", b"HTTP/1.1", [*USUAL]
    else:
        method, path, version = draw(METHODS), draw(PATHS), draw(VERSIONS)
        headers = [*USUAL] if draw(st.booleans()) else draw(st.lists(HEADERS, max_size=4))
        headers += draw(st.lists(HEADERS, max_size=2))
    if draw(st.integers(0, 9)):
        wrong = draw(st.sampled_from([0, 0, 0, 0, 0, 0, 1, -1, 7]))
        name = draw(st.sampled_from([b"Content-Length: ", b"content-length:", b"CONTENT-LENGTH: "]))
        headers.insert(draw(st.integers(0, len(headers))), name + b"%d" % max(len(body) + wrong, 0))
    head = b"\r\n".join([b"%b %b %b" % (method, path, version), b"Host: a", *headers])
    return head + b"\r\n\r\n" + body


LENGTHS = st.sampled_from(
    [
        *(b"", b"0", b"5", b"00", b"07", b"+5", b"5 ", b" 5", b"5,5", b"0x5", b"1_0", b"\xb2"),
        *(
            b"12345678901",
            b"5\r\nContent-Length: 4",
            b"5\r\nX-More: 1",
            b"5\r\n\r\n",
            b"5\r",
            b"5\n",
        ),
    ]
)


@st.composite
def likes(draw: st.DrawFn, request: bytes) -> bytes:
    """The same head again, but for what stands for its length, with a body of its own."""
    head, _, _ = request.partition(b"\r\n\r\n")
    body = draw(BODIES)
    is_sound = draw(st.integers(0, 3))
    length = b"%d" % len(body) if is_sound else draw(LENGTHS)
    head = re.sub(rb"(?i)(?<=\r\nContent-Length: )[0-9]+(?=\r|$)", lambda _: length, head, count=1)
    return head + b"\r\n\r\n" + body


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """A stream in segments."""
    sent = []
    for request in draw(st.lists(requests(), min_size=1, max_size=3)):
        sent += [request, *draw(st.lists(likes(request), max_size=2))]
    whole = b"".join(sent)
    if draw(st.booleans()):
        return sent
    if not draw(st.integers(0, 5)):
        at = draw(st.integers(0, len(whole) - 1))
        whole = whole[:at] + draw(st.binary(min_size=1, max_size=3)) + whole[at + 1 :]
    cuts = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=4)))
    return [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True) if b > a]


@dataclass
class Pair:
    """Both servers, and the loop that they run on."""

    runner: asyncio.Runner
    fast: Serving
    slow: Serving


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    limits = ConnectionLimits(header_seconds_max=0.4, idle_seconds_max=3, connections_max=100)
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        made = []
        for name in ("fast", "slow"):
            server = serving(
                tmp_path_factory.mktemp(name),
                limits=limits,
                body_seconds_max=0.4,
                fast_lane=name == "fast",
            )
            made.append(runner.run(stack.enter_async_context(server)))
        yield Pair(runner, *made)
        runner.run(stack.aclose())


@dataclass
class Outcome:
    """What a server said, answer by answer, and stored; and whether it cut the connection."""

    answers: list[bytes]
    is_reset: bool
    stored: list[object]

    def agrees_with(self, same: Outcome, each: Outcome) -> bool:
        """Whether aiohttp's answers are these.

        Args:
            same: to the same segments. aiohttp drops the sound requests that come in one segment
                with what is no HTTP.
            each: to segments that have one head each, where it drops none.

        Two differences are none of the lane's making. In what was given to aiohttp such sound
        requests are dropped, and the last answer says that this is no HTTP. And the kernel drops
        what a server has said when it closes with bytes unread.
        """
        is_cut = self.is_reset or same.is_reset or each.is_reset
        if self in (same, each):
            return True
        if is_cut and any(_begin_alike(self.answers, other.answers) for other in (same, each)):
            return True
        *sound, last = self.answers
        is_dropped = b'"MALFORMED_REQUEST"' in last and (is_cut or same != each)
        return is_dropped and _begin_alike(sound, each.answers)


def _begin_alike(one: list[bytes], other: list[bytes]) -> bool:
    count = min(len(one), len(other))
    return one[:count] == other[:count]


def usual(body: bytes, *more: bytes) -> bytes:
    head = b"\r\n".join([b"POST /ingest/metrics HTTP/1.1", b"Host: a", *USUAL, *more])
    return head + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body


ONE = usual(LINE % 1)
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(LINE % 2), LINE % 2)


@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(streams(), st.booleans())
@example([ONE + ONE], False)
@example([ONE, re.sub(rb"(?<=Length: )[0-9]+", b"", ONE)], False)
@example([ONE, re.sub(rb"(?<=Length: )[0-9]+", b"0", ONE)], False)
@example([ONE, usual(b"") + ONE], False)
@example(
    [ONE, re.sub(rb"Content-Length: [0-9]+", b"Transfer-Encoding: chunked", usual(CHUNKED))], False
)
@example([ONE, usual(LINE % 3, b"Expect: 100-continue"), ONE], False)
@example([ONE, usual(LINE % 3, b"Connection: upgrade\r\nUpgrade: websocket"), ONE], False)
@example([ONE, ONE.replace(b"Content-Length: ", b"Content-Length: 3\r\nContent-Length: ")], False)
@example([ONE, ONE.replace(b"Content-Length: ", b"X-A: b\r\n Content-Length: ")], False)
@example([ONE, usual(LINE % 2, b"Transfer-Encoding: chunked")], False)
@example([ONE + 3 * b"POST /ingest/metrics HTTP/1.1\r\nHost: a\r\n\r\n" + b"{"], False)
@example([ONE[:-5], ONE[-5:] + ONE[:30], ONE[30:]], False)
@example([ONE + ONE[:-5]], True)
@example([ONE + ONE[:40]], True)
def test_both_lanes_give_the_same_answers(
    pair: Pair, segments: list[bytes], is_half_closed: bool
) -> None:
    heads = [part for segment in segments for part in re.split(rb"(?<=\r\n\r\n)", segment) if part]
    fast = pair.runner.run(ask(pair.fast, segments, is_half_closed=is_half_closed))
    same = pair.runner.run(ask(pair.slow, segments, is_half_closed=is_half_closed))
    each = pair.runner.run(ask(pair.slow, heads, is_half_closed=is_half_closed))
    assert fast.agrees_with(same, each)
    # What a lane reserved or watches is let go with each request.
    assert pair.fast.admission.statistics().inflight_bytes == 0


async def ask(server: Serving, segments: list[bytes], *, is_half_closed: bool) -> Outcome:
    """All that the server says until it ends the connection.

    Args:
        server: whom.
        segments: each written by itself.
        is_half_closed: nothing more is sent after them; else a request to end the connection is.
    """
    server.buffer.forget()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    said, is_reset = bytearray(), False

    async def listen() -> None:
        nonlocal is_reset
        try:
            while data := await reader.read(2**16):
                said.extend(data)
        except ConnectionError:
            is_reset = True

    listening = asyncio.create_task(listen())
    with contextlib.suppress(ConnectionError):
        for segment in segments if is_half_closed else (*segments, END):
            if listening.done():
                break
            writer.write(segment)
            await writer.drain()
            for _ in range(12):  # turns of the loop in which the server reads it by itself
                await asyncio.sleep(0)
        if is_half_closed:
            with contextlib.suppress(OSError):  # the server has ended it before
                writer.write_eof()
    # Who sends no more waits for nobody's patience, least of all for the 5 s of a lingering close.
    async with asyncio.timeout(4 if is_half_closed else 20):
        await listening
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return Outcome(split(bytes(said)), is_reset, [*server.buffer.submissions])


def split(text: bytes) -> list[bytes]:
    """Each answer without what differs from one second to the next."""
    text = re.sub(rb"\r\nDate: [^\r]*", b"", text)
    return re.split(rb"(?=HTTP/\d\.\d \d{3} )", text)[1:]
