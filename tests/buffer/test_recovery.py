"""Opening a log after kills, torn tails, rot and planted frames."""

from __future__ import annotations

import errno
from random import Random

import pytest

from buffer.errors import Damaged, UnknownFormat
from buffer.frame import GROUP_HEADER_BYTES, Frame, Seal, encode_frames, encode_group
from buffer.lsn import Lsn
from buffer.reader import RAW_BYTES_MAX, Damage
from buffer.segment import HEADER_BLOCK_BYTES, parse_header
from schema.streams import StreamKind
from tests.buffer.log_rig import LogRig, number_of, request
from tests.fakes.disk import Crash, Cut, Fail, FakeFileSystem


@pytest.fixture
def rig() -> LogRig:
    return LogRig().open()


def group_offsets(rig: LogRig, index: int = 0) -> list[int]:
    """Where the groups of a segment begin."""
    path = rig.segments()[index]
    data = rig.fs.content(path)
    mark = parse_header(data).nonce + b"\x01"
    found, at = [], data.find(mark, HEADER_BLOCK_BYTES)
    while at >= 0:
        found.append(at)
        at = data.find(mark, at + 1)
    return found


def split(found: list[Frame | Damage]) -> tuple[list[int], list[Damage]]:
    return (
        [number_of(item) for item in found if isinstance(item, Frame)],
        [item for item in found if isinstance(item, Damage)],
    )


def test_after_a_kill_all_is_there_and_the_next_lsn_is_new(rig: LogRig) -> None:
    for number in range(5):
        rig.commit(request(number))
    rig.kill()
    assert rig.recovered.torn_bytes == 0
    assert rig.recovered.damage == ()
    rig.commit(request(5))
    assert rig.numbers() == [0, 1, 2, 3, 4, 5]
    assert [frame.lsn for frame in rig.read()] == [0, 1, 2, 3, 4, 5]


def test_a_log_that_is_opened_again_and_again_makes_no_files(rig: LogRig) -> None:
    rig.commit(request(1))
    for _ in range(20):
        rig.kill()
        rig.close()
        rig.open()
    assert len(rig.segments()) == 1
    assert rig.numbers() == [1]


@pytest.mark.parametrize("missing", [1, 30, 80, 120, 150])
def test_a_torn_last_group_is_cut(rig: LogRig, missing: int) -> None:
    rig.commit(request(1))
    rig.commit(request(2))
    path = rig.segments()[0]
    data = rig.fs.content(path)
    torn_bytes = len(data) - missing - group_offsets(rig)[-1]
    rig.fs.kill()
    rig.fs.put(path, data[:-missing])
    rig.open()
    assert rig.recovered.torn_bytes == torn_bytes
    assert rig.recovered.damage == ()
    assert len(rig.fs.content(path)) == len(data) - missing - torn_bytes
    rig.commit(request(3))
    assert rig.numbers() == [1, 3]
    assert rig.read()[-1].lsn > 1, "the torn group's LSNs are not given again"
    assert rig.kill().numbers() == [1, 3]
    assert rig.recovered.torn_bytes == 0


@pytest.mark.parametrize("hole", [0, GROUP_HEADER_BYTES + 10, GROUP_HEADER_BYTES + 110, -60, -3])
def test_a_torn_group_with_holes_is_cut_whole(rig: LogRig, hole: int) -> None:
    """A later sector may be on disk when an earlier one is not: no frame of the group counts."""
    rig.commit(request(1))
    rig.commit(request(2), request(3), request(4))
    path, start = rig.segments()[0], group_offsets(rig)[-1]
    data = bytearray(rig.fs.content(path))
    at = (start if hole >= 0 else len(data)) + hole
    data[at : at + 3] = bytes(byte ^ 0x55 for byte in data[at : at + 3])
    rig.fs.kill()
    rig.fs.put(path, bytes(data))
    rig.open()
    assert rig.numbers() == [1]
    assert rig.recovered.torn_bytes == len(data) - start


