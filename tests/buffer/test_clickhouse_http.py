"""The way to ClickHouse when it lies, cuts and keeps silent: a server of bytes, scripted."""

import asyncio
import contextlib
import shutil
import ssl
import subprocess
import time

import pytest

from buffer.clickhouse import ClickHouseSink
from buffer.clickhouse_http import Endpoint
from buffer.clock import SystemClock
from buffer.sink import SinkError
from schema.block import build_block, layout_of
from schema.chcodes import ErrorClass
from schema.streams import METRICS
from tests.buffer.delivery_rig import metrics

LAYOUT = layout_of(METRICS)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n"
SECRET = "p4ss-w0rd-secret"


def answer(status, body=b"", **headers):
    lines = [f"HTTP/1.1 {status} Status", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Server:
    """Answers each request with the next thing of a script; keeps what it got."""

    def __init__(self):
        self.script = []
        self.requests = []
        self.connections = 0
        self._tasks = set()

    async def start(self, trust=None):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=trust)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self):
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # for transports to close

    async def _serve(self, reader, writer):
        self._tasks.add(asyncio.current_task())
        self.connections += 1
        with (
            contextlib.closing(writer),
            contextlib.suppress(ConnectionError, asyncio.IncompleteReadError),
        ):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await self._body(reader, head)
                self.requests.append((head.decode(), body))
                what = self.script.pop(0) if self.script else OK
                if what is None:  # the connection goes away without an answer
                    break
                if what == "hang":
                    await asyncio.sleep(60)
                writer.write(what)
                await writer.drain()

    async def _body(self, reader, head):
        if b"chunked" not in head.lower():
            length = 0
            for line in head.lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    length = int(line[15:])
            return await reader.readexactly(length)
        body = b""
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readline()
        return body


@pytest.fixture
async def server():
    made = Server()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def sink(server):
    endpoint = Endpoint(
        f"http://127.0.0.1:{server.port}/", "db", "user", SECRET, timeout_seconds=0.2
    )
    made = ClickHouseSink(endpoint, clock=SystemClock())
    yield made
    await made.close()


def block(*values):
    return build_block(LAYOUT, [metrics(*values)], 1)


async def failure_of(sink, server, *script):
    server.script = list(script)
    with pytest.raises(SinkError) as caught:
        await sink.insert(LAYOUT, block(1.0), token="t", query_id="q")
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value)
    return caught.value


async def test_every_setting_that_tokens_hang_on_is_sent_with_every_insert(sink, server):
    """F20: async_insert is on by default, so it is said that it is off."""
    sent = block(*[float(row) for row in range(1_000)])
    await sink.insert(LAYOUT, sent, token="a:1-2:t:d:0", query_id="charon-q")
    [(head, body)] = server.requests
    for part in (
        "insert_deduplication_token=a:1-2:t:d:0",
        "async_insert=0",
        "deduplicate_insert=enable",
        "insert_deduplicate=1",
        "query_id=charon-q",
        "database=db",
        "min_insert_block_size_rows=100000000",
        "FORMAT+Native",
    ):
        assert part in head.replace("%3A", ":").replace("%20", "+"), part
    assert body == b"".join(sent.pieces)
    assert SECRET not in head.split("\r\n")[0]


@pytest.mark.parametrize(
    ("status", "headers", "body", "error_class", "code", "is_unknown"),
    [
        (500, {"X_ClickHouse_Exception_Code": 252}, b"x", ErrorClass.TRANSIENT, 252, True),
        (500, {}, b"Code: 241. DB::Exception: memory", ErrorClass.TRANSIENT, 241, True),
        (503, {}, b"<html>", ErrorClass.TRANSIENT, None, True),
        (502, {}, b"", ErrorClass.TRANSIENT, None, True),
        (404, {"X_ClickHouse_Exception_Code": 60}, b"x", ErrorClass.OPERATOR, 60, False),
        (403, {}, b"", ErrorClass.OPERATOR, None, False),
        (400, {"X_ClickHouse_Exception_Code": 33}, b"x", ErrorClass.OURS, 33, False),
        (500, {"X_ClickHouse_Exception_Code": 469}, b"x", ErrorClass.ROWS, 469, True),
        (301, {"Location": "http://127.0.0.1:1/"}, b"", ErrorClass.OPERATOR, None, False),
        (200, {}, b"Code: 159. DB::Exception: late", ErrorClass.TRANSIENT, 159, True),
        (200, {"X_ClickHouse_Exception_Code": 241}, b"", ErrorClass.TRANSIENT, 241, True),
    ],
)
async def test_answers_that_are_no_success(
    sink, server, status, headers, body, error_class, code, is_unknown
):
    error = await failure_of(sink, server, answer(status, body, **headers))
    assert (error.error_class, error.code) == (error_class, code)
    assert error.is_outcome_unknown is is_unknown
    assert len(server.requests) == 1


