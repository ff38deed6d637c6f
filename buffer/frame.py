"""Frames and groups as bytes. Knows no files.

A group is what one write put into a segment: a header, then its frames. All numbers little-endian.

=================  =====  =====================================================================
group header       bytes  44 in all
=================  =====  =====================================================================
mark               8      the segment's nonce
type               1      1
zero               3
frame_count        4      0 in the group that an orderly stop writes
first_lsn          8      LSN of the first frame; the others follow without a gap
body_bytes         8      all frames of the group
synced_bytes       8      the segment was synced up to here when this group was written
crc                4      of the 40 bytes above
=================  =====  =====================================================================

=================  =====  =====================================================================
frame              bytes  80 and the names and the payload
=================  =====  =====================================================================
mark               8      the segment's nonce
type               1      2
kind               1      the stream: 1 metrics, 2 logs, 3 data, 4 files
flags              1      bit 0: the last frame of its request
zero               1
tenant_bytes       2
project_bytes      2
payload_bytes      4
row_count          4
lsn                8
received_at_ns     8      signed; when the request had been read, by the wall clock
run_id             8
digest             16     of the request, for recognising a repeat
accepted           4      rows of the whole request that were accepted, as answered
rejected           4      rows of the whole request that were refused, as answered
payload_crc        4      of the payload
header_crc         4      of the 76 bytes above, then tenant and project
tenant, project           UTF-8
payload                   the column chunks (``schema.columns``)
=================  =====  =====================================================================

CRCs are zlib's CRC-32, begun with the CRC-32 of the segment's nonce. A reader that has lost its
place looks for the mark: 64 random bits that no client ever sees, so a frame that a client planted
in a value is not taken for one of ours.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import NamedTuple

from buffer.lsn import LSN_MAX, Lsn
from schema.columns import Chunks
from schema.ids import RunId, TenantId
from schema.streams import StreamKind

MARK_BYTES = 8
DIGEST_BYTES = 16
NAME_BYTES_MAX = 2**16 - 1

TYPE_GROUP = 1
TYPE_FRAME = 2
FLAG_LAST = 1

_GROUP = struct.Struct("<8sB3xIQQQ")
_FRAME = struct.Struct("<8sBBBxHHIIQqQ16sIII")
_CRC = struct.Struct("<I")

GROUP_HEADER_BYTES = _GROUP.size + 4
FRAME_HEADER_BYTES = _FRAME.size + 4
"""Without the names."""

_KINDS = {int(kind): kind for kind in StreamKind}
_U32_MAX = 2**32 - 1


@dataclass(slots=True)
class Submission:
    """One request: its rows as chunks, all to be made durable together, and its answer's counts.

    A value: nobody changes one. Not frozen, because one is made a request: that takes four times as
    long. So too `Receipt`.

    Attributes:
        chunks: one or more; each becomes a frame.
        digest: 16 bytes that a repeat of the request has too.
        accepted: rows in ``chunks``, as the answer counts them.
        rejected: rows of the request that were refused.
    """

    chunks: tuple[Chunks, ...]
    digest: bytes
    accepted: int
    rejected: int


@dataclass(slots=True)
class Receipt:
    """What a request is answered: its counts, and whether they are those of an earlier one."""

    accepted: int
    rejected: int
    is_repeat: bool


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame as read back; its payload is proved by its CRC.

    ``digest``, ``accepted`` and ``rejected`` are those of the whole request.
    """

    lsn: Lsn
    received_at_ns: int
    digest: bytes
    accepted: int
    rejected: int
    is_last: bool
    chunks: Chunks
    payload_crc: int


@dataclass(frozen=True, slots=True)
class Seal:
    """What every record of one segment is sealed with."""

    mark: bytes
    seed: int

    @classmethod
    def of(cls, nonce: bytes) -> Seal:
        """The seal of a segment with this nonce of 8 bytes."""
        assert len(nonce) == MARK_BYTES, f"a nonce has {MARK_BYTES} bytes, not {len(nonce)}"
        return cls(nonce, zlib.crc32(nonce))