@pytest.mark.parametrize("stray", [b"", b"\1", bytes(2**20) + b"\1"])
def test_zeros_behind_the_end_were_written_ahead_and_more_than_zeros_is_torn(
    rig: LogRig, stray: bytes
) -> None:
    rig.commit(request(1))
    path = rig.segments()[0]
    size, more = len(rig.fs.content(path)), bytes(10_000) + stray
    rig.fs.put(path, rig.fs.content(path) + more)
    rig.kill()
    assert rig.numbers() == [1]
    assert rig.recovered.torn_bytes == (len(more) if stray else 0)
    assert len(rig.fs.content(path)) == size
    rig.commit(request(2))
    assert rig.kill().numbers() == [1, 2]


def test_rot_below_a_later_group_is_damage_and_what_follows_is_delivered(rig: LogRig) -> None:
    for number in range(5):
        rig.commit(request(number))
    path, offsets = rig.segments()[0], group_offsets(rig)
    rig.fs.flip(path, offsets[3] - 5)  # in the payload of request 2
    rig.kill()
    assert rig.recovered.torn_bytes == 0
    numbers, (damage,) = split(rig.read())
    assert numbers == [0, 1, 3, 4]
    assert (damage.first_lsn, damage.end_lsn) == (2, 3)
    assert damage.kind is StreamKind.METRICS
    assert damage.segment == path.name
    assert damage.offset == offsets[2] + GROUP_HEADER_BYTES
    assert damage.raw == rig.fs.content(path)[damage.offset : damage.offset + damage.length]
    assert "CRC" in damage.reason


@pytest.mark.parametrize("where", ["group", "frame"])
def test_a_damaged_header_costs_no_more_than_its_record(rig: LogRig, where: str) -> None:
    for number in range(0, 9, 3):
        rig.commit(*[request(number + k) for k in range(3)])
    path, offsets = rig.segments()[0], group_offsets(rig)
    at = offsets[1] + (20 if where == "group" else GROUP_HEADER_BYTES + 20)
    rig.fs.flip(path, at)
    rig.kill()
    numbers, (damage,) = split(rig.read())
    lost = [] if where == "group" else [3]
    assert numbers == [n for n in range(9) if n not in lost]
    assert damage.end_lsn - damage.first_lsn == len(lost)
    assert damage.first_lsn == 3
    assert damage.kind is None
    # Each table that needs the range tells of it, alike: it is set aside once.
    assert split(rig.read(StreamKind.LOGS)) == ([], [damage])


@pytest.mark.parametrize("seed", range(60))
def test_one_flipped_byte_in_a_sealed_segment_costs_at_most_one_request(seed: int) -> None:
    random = Random(seed)
    rig = LogRig().open()
    for number in range(90):
        rig.commit(request(number), request(1_000 + number))
    path = rig.segments()[0]
    rig.fs.flip(path, random.randrange(len(rig.fs.content(path))), 1 << random.randrange(8))
    rig.kill()
    numbers, damages = split(rig.read())
    wanted = [n for k in range(90) for n in (k, 1_000 + k)]
    lost = [n for n in wanted if n not in numbers]
    assert len(lost) <= 1
    assert [n for n in wanted if n in numbers] == numbers
    assert sum(d.end_lsn - d.first_lsn for d in damages) == len(lost)
    rig.commit(request(5_000))
    assert split(rig.read())[0][-1] == 5_000


def test_damage_that_is_passed_is_not_told_again(rig: LogRig) -> None:
    for number in range(5):
        rig.commit(request(number))
    rig.fs.flip(rig.segments()[0], group_offsets(rig)[3] - 5)
    rig.kill()
    rig.deliver(4)
    assert split(rig.read()) == ([4], [])


def test_a_segment_without_a_header_is_one_damage_and_the_others_are_read(rig: LogRig) -> None:
    for number in range(200):
        rig.commit(request(number))
    path, following = rig.segments()[1:3]
    size = len(rig.fs.content(path))
    for at in (0, 2_048):
        rig.fs.flip(path, at + 30)
    rig.kill()
    assert len(rig.recovered.damage) == 1
    numbers, (damage,) = split(rig.read())
    lost = [n for n in range(200) if n not in numbers]
    assert lost == list(range(damage.first_lsn, damage.end_lsn))
    assert damage.end_lsn == int(following.name.removesuffix(".seg"), 16)
    assert damage.length == size
    assert len(damage.raw) == min(size, RAW_BYTES_MAX)


