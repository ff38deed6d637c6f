"""Looking into logs without taking part: of a server that runs, or of none.

Nothing here locks, writes or cuts. A shard may be appended to, drained or removed while it is
looked at: what goes away meanwhile is left out, and an end that is being written is a *tail*.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from buffer.checkpoint import Checkpoint
from buffer.errors import Damaged, UnknownFormat
from buffer.frame import Flaw
from buffer.lsn import Lsn
from buffer.records import FrameRecord, Gap, GroupRecord, Records
from buffer.segment import (
    HEADER_BLOCK_BYTES,
    SegmentHeader,
    UnknownVersion,
    first_lsn_of,
    parse_header,
    segment_name,
)
from buffer.shard import holder, id_of, list_shards
from schema.columns import parse_chunks
from schema.errors import MalformedChunks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from buffer.checkpoint import TableState
    from buffer.frame import Frame
    from buffer.fs import FileSystem
    from schema.streams import StreamKind


class SegmentState(Enum):
    """What a file of the log is, as far as its neighbours say."""

    LAST = "last"
    """The newest: the active one, while somebody holds the shard."""
    SEALED = "sealed"
    FENCED = "fenced"
    UNREADABLE = "unreadable"
    """Both copies of its header are damaged, or it is of another release."""


@dataclass(frozen=True, slots=True)
class SegmentLook:
    """One file of a log.

    Attributes:
        next_lsn: where the next file begins; None for the newest.
        good_bytes: what counts of it: as its successor says, or all there was at the look.
        header: None where it cannot be read.
    """

    path: Path
    first_lsn: Lsn
    next_lsn: Lsn | None
    size: int
    good_bytes: int
    header: SegmentHeader | None
    state: SegmentState


@dataclass(frozen=True, slots=True)
class ShardLook:
    """One shard.

    Attributes:
        pid: who held its lock last, and may hold it now.
        tables: its checkpoint; None where that cannot be read, with the reason in ``trouble``.
        segments: oldest first.
    """

    directory: Path
    pid: int | None
    tables: Mapping[StreamKind, TableState] | None
    trouble: str | None
    segments: tuple[SegmentLook, ...]

    @property
    def name(self) -> str:
        """The id, hex."""
        return self.directory.name

    @property
    def delivered(self) -> Lsn:
        """The least of all tables' places; 0 where they are not known."""
        return min((state.delivered for state in (self.tables or {}).values()), default=Lsn(0))


@dataclass(frozen=True, slots=True)
class Found:
    """What stands at a place of a segment.

    Attributes:
        frame: the frame; None for a fault.
        fault: what is wrong there; None for a good frame.
        is_tail: the fault is an end that nobody was told is stored, or that is being written.
    """

    segment: SegmentLook
    offset: int
    length: int
    frame: Frame | None
    fault: str | None
    is_tail: bool = False


def look_at_all(fs: FileSystem, root: Path) -> list[ShardLook]:
    """Every shard under ``root``, in the order of their names."""
    found = (look_at(fs, directory) for directory in list_shards(fs, root))
    return [shard for shard in found if shard is not None]


def look_at(fs: FileSystem, directory: Path) -> ShardLook | None:
    """One shard; None when it has gone, or is no shard.

    Raises:
        OSError: it cannot be read.
    """
    shard_id = id_of(directory.name)
    if shard_id is None or not fs.list_dir(directory):
        return None
    tables, trouble = None, None
    try:
        tables = Checkpoint.look(fs, directory, shard_id)
    except FileNotFoundError:
        trouble = "there is no checkpoint"
    except (Damaged, UnknownFormat) as error:
        trouble = str(error)
    return ShardLook(directory, holder(fs, directory), tables, trouble, segments_of(fs, directory))


def segments_of(fs: FileSystem, directory: Path) -> tuple[SegmentLook, ...]:
    """The files of a log, oldest first."""
    names = fs.list_dir(directory)
    firsts = sorted(lsn for name in names if (lsn := first_lsn_of(name)) is not None)
    heads = [(first, _head(fs, directory / segment_name(first))) for first in firsts]
    there = [(first, *head) for first, head in heads if head is not None]
    looks = []
    for index, (first, size, header) in enumerate(there):
        successor = there[index + 1] if index + 1 < len(there) else None
        looks.append(_look(directory / segment_name(first), first, size, header, successor))
    return tuple(looks)


def frames_of(
    fs: FileSystem,
    segment: SegmentLook,
    *,
    first: Lsn | None = None,
    last: Lsn | None = None,
    kind: StreamKind | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Found]:
    """The frames of a segment in order, and what is wrong between them.

    Args:
        fs: where it is.
        segment: the file; nothing where it has gone.
        first: only frames from this one on; faults are told all the same.
        last: only frames up to this one.
        kind: only this stream's.
        progress: called with the offset that is reached.

    Raises:
        OSError: it could not be read.
    """
    if segment.header is None:
        yield _unreadable(segment)
        return
    try:
        fd = fs.open_read(segment.path)
    except FileNotFoundError:
        return
    try:
        records = Records(fs, fd, segment.header.seal, HEADER_BLOCK_BYTES, segment.good_bytes)
        yield from _walk(segment, records, _Chosen(first, last, kind), progress)
    finally:
        fs.close(fd)


