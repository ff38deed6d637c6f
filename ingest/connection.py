"""One client's connection: aiohttp's, with the deadlines and the answers that it lacks.

* A request's headers have to arrive whole within an absolute time, from the first byte on (for a
  new connection: from its opening). aiohttp knows only an idle time, which each byte of a drip
  renews.
* What is no HTTP is answered 400 in our error shape, and logged without its bytes: they may hold a
  key.
* Connections above the limit are answered 503 and closed, before the process runs out of
  descriptors.

In front of aiohttp stands the fast lane (`ingest.lane`), which serves plain ingest requests itself.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from aiohttp import web

from ingest.answers import SERVER, STATUS, Code, code_of_status, error_body, error_response
from ingest.intake import READ_BUFFER_BYTES
from ingest.lane import Lane
from ingest.lane_heads import HEADER_BYTES_MAX, HEADERS_MAX, Heads
from ingest.lane_kept import KeptAhead
from ingest.malformed import say_malformed
from ingest.patience import LATE_SECONDS, Patience

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import StreamReader

    from ingest.lane_receiving import LaneReceiver
    from ingest.metrics import WorkerMetrics

LAST_WORDS_SECONDS = 0.5
DRAIN_POLL_SECONDS = 0.05
WRITE_BUFFER_BYTES = 32 * 2**10
"""Of answers that the client has not read; with more, nothing more of it is read."""
ANSWER_SECONDS_MAX = 30.0
"""A client that asks and does not read what it gets is left after this."""
LINGER_SECONDS = 5.0
"""A client refused in the middle of its body is read on for this long, to see the answer."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Seconds and counts of one worker's connections."""

    header_seconds_max: float
    idle_seconds_max: float
    connections_max: int


class FastLane(NamedTuple):
    """What the fast lanes of all connections share."""

    receiver: LaneReceiver
    heads: Heads
    ahead: KeptAhead


