"""Opening a shard's log after whatever happened to it.

What a bad range means:

====================================================  =========================================
where                                                 what
====================================================  =========================================
below the highest offset that a later group says was  **damage**: read past and set aside by
synced, or in a segment with a successor              the reader; all that follows is delivered
behind that, in the last segment                      **torn tail**: cut off; nobody was told
                                                      that it is stored. Zeros alone were written
                                                      ahead: cut off too, and nothing is said
behind a fenced segment's good length                 void: not looked at
====================================================  =========================================

What no later group vouches for may be in memory alone, after a sync that failed and a process that
ended over it: it is written once more before it is synced.

Read are: every segment's header, the last segment's group headers and its last group, and the frame
headers of the repeat window. What is delivered and older is not touched; what is not delivered is
read once, by the readers that deliver it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from buffer.errors import Damaged, UnknownFormat
from buffer.frame import FLAG_LAST, FRAME_HEADER_BYTES, GROUP_HEADER_BYTES, Flaw
from buffer.fs import TEMPORARY_SUFFIX, write_all
from buffer.log import Log
from buffer.lsn import Lsn
from buffer.records import FrameRecord, Gap, GroupRecord, Records
from buffer.repeats import Remembered
from buffer.segment import (
    FORMAT_VERSION,
    HEADER_BLOCK_BYTES,
    SegmentHeader,
    SegmentView,
    UnknownVersion,
    first_lsn_of,
    parse_header,
    segment_name,
)

if TYPE_CHECKING:
    from pathlib import Path

    from buffer.checkpoint import Checkpoint
    from buffer.clock import Clock
    from buffer.disk import Disk
    from buffer.fs import Fd, FileSystem
    from buffer.metrics import Metrics
    from buffer.options import BufferOptions

REWRITE_BYTES = 2**20
"""At once; all of it is one group, of 8 MiB or one large request."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """A log that is ready, and what opening it found.

    Attributes:
        torn_bytes: cut off the end of the last segment.
        damage: one line for each damaged range met on the way; the readers meet them again, with
            all that were not on the way, and hand them over as `Damage`.
        remembered: the requests of the repeat window, oldest first.
    """

    log: Log
    torn_bytes: int
    damage: tuple[str, ...]
    remembered: tuple[Remembered, ...]


def recover(
    fs: FileSystem,
    directory: Path,
    shard_id: bytes,
    checkpoint: Checkpoint,
    *,
    options: BufferOptions,
    disk: Disk,
    clock: Clock,
    metrics: Metrics,
) -> Recovered:
    """Opens the log in a shard's directory, whose lock the caller holds. Blocking.

    The log will work on ``disk``, the committing thread.

    Raises:
        UnknownFormat: a segment was made by a release that this one does not know.
        Damaged: a segment belongs to another shard.
        OSError: the disk failed; nothing that was accepted before is touched.

    Durability: every byte that the readers of the log will see survives a power cut.
    """
    opening = _Opening(fs, directory, shard_id, checkpoint.delivered, options, clock)
    views = opening.views()
    next_lsn = Lsn(max(opening.next_lsn, checkpoint.end_lsn))
    remembered = opening.remembered(views)
    opening.sync(views)
    if opening.torn_bytes:
        metrics.count("log_torn_bytes", opening.torn_bytes)
    log = Log(
        fs,
        directory,
        shard_id,
        views=views,
        next_lsn=next_lsn,
        options=options,
        disk=disk,
        clock=clock,
        metrics=metrics,
    )
    return Recovered(log, opening.torn_bytes, tuple(opening.damage), remembered)


class _Opening:
    """The steps of `recover`, and what they find."""

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        shard_id: bytes,
        delivered: Lsn,
        options: BufferOptions,
        clock: Clock,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._shard_id = shard_id
        self._delivered = delivered
        self._options = options
        self._now_ns = clock.wall_ns()
        self._fenced: set[Lsn] = set()
        self._read_from = delivered
        self.next_lsn = Lsn(0)
        self.torn_bytes = 0
        self.damage: list[str] = []

    def views(self) -> tuple[SegmentView, ...]:
        """Every segment, with the length and the LSNs that count; the torn tail is cut."""
        names = self._fs.list_dir(self._directory)
        for name in names:
            if name.endswith(TEMPORARY_SUFFIX):
                self._fs.unlink(self._directory / name)
        firsts = sorted(lsn for name in names if (lsn := first_lsn_of(name)) is not None)
        headers = [self._header(first) for first in firsts]
        views = [
            self._sealed(first, header, firsts[index + 1], headers[index + 1])
            for index, (first, header) in enumerate(zip(firsts[:-1], headers[:-1], strict=True))
        ]
        if firsts:
            views.append(self._last(firsts[-1], headers[-1]))
        return tuple(views)

    def remembered(self, views: tuple[SegmentView, ...]) -> tuple[Remembered, ...]:
        """The requests that the repeat window still holds, oldest first."""
        since = self._now_ns - int(self._options.repeat_seconds * 1e9)
        requests_left = self._options.repeat_requests_max
        bytes_left = self._options.repeat_log_bytes_max
        found: list[list[Remembered]] = []
        ended_at = self._now_ns  # the newest that a frame of the segment can be
        for view in reversed(views):
            if requests_left <= 0 or bytes_left <= 0 or ended_at < since:
                break
            some = self._requests(view, since, requests_left)
            if some:
                found.append(some)
                self._read_from = min(self._read_from, view.first_lsn)
            requests_left -= len(some)
            bytes_left -= view.good_bytes
            ended_at = ended_at if view.header is None else view.header.created_at_ns
        return tuple(one for some in reversed(found) for one in some)

    def sync(self, views: tuple[SegmentView, ...]) -> None:
        """Makes durable what may be delivered or answered from: it may be in memory alone."""
        for view in views:
            # A fenced segment is good up to what was synced then; a sync now would prove nothing.
            if view.end_lsn > self._read_from and view.first_lsn not in self._fenced:
                fd = self._fs.open_read(view.path)
                try:
                    self._fs.fdatasync(fd)
                finally:
                    self._fs.close(fd)
        self._fs.fsync_dir(self._directory)

    def _header(self, first: Lsn) -> SegmentHeader | None:
        path = self._directory / segment_name(first)
        fd = self._fs.open_read(path)
        try:
            header = parse_header(self._fs.pread(fd, HEADER_BLOCK_BYTES, 0))
        finally:
            self._fs.close(fd)
        if isinstance(header, UnknownVersion):
            raise UnknownFormat(
                f"{path}: log segment of format version {header.version}; this release knows "
                f"{FORMAT_VERSION}. Start the release that wrote it and let it drain, or move the "
                "shard's directory away"
            )
        if isinstance(header, Flaw):
            self.damage.append(f"{path.name}: {header.reason}")
            return None
        if header.shard_id != self._shard_id or header.first_lsn != first:
            raise Damaged(
                f"{path}: holds segment {segment_name(header.first_lsn)} of shard "
                f"{header.shard_id.hex()}, not of {self._shard_id.hex()}: a file was moved here"
            )
        return header

    def _sealed(
        self,
        first: Lsn,
        header: SegmentHeader | None,
        next_first: Lsn,
        successor: SegmentHeader | None,
    ) -> SegmentView:
        path = self._directory / segment_name(first)
        good = self._fs.size_of(path)
        before = successor.predecessor if successor is not None else None
        if before is not None and before.first_lsn == first:
            # Where the file is shorter, its end is missing: the reader comes to it as damage.
            good = before.good_bytes
            if before.is_fenced:
                self._fenced.add(first)
        return SegmentView(path, first, next_first, good, header)

    def _last(self, first: Lsn, header: SegmentHeader | None) -> SegmentView:
        path = self._directory / segment_name(first)
        fd = self._fs.open_write(path)
        try:
            size = self._fs.size(fd)
            if header is None:
                # As many frames as could be in it may have been delivered.
                self.next_lsn = end = Lsn(first + 1 + size // FRAME_HEADER_BYTES)
                return SegmentView(path, first, end, size, None)
            records = Records(self._fs, fd, header.seal, HEADER_BLOCK_BYTES, size)
            tail = _Tail(records, first)
            tail.walk()
            good, end = tail.proven()
            self._rewrite(fd, tail.synced_bytes, good)
            self.damage += [
                f"{path.name}: bytes {gap.offset} to {gap.end}: {gap.reason}" for gap in tail.damage
            ]
            self.next_lsn = Lsn(max(end, first + 1))
            if good < size:
                if not records.is_blank(good):
                    self.torn_bytes = size - good
                    # More than could have been in it: LSNs that the lost group had are not given
                    # again.
                    self.next_lsn = Lsn(self.next_lsn + 1 + self.torn_bytes // FRAME_HEADER_BYTES)
                self._fs.truncate(fd, good)
                self._fs.fdatasync(fd)
            return SegmentView(path, first, end, good, header)
        finally:
            self._fs.close(fd)

    def _rewrite(self, fd: Fd, start: int, end: int) -> None:
        """Writes what nothing on disk vouches for once more, so that a sync says something of it.

        After a sync that failed the kernel may hold pages that are not on disk and count as
        written: another sync of them succeeds and does nothing. The same bytes over themselves are
        safe: a sector has them before and after.

        Source: https://wiki.postgresql.org/wiki/Fsync_Errors
        """
        for at in range(start, end, REWRITE_BYTES):
            piece = self._fs.pread(fd, min(REWRITE_BYTES, end - at), at)
            write_all(self._fs, fd, [piece], at)

    def _requests(self, view: SegmentView, since_ns: int, count_max: int) -> list[Remembered]:
        """The window's requests in one segment."""
        if view.header is None:
            return []
        found: deque[Remembered] = deque(maxlen=count_max)
        fd = self._fs.open_read(view.path)
        try:
            records = Records(self._fs, fd, view.header.seal, HEADER_BLOCK_BYTES, view.good_bytes)
            while (record := records.next()) is not None:
                if not isinstance(record, FrameRecord):
                    continue
                header = record.header
                if header.flags & FLAG_LAST and header.received_at_ns >= since_ns:
                    found.append(
                        Remembered(
                            header.digest, header.accepted, header.rejected, header.received_at_ns
                        )
                    )
        finally:
            self._fs.close(fd)
        return list(found)


