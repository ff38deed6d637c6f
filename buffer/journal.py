"""What was delivered, block by block: a few bytes a block, for comparing it with what is stored.

A shard's directory ``delivered`` holds files of records of 80 bytes; a record is appended when a
block is confirmed, before the checkpoint moves past it. Nothing is synced: after a kill all is
there, after a power cut the last lines may be missing, and those blocks are then not compared.
Delivery never waits for the journal: where it cannot be written, that is counted, and goes on.

=================  =====  =====================================================================
record             bytes  80 in all, little-endian
=================  =====  =====================================================================
kind               1      the stream
flags              1      bit 0: sent again on request
zero               2
generation         4      of the token
number             8      the block's, as in the column ``batch``
first, last        16     LSNs of the batch that the block is of, both included
batch_rows         8      rows of all its frames
first_row,         16     the rows of the batch that the block was made of; all of them, but for a
end_row                   batch that was searched for bad rows
rows               8      in the block, at most: what merges collapse is not known here
delivered_at_ns    8      signed; by the wall clock
crc                4      of the 72 bytes above
zero               4
=================  =====  =====================================================================

A file begins with a record's length of header: ``CHARONDJ``, version (4 bytes, 1), shard id (16),
zeros, and the CRC of the 72 bytes before it. Its name is ``<shard>-<sequence>.journal``. A record
whose CRC is wrong is passed over. At 8,192 records the next file is begun; 16 files stay. A drained
shard leaves its files to the shard that drained it.
"""

from __future__ import annotations

import struct
import zlib
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from buffer.fs import write_all
from buffer.lsn import Lsn
from schema.ids import BlockNumber
from schema.streams import StreamKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from buffer.clock import Clock
    from buffer.fs import Fd, FileSystem
    from buffer.metrics import Metrics

_log = structlog.get_logger()

DIRECTORY_NAME = "delivered"
SUFFIX = ".journal"
RECORD_BYTES = 80
FILE_RECORDS_MAX = 8_192
FILES_MAX = 16
"""With the above 131,072 blocks, 10 MiB: a day and a half at one a second."""

RECENT_MAX = 4_096
"""Blocks kept in memory until they are compared; above it the oldest are left to the command."""
RECENT_SECONDS = 900.0
"""Of the journal, read again at a start, so that what was delivered just before is compared too."""

_READ_RECORDS = 512
_MAGIC = b"CHARONDJ"
_VERSION = 1
_HEADER = struct.Struct("<8sI16s44x")
_RECORD = struct.Struct("<BBxxIQQQQQQQq")
_TAIL = struct.Struct("<I4x")
_FLAG_AGAIN = 1
_SEQUENCE_DIGITS = 8
_KINDS = {int(kind): kind for kind in StreamKind}


@dataclass(frozen=True, slots=True)
class Delivered:
    """One block that the server has confirmed."""

    kind: StreamKind
    number: BlockNumber
    generation: int
    first: Lsn
    last: Lsn
    batch_rows: int
    first_row: int
    end_row: int
    rows: int
    delivered_at_ns: int
    is_again: bool = False

    @property
    def key(self) -> tuple[StreamKind, BlockNumber]:
        """What tells it from all other blocks: each table of a shard counts by itself."""
        return self.kind, self.number


