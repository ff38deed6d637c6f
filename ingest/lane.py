"""The fast lane of one connection: plain ingest requests without aiohttp and without a task each.

aiohttp's handling of a request costs 60 to 80 us before anything is done for it. So a connection's
bytes are looked at here first. Where a request ends is told by its head (`ingest.lane_heads`), and
then it is

=======  ==========================================================================================
served   here: a plain ingest request about which nothing is unusual
lent     to aiohttp: its bytes and no others; when aiohttp waits for the next, the lane goes on
given    to aiohttp, and with it whatever follows on the connection: a head that does not arrive in
         one piece, any framing but one Content-Length, an upgrade, an expectation; everything
         while the server drains
=======  ==========================================================================================

One request at a time: what a client sends before it has its answer waits in a bounded buffer, so
that answers leave in the order of their requests. While a client does not read its answers, none of
its requests is begun.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

import structlog

from ingest.lane_heads import IngestHead
from ingest.lane_kept import KEPT_BYTES_MAX
from ingest.lane_receiving import Unusual
from ingest.patience import Patience

if TYPE_CHECKING:
    import asyncio

    from ingest.admission import Reservation
    from ingest.lane_heads import BeatHead, Heads, Like
    from ingest.lane_kept import KeptAhead
    from ingest.lane_receiving import LaneReceiver

SERVED_BYTES_MAX = 256 * 2**10
"""Decoded in one call: about 2 ms of usual lines, for which other requests wait."""
GATHERED_BYTES_MAX = 64 * 2**10
"""Of a body that is not all here; it reserves no memory. A longer one is aiohttp's to read."""

_END = b"\r\n\r\n"

log = structlog.get_logger()


class Host(Protocol):
    """The connection, as its lane needs it."""

    transport: asyncio.Transport | None

    @property
    def writing_paused(self) -> bool:
        """Whether the client has to read before more is written."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether the client has said that it sends nothing more."""
        ...

    def feed(self, data: bytes) -> None:
        """Give bytes to aiohttp."""

    def request_begins(self) -> None:
        """The head of a request is here."""

    def request_ends(self) -> None:
        """A request has been answered: from now on the connection is idle."""

    def linger(self) -> None:
        """The last answer is written: let the client read it, then close."""

    def abandon(self) -> None:
        """End the connection at once: the client holds up more than its share."""

    def pause_lane(self) -> None:
        """Read nothing more of the client for now."""

    def resume_lane(self) -> None:
        """The end of `pause_lane`; nothing is read while something else is in the way."""


class State(Enum):
    """Whose turn it is."""

    HEAD = auto()
    BODY = auto()
    ANSWER = auto()
    LENT = auto()
    GIVEN = auto()
    ENDED = auto()


