"""Reading a body: its bytes counted after decoding, bounded in time and memory, piece by piece."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp.web_protocol import RequestPayloadError

from ingest.answers import Code, RequestRefused
from ingest.body_decoding import ENCODINGS, BadEncoding, BodyDecoder, BodyTooLarge, UnknownEncoding
from ingest.patience import Patience

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp import web

    from ingest.admission import Reservation


READ_BUFFER_BYTES = 64 * 2**10
"""aiohttp stops reading from a client at twice this: what one that is made to wait can cost us."""


class Body:
    """The body of one request, read once.

    Args:
        request: its headers say the encoding and, where it is not compressed, the length.
        bytes_max: after decoding.
        seconds_max: an absolute bound on waiting for the sender.

    Raises:
        RequestRefused: 400, a Transfer-Encoding besides chunked; 413, the stated length is above
            the limit; 415, an encoding not taken.
    """

    def __init__(self, request: web.Request, *, bytes_max: int, seconds_max: float) -> None:
        encodings = request.headers.getall("Content-Encoding", ())
        try:
            self._decoder = BodyDecoder(", ".join(encodings) or None, bytes_max)
        except UnknownEncoding:
            raise RequestRefused(
                Code.UNSUPPORTED_ENCODING,
                f"Content-Encoding must be one of {', '.join(ENCODINGS)}, and one alone",
            ) from None
        if request.headers.get("Transfer-Encoding", "chunked").strip().lower() != "chunked":
            # HTTP's own encoding of the message: the parser would give its bytes as they are.
            raise RequestRefused(
                Code.MALFORMED_REQUEST,
                "Transfer-Encoding must be chunked; a compressed body has a Content-Encoding",
                is_last=True,
            )
        self._content = request.content
        self._bytes_max = bytes_max
        self._seconds_max = seconds_max
        self._deadline: float | None = None
        self._pending: Iterator[bytes] = iter(())
        self.known_size = request.content_length if self._decoder.is_identity else None
        if self.known_size is not None and self.known_size > bytes_max:
            raise self._too_large()
        length = request.content_length
        self._buffered = READ_BUFFER_BYTES if length is None else min(length, READ_BUFFER_BYTES)

    @property
    def size(self) -> int:
        """Decoded bytes so far."""
        return self._decoder.decoded_bytes

    async def read(self, reservation: Reservation) -> bytes:
        """The next piece, decoded, at most 1 MiB and reserved; empty at the end.

        Raises:
            RequestRefused: 400, not of its encoding or not HTTP; 408, too slow; 413, too large;
                503, no memory for it.
            ConnectionError: the client has hung up.
        """
        try:
            while True:
                piece = next(self._pending, b"")
                if piece:
                    await reservation.grow(self.size)
                    return piece
                data = await self._receive(reservation)
                reservation.received += len(data)
                if not data:
                    self._decoder.finish()
                    reservation.shrink(self.size)
                    return b""
                self._pending = self._decoder.feed(data)
        except BodyTooLarge:
            raise self._too_large() from None
        except BadEncoding as error:
            raise RequestRefused(Code.INVALID_INPUT, str(error), is_last=True) from None
        except RequestPayloadError:
            raise RequestRefused(
                Code.MALFORMED_REQUEST, "the body's framing is not valid HTTP", is_last=True
            ) from None

    async def _receive(self, reservation: Reservation) -> bytes:
        """Bytes as they were sent; empty at the end."""
        content = self._content
        if content.is_eof():
            return content.read_nowait()  # all is here: no wait and no deadline
        loop = asyncio.get_running_loop()
        if self._deadline is None:
            self._deadline = loop.time() + self._seconds_max
        try:
            async with asyncio.timeout(None) as timer:
                patience = Patience(
                    loop, self._seconds_max, lambda: _end(timer), due=self._deadline
                )
                try:
                    with reservation.awaiting(lambda: _end(timer), buffered=self._buffered):
                        return await self._next()
                finally:
                    patience.cancel()
                    self._deadline = patience.due
        except TimeoutError:
            raise too_slow(self._seconds_max, is_given_up=reservation.is_given_up) from None

    async def _next(self) -> bytes:
        """Wait for the sender."""
        pieces, size = [await self._content.readany()], 0
        while self._buffered and not self._content.at_eof():
            # The start is gathered before anything is reserved: a body that drips takes nothing
            # of the memory that others wait for.
            size += len(pieces[-1])
            if size >= self._buffered:
                break
            pieces.append(await self._content.readany())
        self._buffered = 0
        return b"".join(pieces)

    def _too_large(self) -> RequestRefused:
        return RequestRefused(
            Code.BODY_TOO_LARGE,
            f"the body is larger than {self._bytes_max} bytes after decoding: send it in parts",
            is_last=True,
        )


def too_slow(seconds_max: float, *, is_given_up: bool) -> RequestRefused:
    """What the sender of a body is told that did not come in time, or held up others."""
    message = f"the body did not arrive within {seconds_max:g} seconds"
    if is_given_up:
        message = "the body arrived slowly while others waited for the memory"
    return RequestRefused(Code.REQUEST_TIMEOUT, message, is_last=True)


def _end(timer: asyncio.Timeout) -> None:
    timer.reschedule(asyncio.get_running_loop().time())
