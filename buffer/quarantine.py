"""Rows that were accepted and cannot be delivered, kept with the reason; and damaged log ranges.

One file an entry, in the shard's directory ``quarantine``. A name is a function of what the file
holds, so that setting the same rows aside again after a crash makes no second entry. Nothing is
thrown away to make room: at the cap the caller waits.

=============  ======  ==========================================================================
field          bytes
=============  ======  ==========================================================================
magic          8       ``CHARONQ1``
header_bytes   4       little-endian
header                 JSON: reason, code, table, shard, quarantined_at_ns, and for each frame its
                       lsn, received_at_ns, kind, tenant, project, run_id, rows, payload_bytes; for
                       damage: segment, offset, length, first_lsn, end_lsn, raw_bytes
body                   the frames' payloads (``docs/chunk-format.md``), or the damaged bytes
crc            4       zlib's CRC-32 of all above
=============  ======  ==========================================================================

Names: ``rows-<table>-<shard>-<first LSN>-<digest>-<rows>.q`` and
``damage-<shard>-<segment>-<offset>.q``.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from buffer.errors import Damaged, Unavailable
from buffer.fs import TEMPORARY_SUFFIX, create_durably, is_no_room, make_dir_durably
from buffer.statistics import QuarantineStatistics
from schema.columns import Chunks
from schema.ids import RunId, TenantId
from schema.streams import StreamKind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from buffer.clock import Clock
    from buffer.frame import Frame
    from buffer.fs import FileSystem
    from buffer.log import Damage

SUFFIX = ".q"

_MAGIC = b"CHARONQ1"
_U32 = struct.Struct("<I")


class QuarantineFull(Unavailable):
    """No room to set rows aside: the cap or the disk. Nothing was written; the rows stay put."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """Rows of one frame, cut out of it."""

    frame: Frame
    chunks: Chunks


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, read back.

    Attributes:
        header: the JSON above.
        chunks: the rows of each frame; empty for damage.
        raw: the damaged bytes; empty for rows.
    """

    name: str
    header: dict[str, Any]
    chunks: tuple[Chunks, ...]
    raw: bytes


