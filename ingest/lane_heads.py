"""Which requests the fast lane serves, and where a request ends, from its head alone.

A head is parsed by aiohttp's own parser, so that both lanes take and refuse the same ones. What it
says is kept by its bytes, since a client sends the same head over and over, but for the digits of
its Content-Length; then a request costs no parser at all.

Why the digits may be cut out of the key. A head is kept only if it has exactly one Content-Length,
found by `_LENGTH` as a plain number on a line of its own, and neither folded lines nor any CR or LF
but in pairs. Take a head with the same bytes around its own first `_LENGTH`: those bytes hold one
line that begins with Content-Length, so the cut is in that line in both heads, and the two differ
in nothing but a plain number there. The parser looks at such a number for the body's length alone.
A head without such a number is never looked up: ``Content-Length:`` with nothing behind it would be
the very key of a head that was cut.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import HttpVersion10, HttpVersion11, http_parser
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import HttpProcessingError

from ingest.answers import RequestRefused
from ingest.receiving import digest_of_head
from ingest.request_headers import KEY_HEADER, Addressee, addressee, authorization
from schema.streams import StreamKind

if TYPE_CHECKING:
    import asyncio

    from aiohttp.http_parser import RawRequestMessage
    from multidict import CIMultiDictProxy

    from ingest.receiving import Hash
    from schema.ids import TenantId

HEADS_BYTES_MAX = 16 * 2**20
"""Estimated, of kept heads, the oldest of which makes room: one or a few for each run that is being
logged. 8,000 and more of those that the SDK sends; strangers' are among them until they are refused
for their key, and theirs may be long."""
BEAT_HEADS_BYTES_MAX = 16 * 2**20
"""Of heartbeats."""
HEAD_BYTES_MAX = 2_048
"""Of a head that is kept. A longer one is parsed each time."""
_BYTES_A_HEAD = 800
_BYTES_A_BYTE = 2
"""Of a head: itself, and the texts that are taken of it."""
HEADERS_MAX = 64
HEADER_BYTES_MAX = 8_190

PATHS = {
    "/ingest/metrics": StreamKind.METRICS,
    "/ingest/logs": StreamKind.LOGS,
    "/ingest/data": StreamKind.DATA,
}

BEAT_PATH = "/api/runs/trigger"

_DIGITS_MAX = 10
_ZERO = ord("0")
_LENGTH = re.compile(
    rb"\r\nContent-Length: ?(0|[1-9][0-9]{0,%d})\r\n" % (_DIGITS_MAX - 1), re.IGNORECASE
)
_FOLDED = re.compile(rb"\n[ \t]")
_UNFRAMED = frozenset({"transfer-encoding", "expect", "upgrade", "http2-settings"})
_NOT_PLAIN = ("Content-Encoding", KEY_HEADER)


@dataclass(slots=True)
class IngestHead:
    """What the head of a plain ingest request says. Its repr shows no key."""

    kind: StreamKind
    path: str
    authorization: str = field(repr=False)
    to: Addressee
    digested: tuple[TenantId, Hash] | None = field(default=None, repr=False)
    """The digest as far as the body, for the tenant that the key had at the last request."""

    def digest(self, tenant: TenantId) -> Hash:
        """The request's digest, its body still to come; the caller's own."""
        if self.digested is None or self.digested[0] != tenant:
            self.digested = tenant, digest_of_head(tenant, self.kind, self.to, is_strict=False)
        return self.digested[1].copy()


@dataclass(frozen=True, slots=True)
class BeatHead:
    """What the head of a plain heartbeat says: all but its run. Its repr shows no key."""

    path: str
    authorization: str = field(repr=False)


class Framed(NamedTuple):
    """A request whose end is known: its body has so many bytes.

    Attributes:
        ingest: for the fast lane; None: for aiohttp.
        like: for requests of the same connection whose head differs in the length alone.
    """

    length: int
    ingest: IngestHead | BeatHead | None
    like: Like | None = None


class Like(NamedTuple):
    """The bytes of a kept head before and behind the digits of its length."""

    start: bytes
    rest: bytes
    ingest: IngestHead | BeatHead

    def measure(self, data: bytes) -> tuple[int, int] | None:
        """Where the body begins, and its length, of a request that begins so; None: another head.

        What `Heads.find` says, at a third of its 3 us: a connection sends the same head again and
        again. The bytes around the number are those of the kept head, and so is its first
        Content-Length.
        """
        start, rest = self.start, self.rest
        at = len(start)
        end = data.find(b"\r", at, at + _DIGITS_MAX + 1)
        digits = data[at:end]
        if (
            end < 0
            or not digits.isdigit()
            or (digits[0] == _ZERO and end != at + 1)
            or not data.startswith(start)
            or not data.startswith(rest, end)
        ):
            return None
        return end + len(rest), int(digits)


class _Kept(dict[bytes, IngestHead | BeatHead]):
    """Heads by their bytes less the digits of their length; bounded in estimated bytes."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__()
        self.bytes = 0
        self._bytes_max = bytes_max

    def keep(self, key: bytes, head: IngestHead | BeatHead) -> None:
        """Keep one that is not known."""
        self[key] = head
        self.bytes += _size(key)
        while self.bytes > self._bytes_max:
            oldest = next(iter(self))
            del self[oldest]
            self.bytes -= _size(oldest)


