"""One log file: its header, and the writing end of it.

A segment begins with a block of 4,096 bytes that holds its header twice, at 0 and at 2,048, so that
one bad sector does not cost the nonce and with it all frames. Groups follow (``buffer.frame``). A
header, little-endian:

=================  =====  =====================================================================
field              bytes
=================  =====  =====================================================================
magic              8      ``CHARONWL``
version            4      1
flags              4      bit 0: has a predecessor; bit 1: the predecessor was fenced
shard_id           16
first_lsn          8      also the file's name, 16 hex digits and ``.seg``
nonce              8      random; marks and seals every record of this segment
created_at_ns      8      signed; by the wall clock
predecessor_lsn    8      first LSN of the segment before
predecessor_bytes  8      good length of the segment before; what it has beyond is void
crc                4      of the 72 bytes above
=================  =====  =====================================================================

Behind the last group of the active segment there may be zeros, written ahead: a sync of blocks that
the file has already is a write to the disk, and one of a file that has grown is a transaction of
the file system besides. It takes twice the time, and waits for whatever else is in that
transaction. (PostgreSQL's wal_init_zero is for the same.)
"""

from __future__ import annotations

import contextlib
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from buffer.frame import MARK_BYTES, Flaw, Seal, encode_group
from buffer.fs import IOVEC_COUNT_MAX, create_durably, is_no_room, write_all
from buffer.lsn import LSN_MAX, Lsn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from buffer.fs import Fd, FileSystem
    from schema.streams import StreamKind

FORMAT_VERSION = 1
HEADER_BLOCK_BYTES = 4_096
SUFFIX = ".seg"

GROUPS_AHEAD_MIN = 8
"""Zeros are written for so many groups like the last one, or not at all: for one or two, writing
twice costs more than it saves."""

_COPY_OFFSETS = (0, 2_048)
_MAGIC = b"CHARONWL"
_HEADER = struct.Struct("<8sII16sQ8sqQQ")
_CRC = struct.Struct("<I")
_FLAG_PREDECESSOR = 1
_FLAG_FENCED = 2
_LSN_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Predecessor:
    """What a segment knows of the one before it."""

    first_lsn: Lsn
    good_bytes: int
    is_fenced: bool


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The beginning of a segment. ``shard_id`` has 16 bytes, ``nonce`` 8."""

    shard_id: bytes
    first_lsn: Lsn
    nonce: bytes
    created_at_ns: int
    predecessor: Predecessor | None

    @property
    def seal(self) -> Seal:
        """What this segment's records are sealed with."""
        return Seal.of(self.nonce)


@dataclass(frozen=True, slots=True)
class UnknownVersion:
    """The file is a segment of a format that this release does not know."""

    version: int


@dataclass(frozen=True, slots=True)
class SegmentView:
    """What others may read of one segment: bytes below ``good_bytes``, frames below ``end_lsn``.

    Attributes:
        header: None where both copies are damaged: then nothing of the segment can be read.
        end_lsn: one past the last frame of its last synced group.
        ends: by stream, an LSN from which on there is no frame of it below ``end_lsn``; None where
            that is not known, because the segment was not written by this process.
    """

    path: Path
    first_lsn: Lsn
    end_lsn: Lsn
    good_bytes: int
    header: SegmentHeader | None
    ends: tuple[int, ...] | None = None

    def has_none(self, kind: StreamKind, from_lsn: int) -> bool:
        """Whether no frame of a stream is there from an LSN on: then there is nothing to read."""
        return self.ends is not None and self.ends[kind] <= from_lsn


def segment_name(first_lsn: int) -> str:
    """The file name of the segment that begins with this LSN."""
    return f"{first_lsn:0{_LSN_DIGITS}x}{SUFFIX}"


def first_lsn_of(name: str) -> Lsn | None:
    """The LSN that a file name says; None where it is no segment's name."""
    stem = name.removesuffix(SUFFIX)
    if stem == name or len(stem) != _LSN_DIGITS:
        return None
    try:
        lsn = int(stem, 16)
    except ValueError:
        return None
    return Lsn(lsn) if segment_name(lsn) == name and lsn <= LSN_MAX else None


