"""Looking into a shard: with a writer at work, after kills, and where bytes are damaged."""

import json

import pytest

from buffer.fs import RealFileSystem
from buffer.inspection import (
    SegmentState,
    end_of,
    frames_of,
    look_at,
    look_at_all,
    segments_of,
)
from buffer.lsn import Lsn
from schema.streams import StreamKind
from tests.buffer.delivery_rig import SHARD, Rig, logs, metrics
from tests.fakes.sink import FakeSink

FS = RealFileSystem()


@pytest.fixture
async def rig(tmp_path):
    directory = tmp_path / SHARD.hex()
    directory.mkdir()
    made = Rig(directory, FakeSink(), segment_bytes_max=8_192, log_bytes_max=2**20)
    yield made
    await made.close()


def found_in(rig, **chosen):
    return [item for one in segments_of(FS, rig.directory) for item in frames_of(FS, one, **chosen)]


def lsns(items):
    return [item.frame.lsn for item in items if item.fault is None]


def fill(rig, count=30):
    for number in range(count):
        rig.append(metrics(*range(40)) if number % 3 else logs("x" * 300))


async def test_a_log_that_is_appended_to_is_read_whole_and_nothing_in_it_changes(rig):
    fill(rig)
    before = {path.name: path.read_bytes() for path in rig.directory.iterdir() if path.is_file()}
    look = look_at(FS, rig.directory)
    assert len(look.segments) > 1
    assert look.segments[-1].state is SegmentState.LAST
    assert {one.state for one in look.segments[:-1]} == {SegmentState.SEALED}
    assert lsns(found_in(rig)) == list(range(30))
    assert end_of(FS, look.segments[-1]) == 30
    assert look.delivered == 0
    assert look.tables[StreamKind.LOGS].next_number == 1
    after = {path.name: path.read_bytes() for path in rig.directory.iterdir() if path.is_file()}
    assert before == after


async def test_frames_are_chosen_by_place_and_stream(rig):
    fill(rig)
    assert lsns(found_in(rig, first=Lsn(7), last=Lsn(9))) == [7, 8, 9]
    assert lsns(found_in(rig, kind=StreamKind.LOGS, last=Lsn(9))) == [0, 3, 6, 9]


async def test_damage_is_told_from_an_end_that_is_being_written(rig):
    fill(rig, 8)
    last = segments_of(FS, rig.directory)[-1]
    with last.path.open("ab") as file:
        file.write(b"half a group")
    [tail] = [item for item in found_in(rig) if item.fault]
    assert tail.is_tail
    first = segments_of(FS, rig.directory)[0]
    data = bytearray(first.path.read_bytes())
    data[4_096 + 44 + 40] ^= 1  # in the first frame's header
    first.path.write_bytes(data)
    damage, tail = [item for item in found_in(rig) if item.fault]
    assert (damage.is_tail, tail.is_tail) == (False, True)
    assert damage.segment.path == first.path
    assert lsns(found_in(rig)) == list(range(1, 8))


async def test_a_segment_without_a_header_and_one_cut_short_are_told(rig):
    fill(rig)
    one, two, *_ = segments_of(FS, rig.directory)
    data = one.path.read_bytes()
    one.path.write_bytes(b"\0" * 4_096 + data[4_096:])
    two.path.write_bytes(two.path.read_bytes()[:-100])
    faults = [item for item in found_in(rig) if item.fault]
    assert [item.segment.path for item in faults] == [one.path, two.path]
    assert not any(item.is_tail for item in faults)
    assert segments_of(FS, rig.directory)[0].state is SegmentState.UNREADABLE


async def test_what_goes_away_meanwhile_is_left_out(rig):
    fill(rig)
    looks = segments_of(FS, rig.directory)
    looks[0].path.unlink()
    assert list(frames_of(FS, looks[0])) == []
    assert look_at(FS, rig.directory.with_name("ab" * 16)) is None
    assert look_at(FS, rig.directory.with_name("nonsense")) is None


async def test_a_shard_without_a_readable_checkpoint_is_shown_all_the_same(rig):
    fill(rig, 3)
    path = rig.directory / "checkpoint"
    kept = path.read_bytes()
    path.write_bytes(b"\0" * len(kept))
    [look] = look_at_all(FS, rig.directory.parent)
    assert look.tables is None
    assert "neither of the two slots is whole" in look.trouble
    path.unlink()
    assert look_at(FS, rig.directory).trouble == "there is no checkpoint"
    assert json.dumps(look.delivered) == "0"
    path.write_bytes(kept)