class Quarantine:
    """One shard's quarantine. Every method blocks and runs on the shard's disk thread."""

    def __init__(
        self, fs: FileSystem, directory: Path, *, shard: str, bytes_max: int, clock: Clock
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._shard = shard
        self._bytes_max = bytes_max
        self._clock = clock
        self._sizes: dict[str, int] = {}
        self._is_full = False

    def open(self) -> None:
        """Counts what is there and removes unfinished files. Blocking.

        Raises:
            OSError: it could not be read, or not be made durable.

        Durability: what it counts survives a power cut once this returns.
        """
        sizes = {}
        for name in self._fs.list_dir(self._directory):
            if name.endswith(TEMPORARY_SUFFIX):
                self._fs.unlink(self._directory / name)
            elif name.endswith(SUFFIX):
                sizes[name] = self._fs.size_of(self._directory / name)
        if sizes:
            # What is counted is not set aside again, and a process may have ended between an
            # entry's name and the sync of that.
            self._fs.fsync_dir(self._directory)
            self._fs.fsync_dir(self._directory.parent)
        self._sizes = sizes  # at once: somebody may be looking at the statistics

    def put_rows(self, table: str, reason: str, code: int | None, rows: Sequence[SetAside]) -> bool:
        """Sets rows of one table aside.

        Returns:
            Whether they were new; the same rows make no second entry.

        Raises:
            QuarantineFull: the cap is reached, or the disk is full.

        Durability: the entry survives a power cut once this returns.
        """
        digest = hashlib.blake2b(reason.encode(), digest_size=8)
        frames = []
        for item in rows:
            chunks = item.chunks
            digest.update(item.frame.lsn.to_bytes(8, "little") + chunks.payload)
            frames.append(
                {
                    "lsn": item.frame.lsn,
                    "received_at_ns": item.frame.received_at_ns,
                    "kind": int(chunks.kind),
                    "tenant": chunks.tenant,
                    "project": chunks.project,
                    "run_id": chunks.run_id,
                    "rows": chunks.row_count,
                    "payload_bytes": len(chunks.payload),
                }
            )
        count = sum(item.chunks.row_count for item in rows)
        first = rows[0].frame.lsn
        name = f"rows-{table}-{self._shard}-{first:016x}-{digest.hexdigest()}-{count}{SUFFIX}"
        header = {"reason": reason, "code": code, "table": table, "frames": frames}
        return self._put(name, header, [item.chunks.payload for item in rows])

    def put_damage(self, damage: Damage) -> bool:
        """Sets a damaged range of the log aside; the same range makes no second entry.

        Raises:
            QuarantineFull: the cap is reached, or the disk is full.

        Durability: the entry survives a power cut once this returns.
        """
        name = f"damage-{self._shard}-{damage.segment}-{damage.offset:x}{SUFFIX}"
        header = {
            "reason": damage.reason,
            "segment": damage.segment,
            "offset": damage.offset,
            "length": damage.length,
            "first_lsn": damage.first_lsn,
            "end_lsn": damage.end_lsn,
            "raw_bytes": len(damage.raw),
        }
        return self._put(name, header, [damage.raw])

    def take_over(self, other: Quarantine) -> None:
        """Moves another shard's entries here, whatever the cap: they are on this disk already.

        Durability: each entry is in one of the two directories at any time, in this one in the end.
        """
        make_dir_durably(self._fs, self._directory)
        other.open()  # somebody may have taken entries out
        for name, size in list(other._sizes.items()):
            self._fs.rename(other._directory / name, self._directory / name)
            self._sizes[name] = size
            del other._sizes[name]
        self._fs.fsync_dir(self._directory)

    def remove(self) -> None:
        """Removes the empty directory."""
        assert not self._sizes, "a quarantine with entries is not removed"
        self._fs.remove_dir(self._directory)

    def names(self) -> list[str]:
        """Names of the entries, sorted."""
        return sorted(self._sizes)

    def read(self, name: str) -> Entry:
        """One entry.

        Raises:
            Damaged: the file is not what was written.
            OSError: it could not be read.
        """
        return read_entry(self._fs, self._directory / name)

    def statistics(self) -> QuarantineStatistics:
        """What is here. Does not block."""
        sizes = dict(self._sizes)  # in one step: the disk thread may be at work
        names = list(sizes)
        return QuarantineStatistics(
            entries=len(names),
            rows=sum(_rows_of_name(name) for name in names),
            bytes=sum(sizes.values()),
            damaged_ranges=sum(name.startswith("damage-") for name in names),
            is_full=self._is_full,
        )

    def _put(self, name: str, header: dict[str, Any], body: Sequence[bytes]) -> bool:
        if name in self._sizes:
            return False
        header |= {"shard": self._shard, "quarantined_at_ns": self._clock.wall_ns()}
        head = json.dumps(header).encode()
        data = b"".join([_MAGIC, _U32.pack(len(head)), head, *body])
        data += _U32.pack(zlib.crc32(data))
        held = sum(self._sizes.values())
        if held + len(data) > self._bytes_max:  # somebody may have emptied it
            self.open()
            held = sum(self._sizes.values())
        if held + len(data) > self._bytes_max:
            self._is_full = True
            raise QuarantineFull(
                f"the quarantine holds {held} of {self._bytes_max} bytes, and {len(data)} more are "
                f"to be set aside: empty {self._directory} or raise quarantine_bytes_max"
            )
        try:
            make_dir_durably(self._fs, self._directory)
            self._fs.close(create_durably(self._fs, self._directory / name, [data]))
        except OSError as error:
            if not is_no_room(error):
                raise
            self._is_full = True
            raise QuarantineFull(f"no room on the disk to set {len(data)} bytes aside") from error
        self._is_full = False
        self._sizes[name] = len(data)
        return True


def read_entry(fs: FileSystem, path: Path) -> Entry:
    """One entry of any quarantine; for commands that look into a server that is not running.

    Raises:
        Damaged: the file is not what was written.
        OSError: it could not be read.
    """
    fd = fs.open_read(path)
    try:
        data = fs.pread(fd, fs.size(fd), 0)
    finally:
        fs.close(fd)
    end = len(data) - _U32.size
    head_at = len(_MAGIC) + _U32.size
    if end < head_at or not data.startswith(_MAGIC):
        raise Damaged(f"{path}: {len(data)} bytes that do not begin with {_MAGIC!r}")
    expected, found = _U32.unpack_from(data, end)[0], zlib.crc32(data[:end])
    if expected != found:
        raise Damaged(f"{path}: CRC expected {expected:08x}, found {found:08x}")
    body_at = head_at + _U32.unpack_from(data, len(_MAGIC))[0]
    header = json.loads(data[head_at:body_at])
    chunks = []
    for frame in header.get("frames", []):
        payload = data[body_at : body_at + frame["payload_bytes"]]
        body_at += len(payload)
        chunks.append(
            Chunks(
                kind=StreamKind(frame["kind"]),
                tenant=TenantId(frame["tenant"]),
                project=frame["project"],
                run_id=RunId(frame["run_id"]),
                row_count=frame["rows"],
                payload=payload,
            )
        )
    return Entry(path.name, header, tuple(chunks), data[body_at:end])


def _rows_of_name(name: str) -> int:
    if not name.startswith("rows-"):
        return 0
    count = name.removesuffix(SUFFIX).rpartition("-")[2]
    return int(count) if count.isdecimal() else 0
