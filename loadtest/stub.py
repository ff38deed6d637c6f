"""A server that answers at once and stores nothing: what a generator can do at most.

It speaks to `loadtest.sockets` and to locust over a real socket, and answers each request with what
they expect of Charon, so that the cost of reading answers is in the ceiling too.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop

from loadtest.payloads import Kind
from loadtest.scenarios import SCENARIOS


class Answerer(asyncio.Protocol):
    """Reads requests that have a Content-Length, and answers."""

    def __init__(self, answers: dict[bytes, bytes]) -> None:
        self._answers = answers
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer what is complete."""
        self._data = self._data + data if self._data else data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            head = self._data[:end]
            at = head.lower().find(b"content-length:")
            whole = end + 4 + int(head[at + 15 :].split(b"\r\n", 1)[0])
            if len(self._data) < whole:
                return
            self._transport.write(self._answers[head.split(b" ", 2)[1]])
            self._data = self._data[whole:]


async def serve(scenario: str) -> None:
    """Serve until the process is ended; prints the port."""
    shape = SCENARIOS[scenario].shape
    answers = {kind.path.encode(): _answer(shape.rows(kind)) for kind in Kind}
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Answerer(answers), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def _answer(rows: int) -> bytes:
    body = b'{"accepted":%d,"rejected":0,"errors":[]}' % rows
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
