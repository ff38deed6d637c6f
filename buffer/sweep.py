"""Sound records, many at a time: what nearly all of a log is made of.

The walk of `buffer.records` looks at one record and says what it is, whatever it is: 20 µs a frame.
This reads what lies in one window as long as it is sound and whole (1.5 µs a frame), and stops in
front of anything else, which the walk is then asked about. Both check the same: mark, the header's
CRC, the payload's.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from buffer.frame import (
    FRAME_HEADER_BYTES,
    GROUP_HEADER_BYTES,
    MARK_BYTES,
    TYPE_FRAME,
    TYPE_GROUP,
)
from buffer.frames import row_bytes
from buffer.lsn import LSN_MAX, Lsn
from schema.ids import RunId, TenantId
from schema.stack import Owner
from schema.streams import StreamKind

if TYPE_CHECKING:
    from buffer.frames import Frames
    from buffer.records import Records

OWNERS_BYTES_MAX = 2 * 2**20
"""Estimated, of one reader: 6,000 runs with names of usual length."""

_BYTES_AN_OWNER = 300

_FRAME = struct.Struct("<8sBB2xHHIIQ8xQ24xII")
_GROUP = struct.Struct("<12xIQQ8xI")
_KINDS = frozenset(map(int, StreamKind))
_FIXED = FRAME_HEADER_BYTES - 4
_GROUP_FIXED = GROUP_HEADER_BYTES - 4


class Owners(dict[tuple[int, int, bytes], Owner]):
    """Whose frames were met, by run, length of the tenant's name, and names as in a header."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __missing__(self, key: tuple[int, int, bytes]) -> Owner:
        run, tenant_bytes, names = key
        size = _BYTES_AN_OWNER + 6 * len(names)  # as bytes, and as text of up to 4 bytes a letter
        if self.bytes + size > OWNERS_BYTES_MAX:
            self.clear()
            self.bytes = 0
        tenant, project = names[:tenant_bytes].decode(), names[tenant_bytes:].decode()
        owner = self[key] = Owner(TenantId(tenant), project, RunId(run))
        self.bytes += size
        return owner


class Limits(NamedTuple):
    """Where a reading ends.

    Attributes:
        rows: enough.
        bytes: of a block; a frame that would pass it is left, unless it is the first.
        end_lsn: frames from here on are left.
    """

    rows: int
    bytes: int
    end_lsn: int = LSN_MAX

    def leave(self, frames: Frames, lsn: int, size: int) -> bool:
        """Whether one more frame of this size is not for this reading."""
        return lsn >= self.end_lsn or (bool(frames) and frames.bytes + size > self.bytes)

    def are_met(self, frames: Frames) -> bool:
        """Whether there is enough."""
        return frames.rows >= self.rows or frames.bytes >= self.bytes


class Swept(NamedTuple):
    """How far a sweep came.

    Attributes:
        lsn: one past the last frame considered.
        walk_lsn: one past the last frame seen.
        is_full: the limits are met, or the next frame is beyond them.
    """

    lsn: Lsn
    walk_lsn: Lsn
    is_full: bool


def sweep(  # noqa: PLR0915 - one loop: a call a frame would cost as much as all else in it
    records: Records,
    kind: StreamKind,
    lsn: Lsn,
    walk_lsn: Lsn,
    into: Frames,
    limits: Limits,
    owners: Owners,
) -> Swept:
    """Adds the frames of a table that lie sound and whole in one window, and moves behind them.

    Args:
        records: a walk; its offset is moved.
        kind: the table's stream; frames of others are stepped over.
        lsn: frames below it are stepped over.
        walk_lsn: as the walk has it.
        into: where frames are added.
        limits: where to stop.
        owners: known ones; those met are added.

    Raises:
        OSError: the disk failed; nothing has moved, and nothing is added.
    """
    data, base = records.window()
    mark, seed = records.seal.mark, records.seal.seed
    at, end = records.offset - base, min(len(data), records.end - base)
    is_full = limits.are_met(into)
    stack, headers, proofs = into.stack, into.headers, into.proofs
    payloads, counts, whose = stack.payloads, stack.row_counts, stack.owners
    width, unpack = row_bytes(kind), _FRAME.unpack_from
    rows, size = into.rows, into.bytes
    rows_max, bytes_max, end_lsn = limits
    number, seen = int(lsn), int(walk_lsn)
    while end - at >= FRAME_HEADER_BYTES and not is_full:
        fields = unpack(data, at)
        found, record, stream, tenant_bytes, project_bytes, payload_bytes = fields[:6]
        if found != mark:
            break
        if record != TYPE_FRAME:
            group = _group(data, at, seed, records.end - base)
            if group is None:
                break
            first, behind, body_bytes, behind_lsn = group
            is_passed = behind_lsn <= number
            seen = behind_lsn if is_passed else first
            at = behind + body_bytes if is_passed else behind
            continue
        names_at = at + FRAME_HEADER_BYTES
        payload_at = names_at + tenant_bytes + project_bytes
        behind = payload_at + payload_bytes
        if behind > end:
            break
        row_count, frame_lsn, run, payload_crc, header_crc = fields[6:]
        header, names = data[at : at + _FIXED], data[names_at:payload_at]
        if crc32(names, crc32(header, seed)) != header_crc or stream not in _KINDS:
            break
        if frame_lsn < number:
            seen, at = frame_lsn + 1, behind
            continue
        if stream == kind:
            payload = data[payload_at:behind]
            if crc32(payload, seed) != payload_crc:
                break
            more = width * row_count + payload_bytes
            if frame_lsn >= end_lsn or (size + more > bytes_max and headers):
                is_full = True
                break
            whose.append(owners[run, tenant_bytes, names])
            payloads.append(payload)
            counts.append(row_count)
            headers.append(header)
            proofs.append(frame_lsn)
            proofs.append(payload_crc)
            rows += row_count
            size += more
            is_full = rows >= rows_max or size >= bytes_max
        number = seen = frame_lsn + 1
        at = behind
    into.rows, into.bytes = rows, size
    records.offset = base + at
    return Swept(Lsn(number), Lsn(seen), is_full)


def _group(data: bytes, at: int, seed: int, end: int) -> tuple[int, int, int, int] | None:
    """Of a group's header: first LSN, offset behind it, bytes and LSN behind its frames.

    None where it is not sound.
    """
    frame_count, first, body_bytes, crc = _GROUP.unpack_from(data, at)
    behind = at + GROUP_HEADER_BYTES
    if (
        data[at + MARK_BYTES] != TYPE_GROUP
        or crc32(data[at : at + _GROUP_FIXED], seed) != crc
        or first + frame_count > LSN_MAX
        or body_bytes > end - behind
    ):
        return None
    return first, behind, body_bytes, first + frame_count
