"""Reading one table's frames from the log, in order, each once, damage included.

The reader sees groups that are synced and nothing else: it reads below the lengths in the log's
views, which the committer moves after each sync. It shares no state with the committer but the
tuple of views, so it may run on another thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from buffer.frame import Flaw
from buffer.lsn import Lsn
from buffer.records import FrameRecord, Gap, GroupRecord, Records
from buffer.segment import HEADER_BLOCK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from buffer.frame import Frame
    from buffer.fs import Fd, FileSystem
    from buffer.segment import SegmentView
    from schema.streams import StreamKind

RAW_BYTES_MAX = 2**20
"""Of a damaged range, kept for inspection."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of the log that are not what was written, and the frames that went with them.

    Attributes:
        segment: the file's name.
        first_lsn: the first frame that may be lost.
        end_lsn: one past the last; equal to ``first_lsn`` where no frame is lost.
        kind: the table whose frame it was, where the frame's header is whole.
        raw: the bytes as found, at most `RAW_BYTES_MAX`.
    """

    segment: str
    offset: int
    length: int
    first_lsn: Lsn
    end_lsn: Lsn
    reason: str
    raw: bytes
    kind: StreamKind | None


class Reader:
    """Frames of one table from an LSN on. Blocking; one user at a time.

    A file is deleted only when every table is past it, so the reader never loses what it reads.
    Caught up, it holds no file open: the room of a deleted one is free at once.
    """

    def __init__(
        self,
        fs: FileSystem,
        views: Callable[[], tuple[SegmentView, ...]],
        from_lsn: Lsn,
        kind: StreamKind,
    ) -> None:
        self._fs = fs
        self._views = views
        self._kind = kind
        self._lsn = from_lsn
        self._walk_lsn = Lsn(0)
        self._first_lsn: Lsn | None = None
        self._offset = HEADER_BLOCK_BYTES
        self._fd: Fd | None = None
        self._records: Records | None = None

    @property
    def lsn(self) -> Lsn:
        """One past the last frame considered, of any table: up to here this table is read."""
        return self._lsn

    def read(self, rows_max: int, bytes_max: int) -> list[Frame | Damage]:
        """The next frames, until they have so many rows or payload bytes; none: caught up.

        The last frame may pass the limits. Frames of other tables are stepped over.

        Raises:
            OSError: the disk could not be read; try again.
        """
        found: list[Frame | Damage] = []
        views = self._views()
        rows = size = 0
        while rows < rows_max and size < bytes_max:
            view, successor = self._current(views)
            if view is None:
                break
            place = self._place()
            try:
                item = self._step(view, successor)
            except OSError:
                self._return_to(place)
                if found:
                    break  # what was read is handed over; the next call meets the error again
                raise
            if item is None:
                if successor is None:
                    self._lsn = max(self._lsn, view.end_lsn)
                    self.close()
                    break
                self._leave(successor)
            elif isinstance(item, Damage):
                found.append(item)
            elif not isinstance(item, _Passed):
                found.append(item)
                rows += item.chunks.row_count
                size += len(item.chunks.payload)
        return found

    def close(self) -> None:
        """Closes the file that is open; a later `read` goes on where this one was."""
        if self._records is not None:
            self._offset = self._records.offset
        if self._fd is not None:
            self._fs.close(self._fd)
        self._fd = self._records = None

    def _current(
        self, views: tuple[SegmentView, ...]
    ) -> tuple[SegmentView | None, SegmentView | None]:
        """The segment to read from, and the one after it."""
        index = len(views) - 1
        wanted = self._lsn if self._first_lsn is None else self._first_lsn
        while index > 0 and views[index].first_lsn > wanted:
            index -= 1
        if index < 0:
            return None, None
        view = views[index]
        if view.first_lsn != self._first_lsn:  # the first one, or the former one is deleted
            self._enter(view)
        successor = views[index + 1] if index + 1 < len(views) else None
        return view, successor

    def _enter(self, view: SegmentView) -> None:
        self.close()
        self._first_lsn = self._walk_lsn = view.first_lsn
        self._offset = HEADER_BLOCK_BYTES

    def _place(self) -> tuple[Lsn, Lsn, int]:
        offset = self._offset if self._records is None else self._records.offset
        return self._lsn, self._walk_lsn, offset

    def _return_to(self, place: tuple[Lsn, Lsn, int]) -> None:
        self._lsn, self._walk_lsn, self._offset = place
        if self._records is not None:
            self._records.offset = self._offset

    def _step(
        self, view: SegmentView, successor: SegmentView | None
    ) -> Frame | Damage | _Passed | None:
        """One record on; None at the end of what may be read."""
        if view.header is None:
            return self._lost_segment(view, successor)
        if self._records is None:
            self._fd = self._fs.open_read(view.path)
            self._records = Records(
                self._fs, self._fd, view.header.seal, self._offset, view.good_bytes
            )
        records = self._records
        records.end = view.good_bytes
        record = records.next()
        if record is None:
            return None
        if isinstance(record, Gap):
            return self._gap(view, successor, record)
        if not isinstance(record, FrameRecord):
            if record.header.end_lsn <= self._lsn:
                records.skip(record)
                self._walk_lsn = record.header.end_lsn
            else:
                self._walk_lsn = record.header.first_lsn
            return _PASSED
        return self._frame(view, record)

    def _frame(self, view: SegmentView, record: FrameRecord) -> Frame | Damage | _Passed:
        lsn = record.header.lsn
        self._walk_lsn = Lsn(lsn + 1)
        if lsn < self._lsn:
            return _PASSED
        if record.header.kind != self._kind:
            self._lsn = self._walk_lsn
            return _PASSED
        assert self._records is not None
        frame = self._records.frame(record)
        self._lsn = self._walk_lsn
        if not isinstance(frame, Flaw):
            return frame
        length = record.header.frame_bytes
        return self._damage(
            view, record.offset, length, lsn, self._walk_lsn, frame.reason, self._kind
        )

    def _gap(self, view: SegmentView, successor: SegmentView | None, gap: Gap) -> Damage | _Passed:
        """Damage that may be of any table: each that still needs the range tells of it.

        It is set aside once. Rejected: one table that tells for all. It may have passed the range
        while that was still sound.
        """
        first = self._walk_lsn
        end = self._lsn_ahead(view, successor)
        self._walk_lsn = max(first, end)
        if self._walk_lsn < self._lsn or (self._walk_lsn == self._lsn and first < self._lsn):
            return _PASSED
        self._lsn = self._walk_lsn
        return self._damage(
            view, gap.offset, gap.end - gap.offset, first, self._walk_lsn, gap.reason, None
        )

    def _lsn_ahead(self, view: SegmentView, successor: SegmentView | None) -> Lsn:
        """The LSN of the first frame that is still ahead."""
        assert self._records is not None
        ahead = self._records.peek()
        if isinstance(ahead, FrameRecord):
            return ahead.header.lsn
        if isinstance(ahead, GroupRecord):
            return ahead.header.first_lsn
        return view.end_lsn if successor is None else successor.first_lsn

    def _lost_segment(self, view: SegmentView, successor: SegmentView | None) -> Damage | None:
        end = view.end_lsn if successor is None else successor.first_lsn
        if end <= self._lsn:
            return None
        fd = self._fs.open_read(view.path)
        try:
            raw = self._fs.pread(fd, min(view.good_bytes, RAW_BYTES_MAX), 0)
        finally:
            self._fs.close(fd)
        first, self._lsn = max(self._lsn, view.first_lsn), end
        reason = "both copies of the segment's header are damaged"
        return Damage(view.path.name, 0, view.good_bytes, first, end, reason, raw, None)

    def _damage(
        self,
        view: SegmentView,
        offset: int,
        length: int,
        first: Lsn,
        end: Lsn,
        reason: str,
        kind: StreamKind | None,
    ) -> Damage:
        assert self._records is not None
        raw = self._records.raw(offset, min(length, RAW_BYTES_MAX))
        return Damage(view.path.name, offset, length, first, end, reason, raw, kind)

    def _leave(self, successor: SegmentView) -> None:
        self._enter(successor)
        self._lsn = max(self._lsn, successor.first_lsn)


class _Passed:
    """A record that is not for this reader."""


_PASSED = _Passed()
