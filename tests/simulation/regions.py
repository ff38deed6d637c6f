"""The byte regions of a shard's files, and what is lost with each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from buffer.checkpoint import FILE_NAME, SLOT_BYTES
from buffer.frame import FRAME_HEADER_BYTES, GROUP_HEADER_BYTES
from buffer.fs import Fd
from buffer.records import FrameRecord, GroupRecord, Records
from buffer.segment import HEADER_BLOCK_BYTES, SegmentHeader, first_lsn_of, parse_header

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from buffer.fs import FileSystem
    from tests.simulation.disk import MachineDisk

SEGMENT_HEADER_BYTES = 76


@dataclass(frozen=True)
class Region:
    """Bytes [start, end) of a file.

    Attributes:
        frames: digest and stream of each frame that is lost when a byte of it changes.
    """

    path: Path
    what: str
    start: int
    end: int
    frames: tuple[tuple[bytes, int], ...] = ()

    def __str__(self) -> str:
        return f"{self.path.name}-{self.what.replace(' ', '-')}-{self.start}"


def regions_of(disk: MachineDisk) -> list[Region]:
    """Every region of every segment and checkpoint, in the order of their names."""
    found: list[Region] = []
    for path in disk.paths():
        if path.name == FILE_NAME:
            found += [
                Region(path, "checkpoint", start + at, start + at + size)
                for start in (0, SLOT_BYTES)
                for at, size in ((0, 40), (40, 92), (132, 276), (SLOT_BYTES - 4, 4))
            ]
        elif first_lsn_of(path.name) is not None:
            found += _segment(path, disk.content(path))
    return found


def _segment(path: Path, data: bytes) -> Iterator[Region]:
    header = parse_header(data[:HEADER_BLOCK_BYTES])
    assert isinstance(header, SegmentHeader)
    for copy in (0, HEADER_BLOCK_BYTES // 2):
        yield Region(path, "segment header", copy, copy + SEGMENT_HEADER_BYTES)
    records = records_of(data, header)
    while (record := records.next()) is not None:
        at = record.offset
        if isinstance(record, GroupRecord):
            if record.header.frame_count:  # the one of an orderly stop vouches for all before it
                yield Region(path, "group header", at, at + GROUP_HEADER_BYTES)
            continue
        assert isinstance(record, FrameRecord), "nothing is damaged yet"
        frames = ((record.header.digest, record.header.kind),)
        names, payload = at + FRAME_HEADER_BYTES, at + record.header.header_bytes
        yield Region(path, "frame header", at, names, frames)
        yield Region(path, "names", names, payload, frames)
        yield Region(path, "payload", payload, records.offset, frames)


def records_of(data: bytes, header: SegmentHeader) -> Records:
    """A walk over a segment's content."""
    fs = cast("FileSystem", _Bytes(data))
    return Records(fs, Fd(0), header.seal, HEADER_BLOCK_BYTES, len(data))


class _Bytes:
    """As much of a file system as a walk over records needs."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def pread(self, fd: Fd, count: int, offset: int) -> bytes:
        return self._data[offset : offset + count]