def test_a_last_segment_without_a_header_does_not_give_its_lsns_again(rig: LogRig) -> None:
    for number in range(5):
        rig.commit(request(number))
    for at in (0, 2_048):
        rig.fs.flip(rig.segments()[-1], at + 30)
    rig.kill()
    rig.commit(request(9))
    numbers, (damage,) = split(rig.read())
    assert numbers == [9]
    assert damage.end_lsn >= 5
    assert rig.read()[-1].lsn >= 5


def test_one_copy_of_a_header_is_enough(rig: LogRig) -> None:
    rig.commit(request(1))
    rig.fs.flip(rig.segments()[0], 9)
    assert rig.kill().numbers() == [1]


def test_a_sealed_segment_that_lost_its_end_is_damage(rig: LogRig) -> None:
    for number in range(90):
        rig.commit(request(number))
    path = rig.segments()[0]
    start = group_offsets(rig)[-2]
    rig.fs.kill()
    rig.fs.put(path, rig.fs.content(path)[:start])  # at a group's boundary: only the length tells
    rig.open()
    numbers, (damage,) = split(rig.read())
    assert [n for n in range(90) if n not in numbers] == [damage.first_lsn, damage.first_lsn + 1]
    assert damage.end_lsn - damage.first_lsn == 2


def test_a_frame_planted_in_a_value_is_not_taken_for_one(rig: LogRig) -> None:
    """A client that knows the format plants frames under marks it made up; a header rots."""
    seal = Seal.of(b"guessed!")
    pieces: list[bytes] = []
    encode_frames(request(666), 0, 1, seal, pieces)
    body = b"".join(pieces)
    planted = encode_group(1, 1, len(body), 0, seal) + body
    honest = request(1)
    chunk = honest.chunks[0]
    hostile = type(honest)(
        (type(chunk)(chunk.kind, chunk.tenant, chunk.project, chunk.run_id, 1, planted * 10),),
        honest.digest,
        1,
        0,
    )
    rig.commit(request(0))
    rig.commit(hostile)
    rig.commit(request(2))
    rig.fs.flip(rig.segments()[0], group_offsets(rig)[1] + GROUP_HEADER_BYTES + 20)
    rig.kill()
    numbers, (damage,) = split(rig.read())
    assert numbers == [0, 2]
    assert (damage.first_lsn, damage.end_lsn) == (1, 2)


def test_a_frame_of_another_segment_is_not_taken_for_one(rig: LogRig) -> None:
    for number in range(90):
        rig.commit(request(number))
    first, second = rig.segments()[:2]
    data = rig.fs.content(first)
    foreign = data[group_offsets(rig)[0] :]
    rig.fs.put(second, rig.fs.content(second)[:HEADER_BLOCK_BYTES] + foreign)
    rig.kill()
    numbers, damages = split(rig.read())
    assert len(numbers) == len(set(numbers))
    assert damages


def test_a_length_that_lies_is_no_reason_to_allocate(rig: LogRig) -> None:
    """A header with a right CRC and an absurd length: only we could write it; it is checked."""
    rig.commit(request(1))
    path = rig.segments()[0]
    header = parse_header(rig.fs.content(path))
    lie = encode_group(1, 1, 2**60, 0, header.seal)
    rig.fs.put(path, rig.fs.content(path) + lie)
    rig.kill()
    assert rig.numbers() == [1]
    assert rig.recovered.torn_bytes == len(lie)


def test_an_unknown_version_is_refused_by_name(rig: LogRig) -> None:
    rig.commit(request(1))
    path = rig.segments()[0]
    data = bytearray(rig.fs.content(path))
    for at in (0, 2_048):
        data[at + 8] = 9
    rig.fs.put(path, bytes(data))
    with pytest.raises(UnknownFormat, match="version 9; this release knows 1"):
        rig.kill()


def test_a_segment_of_another_shard_is_refused(rig: LogRig) -> None:
    rig.commit(request(1))
    path = rig.segments()[0]
    rig.fs.put(path.with_name("00000000000000ff.seg"), rig.fs.content(path))
    with pytest.raises(Damaged, match="a file was moved here"):
        rig.kill()


def test_a_segment_that_was_being_made_is_removed(rig: LogRig) -> None:
    rig.fs.put(rig.directory / "00000000000000ff.seg.tmp", b"half")
    rig.kill()
    assert not [n for n in rig.fs.list_dir(rig.directory) if n.endswith(".tmp")]