class Connection(web.RequestHandler):
    """A connection; see the module. Made by `ConnectionFactory`."""

    __slots__ = (
        *("_deadline", "_idle_waiter", "_lane", "_last_body", "_limits", "_metrics"),
        *("_unread_deadline", "has_ended"),
    )

    def __init__(
        self,
        server: web.Server,
        *,
        limits: ConnectionLimits,
        metrics: WorkerMetrics,
        loop: asyncio.AbstractEventLoop,
        fast: FastLane | None = None,
    ) -> None:
        self._lane = None if fast is None else Lane(self, *fast, loop)
        self.has_ended = False
        """Whether the client has said that it sends nothing more. It may have gone altogether."""
        self._idle_waiter: asyncio.Future[None] | None = None
        self._last_body: StreamReader | None = None
        """Of the last request that a handler began with."""
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=limits.idle_seconds_max,
            access_log=cast("Any", None),
            max_line_size=HEADER_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
            max_headers=HEADERS_MAX,
            lingering_time=LINGER_SECONDS,
            read_bufsize=READ_BUFFER_BYTES,
            auto_decompress=False,
        )
        self._limits = limits
        self._metrics = metrics
        self._deadline: Patience | None = None
        self._unread_deadline: Patience | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Refuse above the limit; else the time for the first request's headers begins."""
        super().connection_made(transport)
        manager = self._manager
        assert manager is not None
        cast("asyncio.Transport", transport).set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        if len(manager.connections) > self._limits.connections_max:
            self._metrics.count("connections_refused")
            self._end(Code.SERVICE_OVERLOADED, "too many connections; try again later")
        else:
            self._arm()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The deadline goes with the connection."""
        self._disarm()
        if self._unread_deadline is not None:
            self._unread_deadline.cancel()
        if self._lane is not None:
            self._lane.lost()
        if self._messages and self._current_request is None and self._task_handler is not None:
            # A request of which no handler has begun: aiohttp would begin it without a connection,
            # and log the TypeError that this brings.
            self._task_handler.cancel()
        body = self._last_body
        if self._current_request is None and body is not None and not body.is_eof():
            # Of one that was refused before all of it was here aiohttp waits for the rest, which
            # cannot come, and counts the connection meanwhile.
            body.feed_eof()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not read: no more of its requests are taken, and it has a while to."""
        super().pause_writing()
        self._pause_reading_for_buffer()
        self._unread_deadline = Patience(self._loop, ANSWER_SECONDS_MAX, self._abandon)

    def resume_writing(self) -> None:
        """It reads."""
        super().resume_writing()
        if self._unread_deadline is not None:
            self._unread_deadline.cancel()
            self._unread_deadline = None
        self._resume_reading_if_drained()
        if self._lane is not None:
            self._lane.writable()

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more: what it has asked for is answered, and then this ends.

        Returns: whether the transport stays open.
        """
        self.has_ended = True
        lane = self._lane
        if lane is not None and lane.owes:
            return True
        if lane is not None and lane.is_cut_short:
            return False
        if self._current_request is not None:
            return not self._lacks_end_of(self._current_request.content)
        if self._idle_waiter is not None:
            return bool(self._messages) and not self._lacks_end_of(self._messages[0][1])
        # One is on its way to its handler: see there. Or one was refused before its body was here.
        return self._last_body is None or not self._lacks_end_of(self._last_body)

    def data_received(self, data: bytes) -> None:
        """The fast lane's first, where there is one; without bytes it is aiohttp's own wish."""
        if self._lane is not None and data:
            self._lane.data_received(data)
        else:
            self.feed(data)

    def feed(self, data: bytes) -> None:
        """Parse; the deadline stands while there is a request of which not all headers are here."""
        count = self._request_count
        super().data_received(data)
        if self._request_count != count:
            if self._deadline is not None:
                self._disarm()
        elif data and (waiter := self._waiter) is not None and not waiter.done():
            # (Where it is done, these are more of a body whose request has its turn next.)
            if self.has_ended:  # the head's end will not come
                self._end_if_idle()
            elif self._deadline is None:
                self._arm()
        body = self._last_body
        if self.has_ended and not data and body is not None and self._lacks_end_of(body):
            # The parser had more of it and goes on when there is room: that was all.
            self._hang_up()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - aiohttp's text may repeat the request's bytes
    ) -> web.StreamResponse:
        """The answer to what is no HTTP, and to what escaped the application."""
        if isinstance(exc, ConnectionError):
            raise exc  # it has hung up in the middle of its body: aiohttp knows what that is
        if request.writer.output_size > 0:
            raise ConnectionError("an answer was begun; no other can follow")
        code = code_of_status(status)
        self._metrics.count("http_malformed")
        say_malformed(self._loop.time(), status, type(exc).__name__)
        response = error_response(code, _MESSAGES.get(code, "the request could not be read"))
        response.set_status(status)
        response.headers["Server"] = SERVER
        response.headers["Connection"] = "close"
        response.force_close()
        return response

    async def _handle_request(
        self,
        request: web.BaseRequest,
        start_time: float | None,
        request_handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
    ) -> tuple[web.StreamResponse, bool]:
        if self.transport is None or (self.has_ended and self._lacks_end_of(request.content)):
            # Lost between the head and this turn, and aiohttp has told neither the request nor its
            # body, whose first read would fail as by a defect of ours; or the body's end cannot
            # come, and the client waits for no more than what was answered before.
            raise ConnectionResetError("the client has hung up")
        self._last_body = request.content
        return await super()._handle_request(request, start_time, request_handler)

    def close_if_idle(self) -> None:
        """Close unless a request is being read or answered; such a one closes with its answer."""
        is_busy = self._lane is not None and self._lane.is_busy
        if self._current_request is None and not self._messages and not is_busy:
            self.force_close()

    def request_begins(self) -> None:
        """See `lane.Host`."""
        if self._deadline is not None:
            self._disarm()

    def request_ends(self) -> None:
        """See `lane.Host`: aiohttp's own timer looks at this when it fires."""
        self._next_keepalive_close_time = self._loop.time() + self._limits.idle_seconds_max
        if self.has_ended:
            self._end_if_idle()

    def linger(self) -> None:
        """See `lane.Host`."""
        self._loop.call_later(LINGER_SECONDS, self.force_close)

    def abandon(self) -> None:
        """See `lane.Host`."""
        self._abandon()

    def pause_lane(self) -> None:
        """See `lane.Host`."""
        self._pause_transport_reading()

    def resume_lane(self) -> None:
        """See `lane.Host`."""
        if not self._buffer_paused and not self._reading_paused:
            self._resume_transport_reading()

    @property
    def _waiter(self) -> asyncio.Future[None] | None:
        """What aiohttp waits on for its next request; None while it serves one."""
        return self._idle_waiter

    @_waiter.setter
    def _waiter(self, waiter: asyncio.Future[None] | None) -> None:
        self._idle_waiter = waiter
        if waiter is not None:
            if self._lane is not None:
                self._lane.returned()
            if self.has_ended:
                self._end_if_idle()

    def _process_keepalive(self) -> None:
        if self._lane is not None and self._lane.is_busy:
            self.request_ends()  # it is not idle: look again after as long
        now = self._loop.time()
        late = now - self._next_keepalive_close_time
        if late > LATE_SECONDS:  # what it sent meanwhile may wait to be read
            self._next_keepalive_close_time = now + min(late, self._limits.idle_seconds_max)
        super()._process_keepalive()

    def _lacks_end_of(self, body: StreamReader) -> bool:
        """Whether a body's end has not come, and will not where the client sends no more.

        While a large body waits to be read, the parser holds back what it has behind it.
        """
        return not body.is_eof() and not self._reading_paused

    def _end_if_idle(self) -> None:
        """A client that sends no more has all its answers."""
        if self._lane is None or self._lane.is_idle:
            self._hang_up()

    def _hang_up(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def _arm(self) -> None:
        self._deadline = Patience(self._loop, self._limits.header_seconds_max, self._expire)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self) -> None:
        self._deadline = None
        self._metrics.count("header_timeouts")
        self._end(Code.REQUEST_TIMEOUT, "no whole request arrived in time")

    def _abandon(self) -> None:
        self._metrics.count("answers_abandoned")
        if self.transport is not None:
            self.transport.abort()

    def _end(self, code: Code, message: str) -> None:
        """Answer without a request, and close."""
        body = error_body(code, message)
        if self.transport is not None:
            self.transport.write(
                f"HTTP/1.1 {STATUS[code]} {code.value}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                + body
            )
        self.force_close()


