"""A block as a request's body: of known length, written in the pieces in which it lies in memory.

What an iterator gives goes out as HTTP chunks: small pieces were joined to some worth sending, and
aiohttp joined each with the marks around it. The two copies took 20 ns a row, more than building.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NoReturn

from aiohttp import Payload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aiohttp.abc import AbstractStreamWriter

    from schema.block import Block

PIECE_BYTES_MAX = 2**19
"""Of one write to the socket, and about what is written between two turns of the event loop."""

SMALL_BYTES = 64 * 2**10
"""Pieces below it are joined up to it: a system call for each would cost more than the copy."""


class BlockBody(Payload):
    """What aiohttp is given as the data of a request."""

    _autoclose = True  # nothing to close: it holds memory alone

    def __init__(self, block: Block) -> None:
        super().__init__(block.pieces, content_type="application/octet-stream")
        self._size = sum(map(len, block.pieces))

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> NoReturn:
        """Is not asked of a body that is only sent."""
        raise TypeError(f"a block is not text in {encoding} ({errors})")

    async def write(self, writer: AbstractStreamWriter) -> None:
        """All pieces, with turns of the event loop in between.

        A socket whose other end reads fast takes everything at once and never makes its writer
        wait: a block of 200,000 rows then went out in one go, for 6 to 9 ms in which no request
        was read or answered. Now it is 0.5 ms.
        """
        written = 0
        for piece in _joined(self._value):
            await writer.write(piece)
            written += len(piece)
            if written >= PIECE_BYTES_MAX:
                written = 0
                await asyncio.sleep(0)


def _joined(pieces: Iterable[bytes]) -> Iterator[bytes | memoryview]:
    """The same bytes: small pieces joined, large ones as they are, huge ones cut."""
    small: list[bytes] = []
    size = 0
    for piece in pieces:
        if len(piece) < SMALL_BYTES:
            small.append(piece)
            size += len(piece)
        if size and (len(piece) >= SMALL_BYTES or size >= SMALL_BYTES):
            yield b"".join(small)
            small.clear()
            size = 0
        if len(piece) > PIECE_BYTES_MAX:
            view = memoryview(piece)
            for offset in range(0, len(piece), PIECE_BYTES_MAX):
                yield view[offset : offset + PIECE_BYTES_MAX]
        elif len(piece) >= SMALL_BYTES:
            yield piece
    if size:
        yield b"".join(small)
