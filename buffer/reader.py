"""Reading one table's frames from the log, in order, each once, damage included.

The reader sees groups that are synced and nothing else: it reads below the lengths in the log's
views, which the committer moves after each sync. It shares no state with the committer but the
tuple of views, so it may run on another thread. A view also says from which LSN on a segment has no
frame of a table: what is there is not read for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from buffer.frame import Flaw, Frame
from buffer.frames import Frames, frame_bytes
from buffer.lsn import Lsn
from buffer.records import FrameRecord, Gap, GroupRecord, Records
from buffer.segment import HEADER_BLOCK_BYTES
from buffer.sweep import Limits, Owners, sweep

if TYPE_CHECKING:
    from collections.abc import Callable

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
        self._owners = Owners()
        self._is_full = False

    @property
    def lsn(self) -> Lsn:
        """One past the last frame considered, of any table: up to here this table is read."""
        return self._lsn

    def read(self, rows_max: int, bytes_max: int) -> list[Frame | Damage]:
        """The next frames and what damage there is among them; none: caught up.

        The same as `read_into`, in the order of the log.
        """
        found: list[Frame | Damage] = []
        limits = Limits(rows_max, bytes_max)
        while limits.rows > 0 and limits.bytes > 0:
            frames = Frames(self._kind)
            try:
                damage = self._read_up(frames, limits)
            except OSError:
                if found:
                    break
                raise
            found += frames
            if damage is None:
                break
            found.append(damage)
            limits = Limits(limits.rows - frames.rows, limits.bytes - frames.bytes)
        return found

    def read_into(self, frames: Frames, limits: Limits) -> tuple[list[Damage], bool]:
        """Adds the next frames; says what damage was among them, and whether the limits are met.

        Frames of other tables are stepped over. The last frame may pass the limit of rows.

        Raises:
            OSError: the disk could not be read; try again.
        """
        damages: list[Damage] = []
        before = len(frames)
        while True:
            try:
                damage = self._read_up(frames, limits)
            except OSError:
                if damages or len(frames) > before:
                    break  # what was read is handed over; the next call meets the error again
                raise
            if damage is None:
                break
            damages.append(damage)
        return damages, self._is_full

    def _read_up(self, frames: Frames, limits: Limits) -> Damage | None:
        """Adds frames up to a damage, which it returns, or the limits or the end."""
        views = self._views()
        self._is_full = False
        begun = len(frames)
        while not limits.are_met(frames) and self._lsn < limits.end_lsn:
            view, successor = self._current(views)
            if view is None:
                return None
            try:
                item = self._advance(view, successor, frames, limits)
            except OSError:
                if len(frames) > begun:
                    return None
                raise
            if isinstance(item, Damage):
                return item
            if item is None:
                if successor is None:
                    self._lsn = max(self._lsn, view.end_lsn)
                    self.close()
                    return None
                self._leave(successor)
            elif item is _ENOUGH:
                break
        self._is_full = True
        return None

    def _advance(
        self,
        view: SegmentView,
        successor: SegmentView | None,
        frames: Frames,
        limits: Limits,
    ) -> Damage | _Passed | None:
        """What is sound is taken, and the first record that is not looked at by itself.

        None at the end of what may be read.
        """
        has_some = not view.has_none(self._kind, self._lsn)
        if has_some and view.header is not None:
            if self._sweep(self._open(view), frames, limits):
                return _ENOUGH
            has_some = not view.has_none(self._kind, self._lsn)
        if not has_some:
            # Most tables have no frame in most segments: to sweep through what is another table's
            # costs two thirds of what it costs that one. Nor is damage there for this one to tell.
            self._return_to((self._lsn, view.end_lsn, view.good_bytes))
            return None
        place = self._place()
        try:
            item = self._step(view, successor)
        except OSError:
            self._return_to(place)
            raise
        if not isinstance(item, Frame):
            return item
        if limits.leave(frames, item.lsn, frame_bytes(item)):
            self._return_to(place)
            return _ENOUGH
        frames.add(item)
        return _PASSED

    def _sweep(self, records: Records, frames: Frames, limits: Limits) -> bool:
        """Takes what is sound, as long as there is some; whether the limits are met."""
        while True:
            offset = records.offset
            self._lsn, self._walk_lsn, self._is_full = sweep(
                records, self._kind, self._lsn, self._walk_lsn, frames, limits, self._owners
            )
            if self._is_full or records.offset == offset:
                return self._is_full

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
        records = self._open(view)
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

    def _open(self, view: SegmentView) -> Records:
        """The walk through a segment, up to what may be read of it now."""
        if self._records is None:
            assert view.header is not None, "a segment without its header cannot be walked"
            self._fd = self._fs.open_read(view.path)
            self._records = Records(
                self._fs, self._fd, view.header.seal, self._offset, view.good_bytes
            )
        self._records.end = view.good_bytes
        return self._records

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
    """A record that is not for this reader, or not for this reading."""


_PASSED = _Passed()
_ENOUGH = _Passed()