class Journal:
    """One shard's journal. `note` and what writes run on one disk thread; the rest anywhere."""

    def __init__(
        self, fs: FileSystem, directory: Path, *, shard: str, clock: Clock, metrics: Metrics
    ) -> None:
        """``directory`` is the journal's own; ``shard`` the shard's id, hex."""
        self._fs = fs
        self._directory = directory
        self._shard = shard
        self._clock = clock
        self._metrics = metrics
        self._fd: Fd | None = None
        self._offset = 0
        self._recent: deque[Delivered] = deque(maxlen=RECENT_MAX)

    def open(self) -> None:
        """Reads what was delivered lately. Blocking; before the first `note`."""
        self._remember(files_of(self._fs, self._directory))

    def note(self, delivered: Delivered) -> None:
        """Appends a record; a disk that refuses it is counted, not waited for. Blocking.

        Durability: it survives kill -9, and not for sure a power cut.
        """
        self._keep(delivered)
        try:
            fd = self._file()
            write_all(self._fs, fd, [encode(delivered)], self._offset)
        except OSError as error:
            self._metrics.count("journal_failures")
            _log.warning("journal_not_written", shard=self._shard, reason=str(error))
            self.close()
        else:
            self._offset += RECORD_BYTES

    @property
    def recent(self) -> tuple[Delivered, ...]:
        """What has not been compared yet."""
        return tuple(self._recent)

    def due(self, before_ns: int) -> list[Delivered]:
        """Takes out what was delivered before a time, oldest first."""
        found = []
        while self._recent and self._recent[0].delivered_at_ns < before_ns:
            found.append(self._recent.popleft())
        return found

    def put_back(self, records: list[Delivered]) -> None:
        """What could not be compared now comes first the next time."""
        room = RECENT_MAX - len(self._recent)
        self._recent.extendleft(reversed(records[max(len(records) - room, 0) :]))

    def take_over(self, other: Journal) -> None:
        """Moves the files of a shard that is drained here. Blocking.

        Durability: each file is in one of the two directories at any time.
        """
        other.close()
        names = files_of(self._fs, other._directory)
        if not names:
            return
        self._fs.make_dir(self._directory)
        moved = []
        for path in names:
            self._fs.rename(path, self._directory / path.name)
            moved.append(self._directory / path.name)
        self._fs.fsync_dir(self._directory)
        self._remember(moved)
        self._shorten()

    def close(self) -> None:
        """Closes the file; a later `note` opens it again."""
        if self._fd is not None:
            self._fs.close(self._fd)
            self._fd = None

    def _keep(self, delivered: Delivered) -> None:
        if len(self._recent) == RECENT_MAX:
            self._metrics.count("reconcile_skipped")
        self._recent.append(delivered)

    def _remember(self, paths: list[Path]) -> None:
        since = self._clock.wall_ns() - int(RECENT_SECONDS * 1e9)
        known = {delivered.key for delivered in self._recent}
        found = [
            delivered
            for path in paths
            if (newest := newest_of(self._fs, path)) is not None and newest.delivered_at_ns >= since
            for delivered in read_file(self._fs, path)
            if delivered.delivered_at_ns >= since and delivered.key not in known
        ]
        everything = sorted((*self._recent, *found), key=lambda one: one.delivered_at_ns)
        self._recent = deque(everything, maxlen=RECENT_MAX)

    def _file(self) -> Fd:
        """The file to append to, at ``_offset``."""
        if self._fd is not None and self._offset < FILE_RECORDS_MAX * RECORD_BYTES:
            return self._fd
        self.close()
        self._fs.make_dir(self._directory)
        own = [path for path in files_of(self._fs, self._directory) if self._is_own(path)]
        last = own[-1] if own else None
        size = 0 if last is None else self._fs.size_of(last) // RECORD_BYTES * RECORD_BYTES
        if last is not None and 0 < size < FILE_RECORDS_MAX * RECORD_BYTES:
            self._fd, self._offset = self._fs.open_write(last), size
            return self._fd
        sequence = 0 if last is None else int(last.stem.rpartition("-")[2], 16) + 1
        path = self._directory / f"{self._shard}-{sequence:0{_SEQUENCE_DIGITS}x}{SUFFIX}"
        fd = self._fs.create(path)
        try:
            write_all(self._fs, fd, [encode_header(bytes.fromhex(self._shard))], 0)
        except OSError:
            self._fs.close(fd)
            self._fs.unlink(path)
            raise
        self._fd, self._offset = fd, RECORD_BYTES
        self._shorten()
        return fd

    def _is_own(self, path: Path) -> bool:
        return path.name.startswith(self._shard)

    def _shorten(self) -> None:
        """Deletes the oldest files above the limit, by what they hold last."""
        paths = files_of(self._fs, self._directory)
        if len(paths) <= FILES_MAX:
            return
        newest = {path: newest_of(self._fs, path) for path in paths}
        ages = {
            # A file without a record is the one that has just been begun.
            path: 2**63 if one is None else one.delivered_at_ns
            for path, one in newest.items()
        }
        for path in sorted(paths, key=lambda path: ages[path])[: len(paths) - FILES_MAX]:
            self._fs.unlink(path)