class _Tail:
    """The last segment, walked once: what of it is synced for sure, and what has to be proved."""

    def __init__(self, records: Records, first_lsn: Lsn) -> None:
        self._records = records
        self.synced_bytes = HEADER_BLOCK_BYTES
        self._end_lsn = first_lsn
        self._open: deque[tuple[GroupRecord | FrameRecord | Gap, Lsn]] = deque()
        self.damage: list[Gap] = []

    def walk(self) -> None:
        """Goes through all group headers, and the frames of groups whose header is damaged."""
        while (record := self._records.next()) is not None:
            before = self._end_lsn
            if isinstance(record, GroupRecord):
                synced = min(record.header.synced_bytes, record.offset)
                self.synced_bytes = max(self.synced_bytes, synced)
                self._end_lsn = record.header.end_lsn
                self._records.skip(record)
            elif isinstance(record, FrameRecord):
                self._end_lsn = Lsn(record.header.lsn + 1)
            self._open.append((record, before))
            while self._open[0][0].offset < self.synced_bytes:
                settled, _ = self._open.popleft()
                if isinstance(settled, Gap):
                    self.damage.append(settled)
                if not self._open:
                    break

    def proven(self) -> tuple[int, Lsn]:
        """The length that counts, and one past the last LSN in it."""
        for record, before in self._open:
            if not isinstance(record, GroupRecord) or not self._is_whole(record):
                return record.offset, before
        return self._records.end, self._end_lsn

    def _is_whole(self, group: GroupRecord) -> bool:
        records = self._records
        records.offset = group.offset + GROUP_HEADER_BYTES
        end = records.offset + group.header.body_bytes
        lsn = group.header.first_lsn
        while records.offset < end:
            record = records.next()
            if not isinstance(record, FrameRecord) or record.header.lsn != lsn:
                return False
            if isinstance(records.frame(record), Flaw):
                return False
            lsn = Lsn(lsn + 1)
        return records.offset == end and lsn == group.header.end_lsn