class GroupHeader(NamedTuple):
    """A group's header, checked."""

    frame_count: int
    first_lsn: Lsn
    body_bytes: int
    synced_bytes: int

    @property
    def end_lsn(self) -> Lsn:
        """One past the last frame's."""
        return Lsn(self.first_lsn + self.frame_count)


class FrameHeader(NamedTuple):
    """A frame's header without its names, checked; the payload is not."""

    kind: int
    flags: int
    tenant_bytes: int
    project_bytes: int
    payload_bytes: int
    row_count: int
    lsn: Lsn
    received_at_ns: int
    run_id: int
    digest: bytes
    accepted: int
    rejected: int
    payload_crc: int

    @property
    def header_bytes(self) -> int:
        """The header and its names."""
        return FRAME_HEADER_BYTES + self.tenant_bytes + self.project_bytes

    @property
    def frame_bytes(self) -> int:
        """The whole frame."""
        return self.header_bytes + self.payload_bytes


class Flaw(NamedTuple):
    """Why the bytes at a place are no record."""

    reason: str
    needs_bytes: int = 0
    """More than there were: the record would take so many from its beginning on; else 0."""


def framed_bytes(submission: Submission) -> int:
    """What a submission's frames take in the log, the group's header not counted.

    Raises:
        ValueError: the submission cannot be framed; says why. An error of the caller.
    """
    if not submission.chunks:
        raise ValueError("a submission has at least one frame")
    if len(submission.digest) != DIGEST_BYTES:
        raise ValueError(f"a digest has {DIGEST_BYTES} bytes, not {len(submission.digest)}")
    if not (0 <= submission.accepted <= _U32_MAX and 0 <= submission.rejected <= _U32_MAX):
        raise ValueError(f"counts out of range: {submission.accepted}, {submission.rejected}")
    total = 0
    for chunks in submission.chunks:
        tenant_bytes = len(chunks.tenant.encode())
        project_bytes = len(chunks.project.encode())
        payload_bytes = len(chunks.payload)
        if tenant_bytes > NAME_BYTES_MAX or project_bytes > NAME_BYTES_MAX:
            raise ValueError(f"tenant and project have at most {NAME_BYTES_MAX} bytes each")
        if payload_bytes > _U32_MAX or not 0 <= chunks.row_count <= _U32_MAX:
            raise ValueError(f"a frame of {payload_bytes} bytes, {chunks.row_count} rows")
        if not 0 <= chunks.run_id < 2**64:
            raise ValueError(f"run id {chunks.run_id} is not a 64-bit number")
        total += FRAME_HEADER_BYTES + tenant_bytes + project_bytes + payload_bytes
    return total


def encode_frames(
    submission: Submission, received_at_ns: int, first_lsn: int, seal: Seal, into: list[bytes]
) -> None:
    """Appends a submission's frames to ``into``: header and payload of each, in turn.

    `framed_bytes` has accepted the submission.
    """
    mark, seed = seal.mark, seal.seed
    digest, accepted, rejected = submission.digest, submission.accepted, submission.rejected
    left = len(submission.chunks)
    lsn = first_lsn
    for chunks in submission.chunks:
        left -= 1
        payload = chunks.payload
        tenant, project = chunks.tenant.encode(), chunks.project.encode()
        names = tenant + project
        header = _FRAME.pack(
            mark,
            TYPE_FRAME,
            chunks.kind,
            0 if left else FLAG_LAST,
            len(tenant),
            len(project),
            len(payload),
            chunks.row_count,
            lsn,
            received_at_ns,
            chunks.run_id,
            digest,
            accepted,
            rejected,
            zlib.crc32(payload, seed),
        )
        crc = zlib.crc32(names, zlib.crc32(header, seed))
        into.append(header + _CRC.pack(crc) + names)
        into.append(payload)
        lsn += 1


def encode_group(
    frame_count: int, first_lsn: int, body_bytes: int, synced_bytes: int, seal: Seal
) -> bytes:
    """A group's header."""
    header = _GROUP.pack(seal.mark, TYPE_GROUP, frame_count, first_lsn, body_bytes, synced_bytes)
    return header + _CRC.pack(zlib.crc32(header, seal.seed))