@pytest.mark.parametrize("seed", range(5))
def test_recovery_syncs_every_file_before_it_is_read(rig: LogRig, seed: int) -> None:
    """A kill leaves unsynced bytes in the cache; what is delivered from there must be durable."""
    rig.commit(request(1))
    rig.fs.fail_next(Cut(), after=1)
    with pytest.raises(Crash):
        rig.commit(request(2))
    assert rig.kill().numbers() == [1, 2]
    rig.fs.power_cut(Random(seed))
    assert rig.open().numbers() == [1, 2]


def test_of_groups_that_shared_one_sync_none_behind_a_torn_one_counts() -> None:
    """For lack of room each request was a group by itself; the machine went before their sync."""
    rig = LogRig(fs=FakeFileSystem(capacity=40_000)).open()
    rig.commit(request(1))
    # A new segment takes 5 calls, the group 2, then the requests 1, 2, 1 and 1.
    rig.fs.fail_next(Cut(), after=12)
    with pytest.raises(Crash):
        rig.commit(request(2), request(3, size=60_000), request(4), request(5))
    rig.kill()
    assert rig.numbers() == [1, 2, 4, 5]
    rig.close()

    rig = LogRig(fs=FakeFileSystem(capacity=40_000)).open()
    rig.commit(request(1))
    rig.fs.fail_next(Cut(), after=12)
    with pytest.raises(Crash):
        rig.commit(request(2), request(3, size=60_000), request(4), request(5))
    rig.fs.kill()
    starts = group_offsets(rig, 1)
    rig.fs.flip(rig.segments()[1], starts[2] - 5)
    size = len(rig.fs.content(rig.segments()[1]))
    rig.open()
    assert split(rig.read()) == ([1, 2], [])
    assert rig.recovered.torn_bytes == size - starts[1]


def test_recovery_reads_only_the_headers_of_what_is_delivered(rig: LogRig) -> None:
    for number in range(200):
        rig.commit(request(number))
    rig.deliver(200)
    rig.clock.advance(3_600)
    opened: list[int] = []
    real = rig.fs.pread
    rig.fs.pread = lambda fd, count, offset: opened.append(count) or real(fd, count, offset)
    before = len(rig.fs.trace)
    rig.kill()
    assert len(rig.segments()) > 3
    assert len([count for count in opened if count not in {4_096, 8_192}]) <= 3  # the last one
    syncs = [line for line in rig.fs.trace[before:] if line.startswith("fdatasync")]
    assert len(syncs) == 1, "the checkpoint's alone"


def test_next_lsn_is_above_the_checkpoint_even_without_a_log(rig: LogRig) -> None:
    rig.commit(request(1))
    rig.deliver(77)
    rig.fs.unlink(rig.segments()[0])
    rig.kill()
    rig.commit(request(2))
    assert rig.read()[0].lsn == 77


def test_repeats_survive_a_restart_within_the_window(rig: LogRig) -> None:
    rig.commit(request(1, frames=3))
    rig.clock.advance(500)
    rig.commit(request(2))
    rig.kill()
    assert [(r.digest[0], r.accepted, r.rejected) for r in rig.recovered.remembered] == [
        (1, 9, 1),
        (2, 3, 2),
    ]
    rig.clock.advance(200)
    rig.kill()
    assert [r.digest[0] for r in rig.recovered.remembered] == [2]


def test_repeats_are_found_across_segments_oldest_first(rig: LogRig) -> None:
    for number in range(150):
        rig.commit(request(number))
    rig.kill()
    assert [r.digest[0] for r in rig.recovered.remembered] == list(range(150))


def test_a_sync_that_fails_at_recovery_is_raised(rig: LogRig) -> None:
    rig.commit(request(1))
    rig.fs.kill()
    rig.fs.fail_next(Fail(errno.EIO), after=2)
    with pytest.raises(OSError):
        rig.open()


def test_an_orderly_end_makes_rot_in_the_last_group_damage(rig: LogRig) -> None:
    rig.commit(request(1))
    rig.commit(request(2))
    rig.close()
    rig.open()
    rig.fs.flip(rig.segments()[0], group_offsets(rig)[2] - 5)
    rig.kill()
    numbers, (damage,) = split(rig.read())
    assert numbers == [1]
    assert (damage.first_lsn, damage.end_lsn) == (Lsn(1), Lsn(2))
    assert rig.recovered.torn_bytes == 0