def end_of(fs: FileSystem, segment: SegmentLook) -> Lsn:
    """One past the last frame that a segment's group headers speak of."""
    if segment.next_lsn is not None:
        return segment.next_lsn
    end = segment.first_lsn
    if segment.header is None:
        return end
    try:
        fd = fs.open_read(segment.path)
    except FileNotFoundError:
        return end
    try:
        records = Records(fs, fd, segment.header.seal, HEADER_BLOCK_BYTES, segment.good_bytes)
        while (record := records.next()) is not None:
            if isinstance(record, GroupRecord):
                records.skip(record)
                end = max(end, record.header.end_lsn)
    finally:
        fs.close(fd)
    return end


def _head(fs: FileSystem, path: Path) -> tuple[int, SegmentHeader | None] | None:
    try:
        fd = fs.open_read(path)
    except FileNotFoundError:
        return None  # deleted meanwhile: it was delivered
    try:
        size = fs.size(fd)
        header = parse_header(fs.pread(fd, HEADER_BLOCK_BYTES, 0))
    finally:
        fs.close(fd)
    return size, None if isinstance(header, UnknownVersion | Flaw) else header


def _look(
    path: Path,
    first: Lsn,
    size: int,
    header: SegmentHeader | None,
    successor: tuple[Lsn, int, SegmentHeader | None] | None,
) -> SegmentLook:
    good, state = size, SegmentState.LAST if successor is None else SegmentState.SEALED
    before = None if successor is None or successor[2] is None else successor[2].predecessor
    if before is not None and before.first_lsn == first:
        good = before.good_bytes
        state = SegmentState.FENCED if before.is_fenced else state
    if header is None:
        state = SegmentState.UNREADABLE
    next_lsn = None if successor is None else successor[0]
    return SegmentLook(path, first, next_lsn, size, good, header, state)


class _Chosen(NamedTuple):
    """Which frames are wanted."""

    first: Lsn | None
    last: Lsn | None
    kind: StreamKind | None

    def has_none_of(self, group: GroupRecord) -> bool:
        """Whether no frame of the group can be wanted."""
        header = group.header
        is_before = self.first is not None and header.end_lsn <= self.first
        return is_before or (self.last is not None and header.first_lsn > self.last)

    def has(self, record: FrameRecord) -> bool:
        """Whether the frame is wanted."""
        header = record.header
        if self.kind is not None and header.kind != self.kind:
            return False
        is_before = self.first is not None and header.lsn < self.first
        return not is_before and (self.last is None or header.lsn <= self.last)


def _walk(
    segment: SegmentLook,
    records: Records,
    chosen: _Chosen,
    progress: Callable[[int], None] | None,
) -> Iterator[Found]:
    synced = HEADER_BLOCK_BYTES
    # Faults that are a tail unless a later group says otherwise, and the frame that they are in.
    waiting: list[tuple[Found, FrameRecord | None]] = []
    while (record := records.next()) is not None:
        if progress is not None:
            progress(records.offset)
        if isinstance(record, GroupRecord):
            synced = max(synced, record.header.synced_bytes)
            if chosen.has_none_of(record):
                records.skip(record)
        elif isinstance(record, Gap):
            if segment.state is SegmentState.LAST and (
                records.is_blank(record.offset) or records.has_changed(record)
            ):
                continue  # zeros written ahead, where the server may have gone on meanwhile
            waiting.append((_gap(segment, record), None))
        elif chosen.has(record):
            found = _found(segment, records, record)
            if found.fault is None:
                yield found
            else:
                waiting.append((found, record))
        if waiting:
            settled = [one for one in waiting if _is_settled(segment, one[0], synced)]
            waiting = [one for one in waiting if not _is_settled(segment, one[0], synced)]
            yield from (_settled(segment, records, *one) for one in settled)
    yield from (_as_tail(found) for found, _ in waiting)


def _found(segment: SegmentLook, records: Records, record: FrameRecord) -> Found:
    length = record.header.frame_bytes
    frame = records.frame(record)
    if isinstance(frame, Flaw):
        return Found(segment, record.offset, length, None, frame.reason)
    try:
        parse_chunks(frame.chunks)
    except MalformedChunks as error:
        return Found(segment, record.offset, length, frame, f"payload is malformed: {error}")
    return Found(segment, record.offset, length, frame, None)


def _gap(segment: SegmentLook, gap: Gap) -> Found:
    return Found(segment, gap.offset, gap.end - gap.offset, None, gap.reason)


def _is_settled(segment: SegmentLook, found: Found, synced: int) -> bool:
    return segment.state is not SegmentState.LAST or found.offset < synced


def _settled(
    segment: SegmentLook, records: Records, found: Found, record: FrameRecord | None
) -> Found:
    """The fault; or the frame, where zeros written ahead were read while it was being written."""
    if record is None or segment.state is not SegmentState.LAST:
        return found
    records.read_anew()
    return _found(segment, records, record)


def _as_tail(found: Found) -> Found:
    return Found(found.segment, found.offset, found.length, found.frame, found.fault, is_tail=True)


def _unreadable(segment: SegmentLook) -> Found:
    reason = "both copies of the segment's header are damaged, or another release wrote it"
    return Found(segment, 0, segment.size, None, reason)