def parse_record(data: bytes, at: int, seal: Seal) -> GroupHeader | FrameHeader | Flaw:
    """The record whose header begins at ``data[at]``, or why there is none.

    Nothing is believed, and nothing allocated by it, before its CRC is checked. Whether a frame's
    or a group's body is all there is the caller's to check, who knows where the file ends.
    """
    kind_at = at + MARK_BYTES
    if len(data) <= kind_at:
        return Flaw("cut short", GROUP_HEADER_BYTES)
    if data[at:kind_at] != seal.mark:
        return Flaw("no mark")
    if data[kind_at] == TYPE_FRAME:
        return _parse_frame(data, at, seal)
    if data[kind_at] == TYPE_GROUP:
        return _parse_group(data, at, seal)
    return Flaw(f"unknown record type {data[kind_at]}")


def is_payload_intact(header: FrameHeader, payload: bytes, seal: Seal) -> bool:
    """Whether these are the bytes that were written."""
    return zlib.crc32(payload, seal.seed) == header.payload_crc


def frame_of(header: FrameHeader, names: bytes, payload: bytes) -> Frame:
    """The frame whose header and payload have been checked."""
    return Frame(
        lsn=header.lsn,
        received_at_ns=header.received_at_ns,
        digest=header.digest,
        accepted=header.accepted,
        rejected=header.rejected,
        is_last=bool(header.flags & FLAG_LAST),
        chunks=Chunks(
            kind=_KINDS[header.kind],
            tenant=TenantId(names[: header.tenant_bytes].decode()),
            project=names[header.tenant_bytes :].decode(),
            run_id=RunId(header.run_id),
            row_count=header.row_count,
            payload=payload,
        ),
        payload_crc=header.payload_crc,
    )


def frame_at(header: bytes, chunks: Chunks) -> Frame:
    """The frame of a header's first 76 bytes, which have been checked, and its chunks."""
    fields = _FRAME.unpack(header)
    return Frame(
        lsn=Lsn(fields[8]),
        received_at_ns=fields[9],
        digest=fields[11],
        accepted=fields[12],
        rejected=fields[13],
        is_last=bool(fields[3] & FLAG_LAST),
        chunks=chunks,
        payload_crc=fields[14],
    )


def _parse_group(data: bytes, at: int, seal: Seal) -> GroupHeader | Flaw:
    crc_at = at + _GROUP.size
    if len(data) < crc_at + 4:
        return Flaw("group header cut short", GROUP_HEADER_BYTES)
    if zlib.crc32(data[at:crc_at], seal.seed) != _CRC.unpack_from(data, crc_at)[0]:
        return Flaw("group header's CRC is wrong")
    _, _, frame_count, first_lsn, body_bytes, synced_bytes = _GROUP.unpack_from(data, at)
    if first_lsn + frame_count > LSN_MAX:
        return Flaw(f"group's LSN {first_lsn} is out of range")
    return GroupHeader(frame_count, Lsn(first_lsn), body_bytes, synced_bytes)


def _parse_frame(data: bytes, at: int, seal: Seal) -> FrameHeader | Flaw:
    crc_at = at + _FRAME.size
    if len(data) < crc_at + 4:
        return Flaw("frame header cut short", FRAME_HEADER_BYTES)
    fields = _FRAME.unpack_from(data, at)
    names_at = crc_at + 4
    names_end = names_at + fields[4] + fields[5]
    if len(data) < names_end:
        return Flaw("frame header cut short", names_end - at)
    crc = zlib.crc32(data[names_at:names_end], zlib.crc32(data[at:crc_at], seal.seed))
    if crc != _CRC.unpack_from(data, crc_at)[0]:
        return Flaw("frame header's CRC is wrong")
    if fields[2] not in _KINDS:
        return Flaw(f"unknown stream kind {fields[2]}")
    return FrameHeader._make(fields[2:])
