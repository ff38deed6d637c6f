"""Walking the records of a segment, past what is damaged.

Three things may stand at a place: a record, the end, or bytes that are no record. For the last the
walk looks for the next mark that begins a whole header, and reports the range between as a gap:
what a gap means (torn tail or damage) is decided by those who know what was synced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from buffer.frame import (
    FRAME_HEADER_BYTES,
    GROUP_HEADER_BYTES,
    Flaw,
    FrameHeader,
    GroupHeader,
    frame_of,
    is_payload_intact,
    parse_record,
)

if TYPE_CHECKING:
    from buffer.frame import Frame, Seal
    from buffer.fs import Fd, FileSystem

WINDOW_BYTES = 256 * 2**10
"""Read at once: some hundred small frames; a large payload that is skipped is not read."""
BLANK_BYTES = 2**20
"""Read at once to see whether all of it is zeros."""


class GroupRecord(NamedTuple):
    """A group's header at an offset; its frames follow as records of their own."""

    offset: int
    header: GroupHeader


class FrameRecord(NamedTuple):
    """A frame's header at an offset; the payload has not been looked at."""

    offset: int
    header: FrameHeader


class Gap(NamedTuple):
    """Bytes [offset, end) that are no record."""

    offset: int
    end: int
    reason: str


class Records:
    """A walk from an offset up to ``end``, which may be moved up as the segment grows.

    Nothing beyond ``end`` is ever read. Blocking.

    Raises:
        OSError: from any call; the disk failed, which says nothing about the bytes.
    """

    def __init__(
        self,
        fs: FileSystem,
        fd: Fd,
        seal: Seal,
        offset: int,
        end: int,
        *,
        window: int = WINDOW_BYTES,
    ) -> None:
        self._fs = fs
        self._fd = fd
        self._seal = seal
        self._window_bytes = window
        self._data = b""
        self._base = 0
        self.offset = offset
        self.end = end

    def next(self) -> GroupRecord | FrameRecord | Gap | None:
        """The record at ``offset``, which moves behind it (a group: its header); None: the end."""
        if self.offset >= self.end:
            return None
        at = self.offset
        header = self._parse(at)
        if isinstance(header, Flaw):
            self.offset = self._resynchronised(at + 1)
            return Gap(at, self.offset, header.reason)
        if isinstance(header, FrameHeader):
            self.offset = at + header.frame_bytes
            return FrameRecord(at, header)
        self.offset = at + GROUP_HEADER_BYTES
        return GroupRecord(at, header)

    def peek(self) -> GroupRecord | FrameRecord | Gap | None:
        """What `next` would return, without moving."""
        offset = self.offset
        try:
            return self.next()
        finally:
            self.offset = offset

    def skip(self, group: GroupRecord) -> None:
        """Moves behind the frames of the group that `next` has just returned."""
        self.offset = group.offset + GROUP_HEADER_BYTES + group.header.body_bytes

    def frame(self, record: FrameRecord) -> Frame | Flaw:
        """The whole frame, its payload checked; a `Flaw` where that is not what was written."""
        header = record.header
        names_at = record.offset + FRAME_HEADER_BYTES
        names = self._bytes(names_at, header.tenant_bytes + header.project_bytes)
        payload = self._bytes(record.offset + header.header_bytes, header.payload_bytes)
        if len(payload) != header.payload_bytes:
            return Flaw("the file ends within the payload")
        if not is_payload_intact(header, payload, self._seal):
            return Flaw("payload's CRC is wrong")
        return frame_of(header, names, payload)

    @property
    def seal(self) -> Seal:
        """What the records are sealed with."""
        return self._seal

    def window(self) -> tuple[bytes, int]:
        """Bytes from ``offset`` on, as many as are read at once, and the offset of the first.

        What lies behind ``end`` may be among them, and is not for reading.
        """
        if not self._base <= self.offset <= self._base + len(self._data) - FRAME_HEADER_BYTES:
            self._load(self.offset, self._window_bytes)
        return self._data, self._base

    def is_blank(self, offset: int) -> bool:
        """Whether nothing but zeros stands from here to the end: what is written ahead."""
        for at in range(offset, self.end, BLANK_BYTES):
            if self._fs.pread(self._fd, min(BLANK_BYTES, self.end - at), at).strip(b"\0"):
                return False
        return True

    def read_anew(self) -> None:
        """What is looked at next is read once more: the log may have gone on meanwhile."""
        self._data = b""

    def has_changed(self, gap: Gap) -> bool:
        """Whether a record stands at the gap by now: the log may be in use. If so, it is next."""
        self.read_anew()
        self.offset = gap.offset
        is_changed = not isinstance(self.peek(), Gap)
        if not is_changed:
            self.offset = gap.end
        return is_changed

    def raw(self, offset: int, count: int) -> bytes:
        """Bytes as they are, for setting aside."""
        return self._fs.pread(self._fd, min(count, self.end - offset), offset)

    def _parse(self, at: int) -> GroupHeader | FrameHeader | Flaw:
        available = self._load(at, FRAME_HEADER_BYTES + 256)
        header = parse_record(self._data, at - self._base, self._seal)
        if isinstance(header, Flaw):
            if header.needs_bytes <= available or at + header.needs_bytes > self.end:
                return header
            if self._load(at, header.needs_bytes) < header.needs_bytes:
                return header
            header = parse_record(self._data, at - self._base, self._seal)
        left = self.end - at
        if isinstance(header, FrameHeader) and header.frame_bytes > left:
            return Flaw(f"frame of {header.frame_bytes} bytes where {left} are left")
        if isinstance(header, GroupHeader) and header.body_bytes > left - GROUP_HEADER_BYTES:
            return Flaw(f"group of {header.body_bytes} bytes where {left} are left")
        return header

    def _resynchronised(self, at: int) -> int:
        """The offset of the first record at or behind ``at``; the end where there is none."""
        mark = self._seal.mark
        while at < self.end:
            have = self._load(at, min(self._window_bytes, self.end - at))
            found = self._data.find(mark, at - self._base)
            if found < 0:
                if have < len(mark):
                    return self.end
                at += have - len(mark) + 1  # a mark may lie across two windows
                continue
            at = self._base + found
            if not isinstance(self._parse(at), Flaw):
                return at
            at += 1
        return self.end

    def _bytes(self, at: int, count: int) -> bytes:
        if at + count <= self._base + len(self._data) and at >= self._base:
            start = at - self._base
            return self._data[start : start + count]
        if count > self._window_bytes:
            return self._fs.pread(self._fd, count, at)
        self._load(at, count)
        start = at - self._base
        return self._data[start : start + count]

    def _load(self, at: int, count: int) -> int:
        """Has ``count`` bytes from ``at`` in the window where there are so many; says how many."""
        have = self._base + len(self._data) - at
        if at >= self._base and have >= count:
            return have
        left = self.end - at
        if at >= self._base and have >= left:
            return have
        wanted = min(max(count, self._window_bytes), left)
        self._data = self._fs.pread(self._fd, wanted, at)
        self._base = at
        return len(self._data)
