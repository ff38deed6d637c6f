"""A request's body: decompressed as it comes, its head split from its data, the data in memory of its own.

The data goes into a memfd, which the engine reads as a file: `INSERT … FROM INFILE '/proc/self/fd/n'` is the one
way on which chDB reports every failure.
"""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING, Final, Protocol

import lz4.frame

from ingest.embedded_errors import refuse
from ingest.embedded_statement import QUERY_CHARS_MAX

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

DATA_BYTES_MAX: Final = 2 * 2**30
STEP_BYTES: Final = 2**20


class _Decompressor(Protocol):
    def decompress(self, data: bytes, /) -> bytes: ...


class DataFile:
    """Data of an INSERT, in anonymous memory that the kernel frees with the descriptor."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("insert", os.MFD_CLOEXEC)
        self.size = 0

    @property
    def name(self) -> str:
        """A path that this process, the engine included, can open."""
        return f"/proc/self/fd/{self.descriptor}"

    def write(self, data: bytes) -> None:
        """Appends.

        Raises:
            EngineError: more than DATA_BYTES_MAX.
        """
        self.size += len(data)
        if self.size > DATA_BYTES_MAX:
            raise refuse(
                307, "QUERY_IS_TOO_LARGE", f"An insert's data is at most {DATA_BYTES_MAX} bytes"
            )
        view = memoryview(data)
        while view:
            view = view[os.write(self.descriptor, view) :]

    def close(self) -> None:
        """Frees the memory."""
        os.close(self.descriptor)


async def decoded(body: AsyncIterator[bytes], encoding: str) -> AsyncGenerator[bytes]:
    """The body's bytes without their Content-Encoding.

    Raises:
        EngineError: an encoding that is unknown (48) or does not hold (36).
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        async for piece in body:
            yield piece
        return
    decompressor = _decompressor(encoding)
    async for piece in body:
        for at in range(0, len(piece), STEP_BYTES):
            try:
                out = decompressor.decompress(piece[at : at + STEP_BYTES])
            except (zlib.error, RuntimeError, OSError, EOFError, ValueError) as error:
                raise refuse(36, "BAD_ARGUMENTS", f"The body is not {encoding}: {error}") from error
            if out:
                yield out


def _decompressor(encoding: str) -> _Decompressor:
    match encoding:
        case "gzip" | "x-gzip":
            return zlib.decompressobj(16 + zlib.MAX_WBITS)
        case "deflate":
            return zlib.decompressobj()
        case "lz4":
            decompressor: _Decompressor = lz4.frame.LZ4FrameDecompressor()
            return decompressor
        case "zstd":
            return _zstd()
        case _:
            raise refuse(48, "NOT_IMPLEMENTED", f"Content-Encoding {encoding!r} is not offered")


def _zstd() -> _Decompressor:
    try:
        from compression.zstd import ZstdDecompressor  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415
    except ImportError:
        from backports.zstd import ZstdDecompressor  # noqa: PLC0415
    decompressor: _Decompressor = ZstdDecompressor()
    return decompressor


async def read_head(pieces: AsyncIterator[bytes]) -> bytes:
    """Enough of the body to hold any statement's head; all of it where it is small."""
    head = bytearray()
    async for piece in pieces:
        head += piece
        if len(head) > QUERY_CHARS_MAX:
            break
    return bytes(head)
