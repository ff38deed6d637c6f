"""What stands between Charon and ClickHouse, and does to their talk what networks and servers do.

A real TCP server on loopback, in a thread of its own. It reads whole requests, so that a fault can
fall on an insert and spare the look that follows it; what it does with one is a `Fault`: a
coroutine that is given the `Exchange`. Without a fault a request goes on as it came.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote_plus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Fault = Callable[["Exchange"], Awaitable[None]]

HEAD_BYTES_MAX = 1 << 20


class Cut(Exception):
    """The connection to Charon ends here, without another word."""


@dataclass
class Exchange:
    """One request of Charon's, read whole, and the ways to go on with it."""

    head: bytes
    body: bytes
    """As it came, chunk lengths included."""
    number: int
    """Of the request on its connection, from 1."""
    upstream: tuple[str, int]
    writer: asyncio.StreamWriter

    @property
    def query(self) -> str:
        """The request's target, readable."""
        return unquote_plus(self.head.split(b" ", 2)[1].decode())

    @property
    def is_insert(self) -> bool:
        """Whether it is a block for a table."""
        return "INSERT INTO" in self.query

    async def forward(self, share: float = 1.0) -> bytes:
        """Send it on and read ClickHouse's whole answer; less than the whole is hung up on.

        Args:
            share: of the body that is sent.

        Raises:
            Cut: ClickHouse did not answer.
        """
        try:
            reader, writer = await asyncio.open_connection(*self.upstream)
        except OSError:
            raise Cut from None
        lines = [
            line
            for line in self.head.split(b"\r\n")
            if not line.lower().startswith((b"connection:", b"host:"))
        ]
        lines[1:1] = [b"Host: clickhouse", b"Connection: close"]
        try:
            writer.write(b"\r\n".join(lines) + self.body[: int(len(self.body) * share)])
            await writer.drain()
            if share < 1.0:
                raise Cut
            answer = await reader.read()
        except OSError:
            raise Cut from None
        finally:
            writer.close()
        if not answer:
            raise Cut
        return answer.replace(b"Connection: close\r\n", b"", 1)

    async def answer(self, answer: bytes) -> None:
        """Give Charon an answer."""
        self.writer.write(answer)
        await self.writer.drain()


async def passed(exchange: Exchange) -> None:
    """No fault."""
    await exchange.answer(await exchange.forward())


async def cut_before(exchange: Exchange) -> None:
    """ClickHouse never hears of it."""
    raise Cut


async def cut_within(exchange: Exchange) -> None:
    """ClickHouse hears half of it."""
    await exchange.forward(0.5)


async def cut_after(exchange: Exchange) -> None:
    """ClickHouse has taken it, and its answer is lost."""
    await exchange.forward()
    raise Cut


async def cut_in_answer(exchange: Exchange) -> None:
    """ClickHouse has taken it, and half of its answer's head arrives."""
    answer = await exchange.forward()
    await exchange.answer(answer[:20])
    raise Cut


def refused(code: int | None, status: int = 500, text: str = "") -> Fault:
    """An error of ClickHouse's, which never saw the request."""

    async def fault(exchange: Exchange) -> None:
        await exchange.answer(error_answer(code, status, text))

    return fault


def taken_but_refused(code: int | None, status: int = 500) -> Fault:
    """An error although the block is stored: a view that threw, a timeout after the fact."""

    async def fault(exchange: Exchange) -> None:
        await exchange.forward()
        await exchange.answer(error_answer(code, status, ""))

    return fault


def late(seconds: float) -> Fault:
    """ClickHouse does it at once, and is heard of long after."""

    async def fault(exchange: Exchange) -> None:
        answer = await exchange.forward()
        await asyncio.sleep(seconds)
        await exchange.answer(answer)

    return fault


def slow(seconds: float) -> Fault:
    """It arrives late, and so does the answer: the block is stored after Charon has given up."""

    async def fault(exchange: Exchange) -> None:
        await asyncio.sleep(seconds)
        await exchange.answer(await exchange.forward())

    return fault


def error_answer(code: int | None, status: int, text: str) -> bytes:
    """As ClickHouse words it; without a code, as something between says it."""
    text = text or ("<html>Bad Gateway</html>" if code is None else f"Code: {code}. DB::Exception")
    header = "" if code is None else f"X-ClickHouse-Exception-Code: {code}\r\n"
    body = text.encode()
    return (
        f"HTTP/1.1 {status} Whatever\r\n{header}Content-Type: text/plain\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


@dataclass
class Proxy:
    """A listening proxy. `start` and `stop`; everything else may be called from any thread."""

    upstream: tuple[str, int]
    port: int = 0
    inserts: int = 0
    """Blocks that Charon has tried to send."""
    faulted: int = 0
    under_way: int = 0
    closes_reused: bool = False
    """Whether every second request on a connection finds it closed, as after an idle while."""
    every: Fault | None = None
    """Asked for each insert for which no fault is waiting."""
    _next: deque[Fault] = field(default_factory=deque)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _server: asyncio.Server | None = None
    _open: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        """What Charon is told."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Proxy:
        """Listen, on a port that stays the same through `down` and `up`."""
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.up()
        return self

    def stop(self) -> None:
        """End everything."""
        self.down()
        self._call(self._end_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def down(self) -> None:
        """Refuse connections and end those that are open: ClickHouse's host is gone."""
        self._call(self._close())

    def up(self) -> None:
        """Listen again."""
        self._call(self._listen())

    def mend(self) -> None:
        """Pass everything on again."""
        self._next.clear()
        self.every, self.closes_reused = None, False
        if self._server is None:
            self.up()

    def next_inserts(self, *faults: Fault) -> None:
        """What becomes of the next inserts, one each."""
        self._next.extend(faults)

    @property
    def is_spent(self) -> bool:
        """Whether every fault has had its insert."""
        return not self._next

    def _call(self, work: Awaitable[None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(20)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, limit=HEAD_BYTES_MAX
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for writer in list(self._open):
            writer.transport.abort()

    async def _end_tasks(self) -> None:
        # A connection taken just now has a transport and no task yet; the loop must see it end, or
        # its socket is reported in whatever test runs when it is collected.
        await asyncio.sleep(0.05)
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await asyncio.sleep(0.05)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        self._open.add(writer)
        number = 0
        try:
            while True:
                number += 1
                head = await reader.readuntil(b"\r\n\r\n")
                if self.closes_reused and number % 2 == 0:
                    self.faulted += 1
                    raise Cut
                body = await _body(head, reader)
                await self._go_on(Exchange(head, body, number, self.upstream, writer))
        except (Cut, OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._open.discard(writer)
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            self._tasks.discard(task)

    async def _go_on(self, exchange: Exchange) -> None:
        fault: Fault | None = None
        if exchange.is_insert:
            self.inserts += 1
            fault = self._next.popleft() if self._next else self.every
        self.faulted += fault is not None
        self.under_way += 1
        try:
            await (fault or passed)(exchange)
        finally:
            self.under_way -= 1


async def _body(head: bytes, reader: asyncio.StreamReader) -> bytes:
    headers = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
    if b"chunked" not in headers.get(b"transfer-encoding", b""):
        return await reader.readexactly(int(headers.get(b"content-length", b"0")))
    body = bytearray()
    while True:
        size = await reader.readuntil(b"\r\n")
        chunk = await reader.readexactly(int(size.split(b";")[0], 16) + 2)
        body += size + chunk
        if len(chunk) == 2:
            return bytes(body)