class Lane:
    """One connection's; see the module. Its host calls it for all that happens."""

    __slots__ = (
        *("_ahead", "_body_at", "_gathered", "_head", "_heads", "_host", "_is_paused", "_kept"),
        *("_like", "_loop", "_missing", "_receiver", "_request", "_reservation", "_state"),
        "_timer",
    )

    def __init__(
        self,
        host: Host,
        receiver: LaneReceiver,
        heads: Heads,
        ahead: KeptAhead,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._host = host
        self._receiver = receiver
        self._heads = heads
        self._ahead = ahead
        self._loop = loop
        self._state = State.HEAD
        self._kept = b""
        self._is_paused = False
        self._like: Like | None = None
        """The last head, where its request was accepted: the next one is nearly always like it.
        Of at most 2 KiB; a stranger's connection keeps none."""
        self._request = b""
        self._head: IngestHead | BeatHead | None = None
        self._body_at = 0
        self._missing = 0
        """Bytes of the request under way that have not come yet."""
        self._gathered = bytearray()
        self._reservation: Reservation | None = None
        self._timer: Patience | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a request is being read or answered here, or has its turn next."""
        if self._state is State.HEAD:
            return bool(self._kept)
        return self._state is State.BODY or self._state is State.ANSWER

    @property
    def owes(self) -> bool:
        """Whether there is something to answer, though the client should send no more."""
        if self._state is State.HEAD:
            return bool(self._kept)
        return self._state is State.ANSWER or (self._state is State.LENT and not self._missing)

    @property
    def is_cut_short(self) -> bool:
        """Whether a request is here in part: nothing can be answered should no more come."""
        return self._state is State.BODY or (self._state is State.LENT and self._missing > 0)

    @property
    def is_idle(self) -> bool:
        """Whether nothing of a request is here; what was given to aiohttp is not looked at."""
        return self._state is State.GIVEN or (self._state is State.HEAD and not self._kept)

    def data_received(self, data: bytes) -> None:
        """Bytes of the client."""
        state = self._state
        if state is State.HEAD:
            # Something is kept here only between `returned` and the turn that it asks for.
            self._next(self._take_kept() + data if self._kept else data)
        elif state is State.BODY:
            self._gather(data)
        elif state is State.GIVEN:
            self._host.feed(data)
        elif state is State.LENT and self._missing:
            part, rest = data[: self._missing], data[self._missing :]
            self._missing -= len(part)
            if rest:
                self._keep(rest)
            self._host.feed(part)
        elif state is not State.ENDED:
            self._keep(data)

    def returned(self) -> None:
        """Aiohttp waits for the next request: one that was lent is answered."""
        if self._state is State.LENT and not self._missing:
            self._state = State.HEAD
            if self._kept:
                self._loop.call_soon(self._go_on)

    def writable(self) -> None:
        """The client reads again."""
        if self._kept:
            self._loop.call_soon(self._go_on)

    def lost(self) -> None:
        """The connection is no more."""
        self._end_of_body()
        self._state = State.ENDED
        self._request = b""
        self._like = None
        self._set_kept(b"")

    def answer(self, answer: bytes) -> None:
        """See `lane_receiving.Asker`."""
        if self._state is State.ANSWER:
            self._write(answer)
            if self._kept:
                self._go_on()

    def turn_away(self) -> None:
        """See `lane_receiving.Asker`."""
        if self._state is State.ANSWER:
            self._lend(self._request)

    def _next(self, data: bytes) -> None:
        """Begin with the request that these bytes begin with."""
        if not data:
            return
        if self._host.writing_paused:
            self._keep(data)
            return
        if self._receiver.is_draining():
            self._give(data)
            return
        like = self._like
        measured = None if like is None else like.measure(data)
        if like is not None and measured is not None:
            body_at, length = measured
            head: IngestHead | BeatHead | None = like.ingest
        else:
            body_at = data.find(_END) + len(_END)
            found = None if body_at < len(_END) else self._heads.find(data[:body_at])
            if found is None:
                self._give(data)
                return
            length, head, self._like = found
        end = body_at + length
        if self._kept or len(data) > end:
            self._set_kept(data[end:])
        if self._state is not State.ENDED:
            self._begin(data, body_at, length, head)

    def _begin(
        self, data: bytes, body_at: int, length: int, head: IngestHead | BeatHead | None
    ) -> None:
        """The request's end is known, and what lies behind it is kept."""
        end = body_at + length
        is_whole = len(data) >= end
        if head is None or length > (SERVED_BYTES_MAX if is_whole else GATHERED_BYTES_MAX):
            self._missing = max(end - len(data), 0)
            self._like = None
            self._lend(data[:end])
            return
        self._host.request_begins()
        self._head, self._body_at = head, body_at
        if not is_whole and self._host.has_ended:
            self._end()
        elif not is_whole:
            self._await_body(data, length)
        elif self._serve(data[:end] if self._kept else data) and self._kept:
            # Answered at once: one such request a turn, for many may have come together.
            self._loop.call_soon(self._go_on)

    def _serve(self, request: bytes) -> bool:
        """Serve one whole request; whether it is answered already."""
        assert self._head is not None
        self._request = request
        self._state = State.ANSWER
        try:
            answer = self._receiver.take(self._head, request[self._body_at :], self)
        except Unusual:
            self._like = None
            self._lend(request)
            return False
        except Exception:
            # A defect of ours. aiohttp's lane meets it too, and answers under an id of the log.
            log.exception("lane_failed", path=self._head.path)
            self._lend(request)
            return False
        if answer is None:
            return False
        if isinstance(self._head, IngestHead):  # refused, or without rows
            self._like = None
        self._write(answer)
        return self._state is State.HEAD

    def _write(self, answer: bytes) -> None:
        self._request = b""
        self._state = State.HEAD
        transport = self._host.transport
        if transport is None or transport.is_closing():
            self._state = State.ENDED
            return
        transport.write(answer)
        self._host.request_ends()
        if self._receiver.is_draining():
            self._state = State.ENDED
            transport.close()

    def _end(self) -> None:
        """What follows cannot be answered; what was answered is still written."""
        self._state = State.ENDED
        if self._host.transport is not None:
            self._host.transport.close()

    def _await_body(self, data: bytes, length: int) -> None:
        self._state = State.BODY
        self._gathered += data
        self._missing = self._body_at + length - len(data)
        self._timer = Patience(self._loop, self._receiver.body_seconds_max, self._give_up)
        self._reservation = self._receiver.await_body(length, self._give_up)

    def _gather(self, data: bytes) -> None:
        missing = self._missing
        if len(data) > missing:
            self._keep(data[missing:])
            data = data[:missing]
            if self._state is State.ENDED:
                return
        self._gathered += data
        self._missing = missing - len(data)
        if self._missing:
            assert self._reservation is not None
            self._reservation.received += len(data)
            return
        request = bytes(self._gathered)
        self._end_of_body()
        if self._serve(request) and self._kept:
            self._loop.call_soon(self._go_on)

    def _give_up(self) -> None:
        """The body did not come in time, or holds up others."""
        assert self._head is not None
        reservation = self._reservation
        if self._state is not State.BODY or reservation is None:
            return
        self._end_of_body()
        self._state = State.ENDED
        transport = self._host.transport
        if transport is not None and not transport.is_closing():
            transport.write(self._receiver.too_slow(self._head, reservation))
            self._host.linger()

    def _end_of_body(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._reservation is not None:
            self._receiver.end_of_body(self._reservation)
            self._reservation = None
        self._gathered = bytearray()

    def _lend(self, request: bytes) -> None:
        self._request = b""
        self._state = State.LENT
        self._host.feed(request)

    def _give(self, data: bytes) -> None:
        self._state = State.GIVEN
        self._resume()
        self._host.feed(data)

    def _keep(self, data: bytes) -> None:
        self._set_kept(self._kept + data)

    def _set_kept(self, kept: bytes) -> None:
        may_keep = self._ahead.change(len(self._kept), len(kept))
        self._kept = kept
        if not may_keep:
            self._end_of_body()
            self._state = State.ENDED
            self._set_kept(b"")
            self._host.abandon()
        elif len(kept) > KEPT_BYTES_MAX:
            self._is_paused = True
            self._host.pause_lane()

    def _go_on(self) -> None:
        """The turn of what has been kept."""
        if self._state is State.HEAD:
            self._next(self._take_kept())

    def _take_kept(self) -> bytes:
        kept = self._kept
        self._set_kept(b"")
        self._resume()
        return kept

    def _resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._host.resume_lane()
