"""The thin generator: the same open schedule over bare sockets, for rates that locust cannot hold.

`python -m loadtest.sockets PLAN RESULT` sends what the plan says. It knows of HTTP what its own
requests need: one outstanding request a connection, answers with a Content-Length. A request that
is due while every connection waits for an answer is sent when one is free, late; the lateness
counts, as it would for a client that waits its turn.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import uvloop

from loadtest.recording import Recording, error_of, progress
from loadtest.scenarios import Plan, Work

if TYPE_CHECKING:
    from loadtest.scenarios import Due

ANSWER_SECONDS_MAX = 60.0
"""After the last request is due."""
TICK_SECONDS = 0.001
PROGRESS_SECONDS = 5.0


class Connection(asyncio.Protocol):
    """One keep-alive connection; opened again where the server closed it."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._transport: asyncio.Transport | None = None
        self._due: Due | None = None
        self._sent = 0.0
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for work."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not say that it is
        self._sender.is_idle(self)

    def send(self, due: Due, head: bytes) -> None:
        """Send one request."""
        assert self._transport is not None
        self._due, self._answer = due, b""
        self._sent = self._sender.now()
        self._transport.write(b"%s%d\r\n\r\n%s" % (head, len(due.body), due.body))

    def data_received(self, data: bytes) -> None:
        """Take an answer, whole or in pieces."""
        self._answer += data
        end = self._answer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._answer[:end].lower()
        at = head.find(b"content-length:")
        size = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        body = self._answer[end + 4 :]
        if len(body) < size:
            return
        if self._due is None:
            return
        status = int(self._answer[9:12])
        due, self._due = self._due, None
        self._sender.ended(due, self._sent, status, body)
        if b"connection: close" in head:
            assert self._transport is not None
            self._transport.close()
        else:
            self._sender.is_idle(self)

    def connection_lost(self, error: Exception | None) -> None:
        """The request under way has no answer; another connection takes this one's place."""
        if self._due is not None:
            self._sender.lost(self._due, self._sent, error)
            self._due = None
        self._sender.reopen(self)


class Sender:
    """Sends one generator's work and records how it went."""

    def __init__(self, plan: Plan, index: int = 0) -> None:
        self.recording = Recording()
        self._plan = plan
        self._work = Work(plan, index)
        address = urlsplit(plan.url)
        self._host, self._port = address.hostname or "127.0.0.1", address.port or 80
        self._heads = {
            (kind_path, run): _head(kind_path, f"{self._host}:{self._port}", headers)
            for kind_path in ("/ingest/metrics", "/ingest/logs", "/ingest/data")
            for run, headers in enumerate(self._work.headers)
        }
        self._idle: deque[Connection] = deque()
        self._next: Due | None = None
        self._under_way = 0
        self._start = 0.0
        self._is_over = False
        self._opening: set[asyncio.Task[None]] = set()

    def now(self) -> float:
        """Seconds since the schedule began."""
        return time.perf_counter() - self._start

    async def run(self) -> None:
        """Send everything; returns when all is answered, or the last answers did not come."""
        connections = max(1, self._plan.connections // self._plan.generators)
        await asyncio.gather(*(self._open(Connection(self)) for _ in range(connections)))
        self._start = time.perf_counter()
        self._next = self._work.take()
        told = 0.0
        last = self._plan.due(max(0, self._plan.slots - 1)) + ANSWER_SECONDS_MAX
        while (self._next is not None or self._under_way) and self.now() < last:
            self._send_due()
            if self.now() - told >= PROGRESS_SECONDS:
                told = self.now()
                slots = self._plan.slots // self._plan.generators
                print(progress(self.recording, int(told), slots), file=sys.stderr, flush=True)
            await asyncio.sleep(TICK_SECONDS)
        self._is_over = True

    def is_idle(self, connection: Connection) -> None:
        """It can take a request; one that is overdue goes at once."""
        self._idle.append(connection)
        if self._start:
            self._send_due()

    def ended(self, due: Due, sent: float, status: int, body: bytes) -> None:
        """An answer came."""
        self._under_way -= 1
        rows = self._plan.shape.rows(due.kind)
        self.recording.record(due, sent, self.now(), error_of(status, body, rows))

    def lost(self, due: Due, sent: float, error: Exception | None) -> None:
        """No answer will come."""
        self._under_way -= 1
        self.recording.record(due, sent, self.now(), f"connection lost: {error or 'closed'}")

    def reopen(self, connection: Connection) -> None:
        """Open in the place of one that was lost."""
        if not self._is_over:
            task = asyncio.get_running_loop().create_task(self._open(Connection(self)))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
        if connection in self._idle:
            self._idle.remove(connection)

    def _send_due(self) -> None:
        now = self.now()
        while self._next is not None and self._next.seconds <= now and self._idle:
            due = self._next
            self._next = self._work.take()
            self._under_way += 1
            self._idle.popleft().send(due, self._heads[due.kind.path, due.run])

    async def _open(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        while not self._is_over:
            try:
                await loop.create_connection(lambda: connection, self._host, self._port)
            except OSError:
                await asyncio.sleep(0.2)
            else:
                return


def _head(path: str, host: str, headers: dict[str, str]) -> bytes:
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "Content-Length: "]).encode()


def send(plan: Plan, index: int = 0) -> dict[str, Any]:
    """Send one generator's part of a plan; what was recorded."""
    sender = Sender(plan, index)
    uvloop.run(sender.run())
    return sender.recording.taken()


def main() -> None:
    """Arguments: a plan's file, the file for what was recorded, and which of the generators."""
    plan_file, result_file, index = sys.argv[1:]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection is a descriptor
    plan = Plan.from_json(json.loads(Path(plan_file).read_text()))
    Path(result_file).write_text(json.dumps(send(plan, int(index))))


if __name__ == "__main__":
    main()