def encode(delivered: Delivered) -> bytes:
    """One record."""
    body = _RECORD.pack(
        delivered.kind,
        _FLAG_AGAIN if delivered.is_again else 0,
        delivered.generation,
        delivered.number,
        delivered.first,
        delivered.last,
        delivered.batch_rows,
        delivered.first_row,
        delivered.end_row,
        delivered.rows,
        delivered.delivered_at_ns,
    )
    return body + _TAIL.pack(zlib.crc32(body))


def encode_header(shard_id: bytes) -> bytes:
    """A file's first 80 bytes."""
    body = _HEADER.pack(_MAGIC, _VERSION, shard_id)
    return body + _TAIL.pack(zlib.crc32(body))


def files_of(fs: FileSystem, directory: Path) -> list[Path]:
    """The files of a journal, each shard's in order."""
    return [directory / name for name in sorted(fs.list_dir(directory)) if name.endswith(SUFFIX)]


def shard_of(path: Path) -> str:
    """The id of the shard that a file speaks of, hex."""
    return path.stem.rpartition("-")[0]


def read_file(fs: FileSystem, path: Path) -> Iterator[Delivered]:
    """The records of one file, oldest first; also of one that is being written to.

    Raises:
        OSError: it could not be read.
    """
    fd = fs.open_read(path)
    try:
        head = fs.pread(fd, RECORD_BYTES, 0)
        if not _is_whole(head) or head[:12] != _MAGIC + _VERSION.to_bytes(4, "little"):
            return
        at = RECORD_BYTES
        while data := fs.pread(fd, _READ_RECORDS * RECORD_BYTES, at):
            for start in range(0, len(data), RECORD_BYTES):
                delivered = decode(data[start : start + RECORD_BYTES])
                if delivered is not None:
                    yield delivered
            at += len(data)
            if len(data) % RECORD_BYTES:
                return  # its end, in the middle of a record
    finally:
        fs.close(fd)


def newest_of(fs: FileSystem, path: Path) -> Delivered | None:
    """The last whole record of a file, looking at its end alone; None where there is none."""
    fd = fs.open_read(path)
    try:
        count = fs.size(fd) // RECORD_BYTES
        for index in range(count - 1, max(count - 1 - _READ_RECORDS, 0), -1):
            delivered = decode(fs.pread(fd, RECORD_BYTES, index * RECORD_BYTES))
            if delivered is not None:
                return delivered
    finally:
        fs.close(fd)
    return None


def decode(record: bytes) -> Delivered | None:
    """One record; None where it is not what was written."""
    if not _is_whole(record):
        return None
    kind, flags, generation, number, first, last, *rest = _RECORD.unpack_from(record)
    if kind not in _KINDS:
        return None
    batch_rows, first_row, end_row, rows, delivered_at_ns = rest
    return Delivered(
        kind=_KINDS[kind],
        number=BlockNumber(number),
        generation=generation,
        first=Lsn(first),
        last=Lsn(last),
        batch_rows=batch_rows,
        first_row=first_row,
        end_row=end_row,
        rows=rows,
        delivered_at_ns=delivered_at_ns,
        is_again=bool(flags & _FLAG_AGAIN),
    )


def _is_whole(record: bytes) -> bool:
    return (
        len(record) == RECORD_BYTES
        and zlib.crc32(record[: _RECORD.size]) == _TAIL.unpack_from(record, _RECORD.size)[0]
    )
