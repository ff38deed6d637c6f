"""Request bodies in the content encodings that are taken, decoded piece by piece under a bound.

Decoded bytes are counted as they appear, and no step makes more of them than one piece or one byte
past the bound: a body of 200 KiB that would become 200 MiB is refused at the bound, at the cost of
one piece.

=================  =======================================================================
content encoding   what is taken
=================  =======================================================================
identity, none     the bytes as they are
gzip, x-gzip       RFC 1952, any number of members, zero padding after the last
deflate            RFC 9110's zlib stream, and the bare deflate stream that some clients send
zstd               RFC 8878, any number of frames; windows of at most 8 MiB, as RFC 9659 says
=================  =======================================================================
"""

from __future__ import annotations

import sys
import zlib
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PIECE_BYTES_MAX = 2**20
EMPTY_MEMBERS_MAX = 1_000
"""In a row: each costs a decoder's set-up, so a body of nothing else is an attack."""

ENCODINGS = ("identity", "gzip", "x-gzip", "deflate", "zstd")
_WINDOW_LOG_MAX = 23


class BodyTooLarge(Exception):
    """A body is longer, after decoding, than a body may be."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body is longer than {limit:,} bytes after decoding")
        self.limit = limit


class BadEncoding(Exception):
    """A body is not what its Content-Encoding says: corrupt, cut short, or goes on too long."""


class UnknownEncoding(BadEncoding):
    """A Content-Encoding that is not taken; the message lists those that are."""


class _Member(Protocol):
    """One gzip member, deflate stream or zstd frame."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> tuple[bytes, bytes]: ...


class _ZlibMember:
    def __init__(self, window_bits: int) -> None:
        self._stream = zlib.decompressobj(window_bits)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes, max_length: int) -> tuple[bytes, bytes]:
        """Decoded bytes, and what of `data` is still to be given."""
        decoded = self._stream.decompress(data, max_length)
        return decoded, self._stream.unconsumed_tail


class _ZstdFrame:
    def __init__(self) -> None:
        options = {int(zstd.DecompressionParameter.window_log_max): _WINDOW_LOG_MAX}
        self._frame = zstd.ZstdDecompressor(options=options)

    @property
    def eof(self) -> bool:
        return self._frame.eof

    @property
    def unused_data(self) -> bytes:
        return self._frame.unused_data

    def decompress(self, data: bytes, max_length: int) -> tuple[bytes, bytes]:
        """Decoded bytes; what it was given and did not use yet it keeps itself."""
        return self._frame.decompress(data, max_length), b""


def encoding_of(header: str | None) -> str:
    """The encoding that a Content-Encoding header names, in lower case.

    Raises:
        UnknownEncoding: it is none of `ENCODINGS`, or several at once.
    """
    name = (header or "").strip().lower() or "identity"
    if name not in ENCODINGS:
        raise UnknownEncoding(
            f"Content-Encoding {name[:40]!r} is not taken: "
            f"send one of {', '.join(ENCODINGS)}, and one alone"
        )
    return name


class BodyDecoder:
    """Decodes one body. Feed it what arrives, iterate each result to its end, then call `finish`.

    Args:
        encoding: a Content-Encoding header's value, or None.
        limit: decoded bytes that a body may have.

    Attributes:
        decoded_bytes: so far; never above `limit`.

    Raises:
        UnknownEncoding: see `encoding_of`.
    """

    def __init__(self, encoding: str | None, limit: int) -> None:
        self._encoding = encoding_of(encoding)
        self._limit = limit
        self._member: _Member | None = None
        self._start = b""
        self._empty_members = 0
        self._has_ended = False
        self._has_begun = False
        self.decoded_bytes = 0

    @property
    def is_identity(self) -> bool:
        """Whether decoded bytes are the very bytes that arrive."""
        return self._encoding == "identity"

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The decoded pieces of what arrived, each at most 1 MiB and none empty.

        Raises:
            BodyTooLarge: the bound is passed.
            BadEncoding: the bytes are not of the encoding; no more is to be fed.
        """
        if self._encoding == "identity":
            for start in range(0, len(data), PIECE_BYTES_MAX):
                yield self._counted(data[start : start + PIECE_BYTES_MAX])
            return
        try:
            yield from self._decode(data)
        except (zlib.error, zstd.ZstdError) as error:
            raise BadEncoding(f"the body is not valid {self._encoding}: {error}") from error

    def finish(self) -> None:
        """The body has ended.

        Raises:
            BadEncoding: it ended in the middle of its encoding. A body of no bytes is an empty
                body.
        """
        if self._member is not None or self._start:
            raise BadEncoding(f"the body ends before its {self._encoding} stream does")

    def _decode(self, data: bytes) -> Iterator[bytes]:
        data = self._start + data
        self._start = b""
        while True:
            if self._member is None:
                data = self._begin(data)
                if self._member is None:
                    return
            step = min(PIECE_BYTES_MAX, self._limit - self.decoded_bytes + 1)
            decoded, data = self._member.decompress(data, step)
            if decoded:
                self._empty_members = 0
                yield self._counted(decoded)
            if self._member.eof:
                data = self._end_member()
            elif not decoded and not data:
                return

    def _begin(self, data: bytes) -> bytes:
        """Start a member if there are bytes for one; gives what is to be fed to it."""
        if self._has_begun and self._encoding in {"gzip", "x-gzip"}:
            data = data.lstrip(b"\0")
        if not data:
            return b""
        if self._has_ended:
            raise BadEncoding("bytes follow the end of the deflate stream")
        if self._encoding == "deflate":
            if len(data) < 2:
                self._start = data
                return b""
            self._member = _ZlibMember(zlib.MAX_WBITS if _is_zlib(data) else -zlib.MAX_WBITS)
        elif self._encoding == "zstd":
            self._member = _ZstdFrame()
        else:
            self._member = _ZlibMember(16 + zlib.MAX_WBITS)
        self._has_begun = True
        return data

    def _end_member(self) -> bytes:
        """Leave a member that has ended; gives what follows it."""
        assert self._member is not None
        rest = self._member.unused_data
        self._member = None
        self._has_ended = self._encoding == "deflate"
        self._empty_members += 1
        if self._empty_members > EMPTY_MEMBERS_MAX:
            raise BadEncoding(
                f"more than {EMPTY_MEMBERS_MAX:,} empty {self._encoding} members in a row"
            )
        return rest

    def _counted(self, piece: bytes) -> bytes:
        self.decoded_bytes += len(piece)
        if self.decoded_bytes > self._limit:
            self.decoded_bytes = self._limit
            raise BodyTooLarge(self._limit)
        return piece


def _is_zlib(data: bytes) -> bool:
    """Whether a deflate body begins with a zlib header (RFC 1950: method 8, multiple of 31)."""
    return data[0] & 0x0F == 8 and (data[0] << 8 | data[1]) % 31 == 0