class ConnectionFactory:
    """What the listener calls for each connection.

    Args:
        server: aiohttp's.
        limits: of all connections.
        metrics: counts them.
        fast: serves plain ingest requests; None: aiohttp serves all.
    """

    def __init__(
        self,
        server: web.Server,
        *,
        limits: ConnectionLimits,
        metrics: WorkerMetrics,
        fast: LaneReceiver | None = None,
    ) -> None:
        self._server = server
        self._limits = limits
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._fast = None if fast is None else FastLane(fast, Heads(self._loop), KeptAhead())

    def __call__(self) -> Connection:
        """A protocol for one new connection."""
        return Connection(
            self._server,
            limits=self._limits,
            metrics=self._metrics,
            loop=self._loop,
            fast=self._fast,
        )

    async def drain(self, seconds_max: float) -> None:
        """Let every request that is under way come to its end, its body included.

        aiohttp's own shutdown throws away what arrives of a body from then on. Idle connections are
        closed half a second later, so that a request that is on its way already is still served.
        Returns early when no connection is left.
        """
        now = self._loop.time
        close_idle_at, give_up_at = now() + LAST_WORDS_SECONDS, now() + seconds_max
        while self._server.connections and now() < give_up_at:
            if now() >= close_idle_at:
                for connection in self._server.connections:
                    cast("Connection", connection).close_if_idle()
            await asyncio.sleep(DRAIN_POLL_SECONDS)

    @property
    def connection_count(self) -> int:
        """Connections now open."""
        return len(self._server.connections)


_MESSAGES = {
    Code.MALFORMED_REQUEST: "this is not a well-formed HTTP/1.1 request",
    Code.INTERNAL_ERROR: "an error of the server's own; it has been logged",
}
