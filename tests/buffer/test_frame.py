"""The codec: golden bytes, round trips, and no belief in anything unproved."""

from __future__ import annotations

import hashlib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from buffer.checkpoint import (
    SLOT_BYTES,
    Bisection,
    Checkpoint,
    Pending,
    TableState,
)
from buffer.disk import InlineDisk
from buffer.frame import (
    FRAME_HEADER_BYTES,
    GROUP_HEADER_BYTES,
    Flaw,
    FrameHeader,
    GroupHeader,
    Seal,
    Submission,
    encode_frames,
    encode_group,
    frame_of,
    framed_bytes,
    is_payload_intact,
    parse_record,
)
from buffer.lsn import Lsn
from buffer.segment import (
    HEADER_BLOCK_BYTES,
    Predecessor,
    SegmentHeader,
    encode_header,
    first_lsn_of,
    parse_header,
    segment_name,
)
from schema.columns import Chunks
from schema.ids import BlockNumber, RunId, TenantId
from schema.streams import StreamKind
from tests.fakes.disk import FakeFileSystem

SEAL = Seal.of(b"\x01\x02\x03\x04\x05\x06\x07\x08")

GOLDEN_GROUP = "01020304050607080100000001000000070000000000000067000000000000000010000000000000"
GOLDEN_FRAME = (
    "01020304050607080202010004000f000400000002000000070000000000000015cd5b0700000000"
    "2a00000000000000000102030405060708090a0b0c0d0e0f0200000001000000"
)


def golden() -> Submission:
    chunks = Chunks(
        StreamKind.LOGS, TenantId("acme"), "projekt-üöä-1"[:12], RunId(42), 2, b"\1\2\3\4"
    )
    return Submission((chunks,), bytes(range(16)), 2, 1)


def encoded(submission: Submission, lsn: int = 7) -> bytes:
    pieces: list[bytes] = []
    encode_frames(submission, 123_456_789, lsn, SEAL, pieces)
    return b"".join(pieces)


def test_golden_bytes_of_a_group_and_its_frame() -> None:
    body = encoded(golden())
    assert len(body) == framed_bytes(golden()) == 0x67
    group = encode_group(1, 7, len(body), 4_096, SEAL)
    assert group[:-4].hex() == GOLDEN_GROUP
    assert group[-4:].hex() == "6b9c9cc8"
    assert body[:72].hex() == GOLDEN_FRAME
    assert body[72:80].hex() == "38bdfa9ff6e7a879"
    assert body[80:] == "acmeprojekt-üöä-".encode() + b"\1\2\3\4"


def test_golden_bytes_of_a_segments_header() -> None:
    header = SegmentHeader(
        bytes(range(16)),
        Lsn(0x1234),
        SEAL.mark,
        1_700_000_000_000_000_000,
        Predecessor(Lsn(0x1000), 70_000, is_fenced=True),
    )
    block = encode_header(header)
    assert len(block) == HEADER_BLOCK_BYTES
    assert block[:2_048] == block[2_048:]
    assert block[:76].hex() == (
        "434841524f4e574c0100000003000000000102030405060708090a0b0c0d0e0f"
        "3412000000000000010203040506070800002a36fe9c9717"
        "00100000000000007011010000000000a403ff92"
    )
    assert parse_header(block) == header


def test_golden_bytes_of_a_checkpoint() -> None:
    fs = FakeFileSystem()
    fs.make_dir(Path("/s"))
    Checkpoint.create(fs, Path("/s"), InlineDisk(), bytes(range(16)))
    data = fs.content(Path("/s/checkpoint"))
    assert len(data) == 2 * SLOT_BYTES
    assert hashlib.sha256(data).hexdigest() == (
        "fbe0747a431fc347662413e03e162bbd24bb096717d476a15ab7eb7e6301ecf0"
    )


async def test_golden_bytes_of_a_checkpoints_table() -> None:
    fs = FakeFileSystem()
    fs.make_dir(Path("/s"))
    checkpoint = Checkpoint.create(fs, Path("/s"), InlineDisk(), bytes(range(16)))
    path = Bisection(next_row=1, try_end=2, bad_end=3, inserts=4, bad_rows=5, bad_frames=6)
    pending = Pending(Lsn(7), Lsn(8), 9, BlockNumber(10), 11, path)
    await checkpoint.store(StreamKind.METRICS, TableState(Lsn(12), 13, pending))
    slot = fs.content(Path("/s/checkpoint"))[SLOT_BYTES:]
    assert slot[:40].hex() == (
        "434841524f4e435002000000040000000300000000000000000102030405060708090a0b0c0d0e0f"
    )
    assert slot[40:132].hex() == (
        "010700000b0000000c000000000000000d00000000000000"
        "0700000000000000080000000000000009000000000000000a00000000000000"
        "010000000000000002000000000000000300000000000000040000000500000006000000"
    )


