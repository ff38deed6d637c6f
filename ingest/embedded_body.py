"""A request's body: decompressed as it comes, and an insert's data in memory of its own.

The data goes into a memfd, which the engine reads as a file: `INSERT … FROM INFILE
'/proc/self/fd/n'` is the one way on which chDB reports every failure. A worker on this machine
hands over a memfd of its own instead, which is read where it is (`schema.handing`).
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import lz4.frame

from ingest.body_decoding import BadEncoding, BodyDecoder, BodyTooLarge, UnknownEncoding
from ingest.embedded_errors import refuse
from ingest.embedded_statement import QUERY_CHARS_MAX
from schema.handing import REFUSED_STATUS, SEALS, Place

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator

    from ingest.embedded_errors import EngineError

DATA_BYTES_MAX: Final = 2**30
"""Of one insert. 3,000,000 rows are about 200 MB."""
ALL_DATA_BYTES_MAX: Final = 2 * 2**30
"""Of all inserts under way: what waits for the engine waits in memory."""
_STEP_BYTES: Final = 2**20


class _Decoder(Protocol):
    def feed(self, data: bytes) -> Iterator[bytes]: ...
    def finish(self) -> None: ...


class InsertRoom:
    """The memory that inserts' data may take, together."""

    def __init__(self, bytes_max: int = ALL_DATA_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._taken = 0

    def take(self, size: int) -> None:
        """Reserves.

        Raises:
            EngineError: 241, which clients take for a passing shortage.
        """
        if self._taken + size > self._bytes_max:
            raise refuse(
                241,
                "MEMORY_LIMIT_EXCEEDED",
                f"The data of inserts under way would pass {self._bytes_max} bytes",
            )
        self._taken += size

    def give_back(self, size: int) -> None:
        """Ends a reservation."""
        self._taken -= size


class DataFile:
    """Data of an INSERT, in anonymous memory that the kernel frees with the descriptor."""

    def __init__(self, room: InsertRoom, handed: str | None = None) -> None:
        """Empty, or with what was handed over.

        Raises:
            EngineError: with `REFUSED_STATUS`, where that cannot be had or is not what it was
                said to be; as `write`, where there is no room for it.
        """
        self._room = room
        self._size = 0
        self._is_handed = handed is not None
        if handed is None:
            self._descriptor = os.memfd_create("insert", os.MFD_CLOEXEC)
            return
        self._descriptor = _opened(handed)
        try:
            self._take(os.fstat(self._descriptor).st_size)
        except BaseException:
            os.close(self._descriptor)
            raise

    @property
    def name(self) -> str:
        """A path that this process, the engine included, can open."""
        return f"/proc/self/fd/{self._descriptor}"

    def write(self, data: bytes) -> None:
        """Appends.

        Raises:
            EngineError: more than one insert, or all together, may have; data was handed over.
        """
        if data and self._is_handed:
            raise refuse(36, "BAD_ARGUMENTS", "An insert's data is handed over, or in the body")
        self._take(len(data))
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def close(self) -> None:
        """Frees the memory."""
        os.close(self._descriptor)
        self._room.give_back(self._size)
        self._size = 0

    def _take(self, size: int) -> None:
        if self._size + size > DATA_BYTES_MAX:
            raise refuse(
                229, "QUERY_IS_TOO_LARGE", f"An insert's data is at most {DATA_BYTES_MAX} bytes"
            )
        self._room.take(size)
        self._size += size


async def decoded(body: AsyncIterator[bytes], encoding: str) -> AsyncGenerator[bytes]:
    """The body's bytes without their Content-Encoding, in pieces of at most 1 MiB.

    Raises:
        EngineError: an encoding that is unknown (48), or that the bytes are not in (36): a body
            that was cut short is an error, never a shorter body.
    """
    try:
        decoder = _decoder(encoding.strip().lower())
        async for piece in body:
            for out in decoder.feed(piece):
                yield out
        decoder.finish()
    except UnknownEncoding as error:
        raise refuse(48, "NOT_IMPLEMENTED", f"{error}; lz4 too") from error
    except BadEncoding as error:
        raise refuse(36, "BAD_ARGUMENTS", str(error)) from error
    except BodyTooLarge as error:
        raise refuse(229, "QUERY_IS_TOO_LARGE", str(error)) from error


async def read_head(pieces: AsyncIterator[bytes]) -> bytes:
    """Enough of the body to hold any statement's head; all of it where it is small."""
    head = bytearray()
    async for piece in pieces:
        head += piece
        if len(head) > QUERY_CHARS_MAX:
            break
    return bytes(head)


def _opened(handed: str) -> int:
    """A descriptor of our own for memory of another process; a client can name nothing else."""
    place = Place.parse(handed)
    if place is None:
        raise _not_had("the header does not name a place")
    try:
        # What bears another name is not opened at all. One that bears this one and is no memory,
        # on a file system that only its holder sees, may be a pipe: it must not be waited for.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        descriptor = os.open(place.path, flags) if _is(place) else None
    except OSError as error:
        raise _not_had(str(error.strerror)) from error
    if descriptor is None:
        raise _not_had("it is not there any more")
    try:
        if _is(replace(place, pid=os.getpid(), descriptor=descriptor)) and _is_sealed(descriptor):
            return descriptor
    except OSError as error:  # what is no memory has no seals
        os.close(descriptor)
        raise _not_had(str(error.strerror)) from error
    os.close(descriptor)
    raise _not_had("it is not there any more, or may still change")


def _is_sealed(descriptor: int) -> bool:
    return fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & SEALS == SEALS


def _is(place: Place) -> bool:
    return str(Path(place.path).readlink()) == place.target


def _not_had(why: str) -> EngineError:
    message = f"Cannot have the data that was handed over: {why}"
    return refuse(76, "CANNOT_OPEN_FILE", message, status=REFUSED_STATUS)


def _decoder(encoding: str) -> _Decoder:
    if encoding == "lz4":
        return _Lz4Decoder()
    return BodyDecoder(encoding, DATA_BYTES_MAX)


class _Lz4Decoder:
    """LZ4 frames, one after another, as `BodyDecoder` takes the rest."""

    def __init__(self) -> None:
        self._frame: lz4.frame.LZ4FrameDecompressor | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data or (self._frame is not None and not self._frame.needs_input):
            if self._frame is None:
                self._frame = lz4.frame.LZ4FrameDecompressor()
            try:
                out = self._frame.decompress(data, _STEP_BYTES)
            except (RuntimeError, EOFError) as error:
                raise BadEncoding(f"the body is not valid lz4: {error}") from error
            data = b""
            if self._frame.eof:
                data = self._frame.unused_data or b""
                self._frame = None
            if out:
                yield out

    def finish(self) -> None:
        if self._frame is not None:
            raise BadEncoding("the body ends before its lz4 frame does")