async def test_a_200_with_a_page_in_it_is_not_a_success(sink, server):
    error = await failure_of(sink, server, answer(200, b"<html>welcome</html>"))
    assert error.is_outcome_unknown


@pytest.mark.parametrize("what", [None, "hang", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"])
async def test_an_answer_that_does_not_come_leaves_the_outcome_unknown(sink, server, what):
    error = await failure_of(sink, server, what)
    assert error.error_class is ErrorClass.TRANSIENT
    assert error.is_outcome_unknown
    assert len(server.requests) == 1  # nothing below us sends an insert again by itself


async def test_a_server_that_needs_longer_gets_longer(sink, server):
    waits = []
    for _ in range(3):
        server.script = ["hang"]
        begun = time.monotonic()
        with pytest.raises(SinkError):
            await sink.insert(LAYOUT, block(1.0), token="t", query_id="q")
        waits.append(time.monotonic() - begun)
    assert waits[0] < waits[1] < waits[2]
    await sink.insert(LAYOUT, block(1.0), token="t", query_id="q")
    assert sink._http.patience == 1.0


async def test_a_refused_connection_is_known_to_have_stored_nothing(sink, server):
    await server.stop()
    with pytest.raises(SinkError) as caught:
        await sink.insert(LAYOUT, block(1.0), token="t", query_id="q")
    assert caught.value.error_class is ErrorClass.TRANSIENT
    assert not caught.value.is_outcome_unknown


async def test_no_connection_is_used_again(sink, server):
    """F24: the first request after idle meets a connection that the server has closed.

    Where one never serves twice, each try of an insert would be of unknown outcome, for ever.
    """
    for _ in range(3):
        await sink.insert(LAYOUT, block(1.0), token="t", query_id="q")
    assert server.connections == 3


async def test_a_large_block_is_sent_in_pieces_unchanged(sink, server):
    sent = build_block(LAYOUT, [metrics(*[1.5] * 120_000, name="n" * 60)], 1)
    assert sent.size > 4 * 2**20
    await sink.insert(LAYOUT, sent, token="t", query_id="q")
    assert server.requests[0][1] == b"".join(sent.pieces)


@pytest.mark.parametrize("text", [None, "no certificate"])
async def test_a_ca_file_that_cannot_be_used_is_the_operators(tmp_path, text):
    ca_file = tmp_path / "ca.pem"
    if text is not None:
        ca_file.write_text(text)
    sink = ClickHouseSink(
        Endpoint("https://127.0.0.1:1", "db", ca_file=ca_file), clock=SystemClock()
    )
    with pytest.raises(SinkError, match=r"ca\.pem") as caught:
        await sink.insert(LAYOUT, block(1.0), token="t", query_id="q")
    assert caught.value.error_class is ErrorClass.OPERATOR


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
async def test_tls_with_a_ca_of_ones_own_and_without_it(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "ca.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-keyout",
            key,
            "-out",
            certificate,
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
        ],
        check=True,
        capture_output=True,
    )
    trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trust.load_cert_chain(certificate, key)
    server = Server()
    await server.start(trust)
    url = f"https://localhost:{server.port}"
    trusting = ClickHouseSink(Endpoint(url, "db", ca_file=certificate), clock=SystemClock())
    await trusting.insert(LAYOUT, block(1.0), token="t", query_id="q")
    await trusting.close()
    doubting = ClickHouseSink(Endpoint(url, "db", password=SECRET), clock=SystemClock())
    with pytest.raises(SinkError) as caught:
        await doubting.insert(LAYOUT, block(1.0), token="t", query_id="q")
    assert caught.value.error_class is ErrorClass.OPERATOR
    assert not caught.value.is_outcome_unknown
    assert len(server.requests) == 1
    await doubting.close()
    await server.stop()


def test_secrets_are_in_no_repr_and_in_no_address():
    endpoint = Endpoint(f"https://admin:{SECRET}@ch.example:8443/path", "db")
    assert (endpoint.url, endpoint.user, endpoint.password) == (
        "https://ch.example:8443/path",
        "admin",
        SECRET,
    )
    sink = ClickHouseSink(endpoint, clock=SystemClock())
    assert SECRET not in repr(endpoint) + str(endpoint) + repr(sink)


@pytest.mark.parametrize("url", ["ftp://host", "host:8123", f"tcp://u:{SECRET}@h", "http://"])
def test_an_address_that_is_none_is_refused_without_being_repeated(url):
    with pytest.raises(ValueError, match="http") as caught:
        Endpoint(url, "db")
    assert SECRET not in str(caught.value)