NAMES = st.text(max_size=20).filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text))
CHUNKS = st.builds(
    Chunks,
    kind=st.sampled_from(list(StreamKind)),
    tenant=NAMES,
    project=NAMES,
    run_id=st.integers(0, 2**64 - 1),
    row_count=st.integers(0, 2**32 - 1),
    payload=st.binary(max_size=300),
)
SUBMISSIONS = st.builds(
    Submission,
    chunks=st.lists(CHUNKS, min_size=1, max_size=3).map(tuple),
    digest=st.binary(min_size=16, max_size=16),
    accepted=st.integers(0, 2**32 - 1),
    rejected=st.integers(0, 2**32 - 1),
)


@given(SUBMISSIONS, st.integers(0, 2**62), st.binary(max_size=9))
def test_every_frame_round_trips(submission: Submission, lsn: int, before: bytes) -> None:
    data = before + encoded(submission, lsn)
    assert len(data) - len(before) == framed_bytes(submission)
    at = len(before)
    for index, chunks in enumerate(submission.chunks):
        header = parse_record(data, at, SEAL)
        assert isinstance(header, FrameHeader)
        payload_at = at + header.header_bytes
        payload = data[payload_at : payload_at + header.payload_bytes]
        assert is_payload_intact(header, payload, SEAL)
        frame = frame_of(header, data[at + FRAME_HEADER_BYTES : payload_at], payload)
        assert frame.chunks == chunks
        assert frame.lsn == lsn + index
        assert frame.is_last == (index == len(submission.chunks) - 1)
        assert (frame.accepted, frame.rejected) == (submission.accepted, submission.rejected)
        at += header.frame_bytes
    assert at == len(data)


@given(
    st.integers(0, 2**32 - 1), st.integers(0, 2**60), st.integers(0, 2**63), st.integers(0, 2**63)
)
def test_every_group_header_round_trips(count: int, first: int, body: int, synced: int) -> None:
    data = encode_group(count, first, body, synced, SEAL)
    assert len(data) == GROUP_HEADER_BYTES
    assert parse_record(data, 0, SEAL) == GroupHeader(count, Lsn(first), body, synced)


@given(SUBMISSIONS, st.data())
def test_one_flipped_bit_of_a_header_is_no_record(
    submission: Submission, data: st.DataObject
) -> None:
    frames = bytearray(encoded(submission))
    header = parse_record(bytes(frames), 0, SEAL)
    assert isinstance(header, FrameHeader)
    bit = data.draw(st.integers(0, header.header_bytes * 8 - 1))
    frames[bit // 8] ^= 1 << bit % 8
    assert isinstance(parse_record(bytes(frames), 0, SEAL), Flaw)


@given(SUBMISSIONS, st.data())
def test_a_header_cut_short_is_no_record(submission: Submission, data: st.DataObject) -> None:
    frames = encoded(submission)
    header = parse_record(frames, 0, SEAL)
    assert isinstance(header, FrameHeader)
    cut = data.draw(st.integers(0, header.header_bytes - 1))
    flaw = parse_record(frames[:cut], 0, SEAL)
    assert isinstance(flaw, Flaw)
    assert flaw.needs_bytes > cut


@given(SUBMISSIONS)
def test_a_record_under_another_seal_is_no_record(submission: Submission) -> None:
    assert isinstance(parse_record(encoded(submission), 0, Seal.of(b"\0" * 8)), Flaw)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_no_record(noise: bytes) -> None:
    assert isinstance(parse_record(noise, 0, SEAL), Flaw)
    assert isinstance(parse_record(SEAL.mark + noise, 0, SEAL), Flaw)


@given(st.integers(0, 2**63 - 1))
def test_a_segments_name_says_its_first_lsn(lsn: int) -> None:
    assert first_lsn_of(segment_name(lsn)) == lsn


def test_other_names_are_no_segments() -> None:
    for name in ("lock", "checkpoint", "0.seg", "00000000000000FF.seg", "x" * 16 + ".seg", ".seg"):
        assert first_lsn_of(name) is None
    assert first_lsn_of("ffffffffffffffff.seg") is None
    assert first_lsn_of(segment_name(5) + ".tmp") is None