def encode_header(header: SegmentHeader) -> bytes:
    """The header's block."""
    before = header.predecessor
    flags = 0
    if before is not None:
        flags = _FLAG_PREDECESSOR | (_FLAG_FENCED if before.is_fenced else 0)
    body = _HEADER.pack(
        _MAGIC,
        FORMAT_VERSION,
        flags,
        header.shard_id,
        header.first_lsn,
        header.nonce,
        header.created_at_ns,
        before.first_lsn if before else 0,
        before.good_bytes if before else 0,
    )
    copy = body + _CRC.pack(zlib.crc32(body))
    return b"".join(
        copy.ljust(HEADER_BLOCK_BYTES // len(_COPY_OFFSETS), b"\0") for _ in _COPY_OFFSETS
    )


def parse_header(block: bytes) -> SegmentHeader | UnknownVersion | Flaw:
    """The header in a segment's first block: the first copy that is whole."""
    unknown: list[int] = []
    for at in _COPY_OFFSETS:
        copy = block[at : at + _HEADER.size + 4]
        if len(copy) < _HEADER.size + 4 or not copy.startswith(_MAGIC):
            continue
        version = int.from_bytes(copy[8:12], "little")
        if version != FORMAT_VERSION:
            unknown.append(version)
        elif zlib.crc32(copy[:-4]) == _CRC.unpack_from(copy, _HEADER.size)[0]:
            return _decode_header(copy)
    # One flipped bit does not make a release refuse its own file: both copies have to say so.
    if len(unknown) == len(_COPY_OFFSETS) and len(set(unknown)) == 1:
        return UnknownVersion(unknown[0])
    return Flaw("both copies of the segment's header are damaged")


def _decode_header(copy: bytes) -> SegmentHeader:
    _, _, flags, shard_id, first_lsn, nonce, created_at_ns, before, good_bytes = (
        _HEADER.unpack_from(copy)
    )
    predecessor = None
    if flags & _FLAG_PREDECESSOR:
        predecessor = Predecessor(Lsn(before), good_bytes, bool(flags & _FLAG_FENCED))
    return SegmentHeader(shard_id, Lsn(first_lsn), nonce, created_at_ns, predecessor)


class SegmentWriter:
    """The active segment. Used on the committing thread alone.

    Attributes:
        written_bytes: end of the last group that was written whole.
        synced_bytes: end of the last group that is durable.
    """

    def __init__(
        self, fs: FileSystem, fd: Fd, path: Path, header: SegmentHeader, ahead_bytes: int
    ) -> None:
        self._fs = fs
        self._fd = fd
        self._seal = header.seal
        self._ahead_bytes = ahead_bytes
        self._file_bytes = HEADER_BLOCK_BYTES
        self.path = path
        self.header = header
        self.written_bytes = HEADER_BLOCK_BYTES
        self.synced_bytes = HEADER_BLOCK_BYTES

    @classmethod
    def create(
        cls, fs: FileSystem, directory: Path, header: SegmentHeader, *, ahead_bytes: int = 0
    ) -> SegmentWriter:
        """Makes the file; ``ahead_bytes`` of zeros are written ahead at a time.

        Raises:
            OSError: it could not be made; its name may be there or not, and may be tried again.

        Durability: header and name survive a power cut once this returns.
        """
        assert len(header.shard_id) == 16, "a shard's id has 128 bits"
        assert len(header.nonce) == MARK_BYTES, "a nonce has 64 bits"
        path = directory / segment_name(header.first_lsn)
        fd = create_durably(fs, path, [encode_header(header)])
        return cls(fs, fd, path, header, ahead_bytes)

    @property
    def seal(self) -> Seal:
        """What frames for this segment are sealed with."""
        return self._seal

    @property
    def is_empty(self) -> bool:
        """Whether no group has been written."""
        return self.written_bytes == HEADER_BLOCK_BYTES

    def write_group(
        self, frames: Sequence[bytes], frame_count: int, first_lsn: int, body_bytes: int
    ) -> None:
        """Writes one group behind the last, with one call; not synced.

        ``frames`` are the pieces of ``frame_count`` encoded frames, ``body_bytes`` together.

        Raises:
            OSError: not all is written; a part may be: `cut` removes it, or fence the segment.
        """
        header = encode_group(frame_count, first_lsn, body_bytes, self.synced_bytes, self._seal)
        pieces = [header, *frames]
        if len(pieces) > IOVEC_COUNT_MAX:
            # Small frames then: copying costs less than a second call, which could be torn off.
            pieces = [b"".join(pieces)]
        write_all(self._fs, self._fd, pieces, self.written_bytes)
        size = len(header) + body_bytes
        self.written_bytes += size
        if self.written_bytes > self._file_bytes:
            self._file_bytes = self.written_bytes
            if GROUPS_AHEAD_MIN * size <= self._ahead_bytes:
                self._write_ahead()

    def cut(self) -> None:
        """Removes what stands behind the last whole group: of a failed write, or zeros.

        Raises:
            OSError: it is still there; fence the segment.
        """
        self._fs.truncate(self._fd, self.written_bytes)
        self._file_bytes = self.written_bytes

    def trim(self) -> None:
        """Removes zeros that no group will take. If they stay, they are read past."""
        if self._file_bytes > self.written_bytes:
            with contextlib.suppress(OSError):
                self.cut()

    def sync(self) -> None:
        """Makes the groups written so far durable.

        Raises:
            OSError: their outcome is unknown, and no later sync can tell: fence the segment.
        """
        self._fs.fdatasync(self._fd)
        self.synced_bytes = self.written_bytes

    def close(self) -> None:
        """Closes the file."""
        self._fs.close(self._fd)

    def _write_ahead(self) -> None:
        """Zeros for the groups to come. They become durable with the group that was just written.

        Raises:
            OSError: the disk is sick. No room for zeros is no error, and they are not tried again.
        """
        try:
            write_all(self._fs, self._fd, [bytes(self._ahead_bytes)], self.written_bytes)
        except OSError as error:
            if not is_no_room(error):
                raise
            self._ahead_bytes = 0
            with contextlib.suppress(OSError):  # zeros that stay hurt nobody
                self.cut()
        else:
            self._file_bytes = self.written_bytes + self._ahead_bytes