def _size(key: bytes) -> int:
    return _BYTES_A_HEAD + _BYTES_A_BYTE * len(key)


class Heads:
    """The heads that one worker has seen lately."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._protocol = BaseProtocol(loop)
        self._known = _Kept(HEADS_BYTES_MAX)
        self._beats = _Kept(BEAT_HEADS_BYTES_MAX)
        """Apart, since there is one for each run, and thousands only beat: they drive no head of
        ingest out."""

    def __len__(self) -> int:
        """Heads kept."""
        return len(self._known) + len(self._beats)

    @property
    def byte_count(self) -> int:
        """Estimated bytes held."""
        return self._known.bytes + self._beats.bytes

    def find(self, head: bytes) -> Framed | None:
        """What a head says; None where only aiohttp can tell where its request ends.

        Args:
            head: from the request line to the empty line, both included.
        """
        number = _LENGTH.search(head)
        if number is None:
            message = self._parse(head, length=None)
            return None if message is None else Framed(0, None)
        start, end = number.span(1)
        key = head[:start] + head[end:]
        ingest = self._known.get(key) or self._beats.get(key)
        if ingest is None:
            message = self._parse(b"%b0%b" % (head[:start], head[end:]), length="0")
            if message is None:
                return None
            ingest = _ingest_head(message)
            if ingest is not None and len(head) <= HEAD_BYTES_MAX:
                (self._beats if isinstance(ingest, BeatHead) else self._known).keep(key, ingest)
        like = None
        if ingest is not None and len(head) <= HEAD_BYTES_MAX:
            like = Like(head[:start], head[end:], ingest)
        return Framed(int(number[1]), ingest, like)

    def _parse(self, head: bytes, *, length: str | None) -> RawRequestMessage | None:
        """The message of a head that is framed simply: this length, and nothing else about it."""
        lines = head.count(b"\r\n")
        if head.count(b"\n") != lines or head.count(b"\r") != lines or _FOLDED.search(head):
            return None
        parser = http_parser.HttpRequestParser(
            self._protocol,
            self._loop,
            2**16,
            max_line_size=HEADER_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
            max_headers=HEADERS_MAX,
            auto_decompress=False,
        )
        try:
            messages, is_upgraded, tail = parser.feed_data(head)
        except HttpProcessingError:
            return None  # aiohttp says what is wrong
        if len(messages) != 1 or is_upgraded or tail:
            return None
        message: RawRequestMessage = messages[0][0]
        headers = message.headers
        is_simple = (
            message.version in {HttpVersion10, HttpVersion11}
            and not message.upgrade
            and not message.chunked
            and message.method != "CONNECT"
            and headers.getall("Content-Length", []) == ([] if length is None else [length])
            and len(headers.getall("Connection", ())) <= 1
            and _UNFRAMED.isdisjoint(map(str.lower, headers))
        )
        return message if is_simple else None


def _ingest_head(message: RawRequestMessage) -> IngestHead | BeatHead | None:
    """For the fast lane, where nothing about the request is unusual; None for all else."""
    path, headers = message.path, message.headers
    kind, is_beat = PATHS.get(path), path == BEAT_PATH
    if kind is None and not is_beat:
        return None
    if message.method != "POST" or message.version != HttpVersion11 or message.should_close:
        return None
    if any(name in headers for name in _NOT_PLAIN) or not _are_single(headers):
        return None
    try:
        key = authorization(headers)
        if kind is None:
            return None if key is None else BeatHead(path, key)
        to = addressee(headers)
    except RequestRefused:
        return None
    return None if key is None else IngestHead(kind, path, key, to)


def _are_single(headers: CIMultiDictProxy[str]) -> bool:
    """Whether no header that could say whose request it is stands there twice."""
    names = [name.lower() for name in headers]
    named = [name for name in names if name.startswith("x-") or name == "authorization"]
    return len(named) == len(set(named))
