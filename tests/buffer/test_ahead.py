"""Zeros ahead of the log's end: overwritten or cut off, and never taken for anything else."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from buffer.errors import Broken, OutcomeUnknown
from buffer.frame import Submission
from buffer.fs import RealFileSystem
from buffer.inspection import frames_of, look_at_all
from buffer.lsn import Lsn
from buffer.segment import HEADER_BLOCK_BYTES, SegmentHeader, SegmentWriter
from schema.ids import RunId, TenantId
from schema.lines import chunks_of_lines
from schema.names import name_shape
from tests.buffer.log_rig import ROOT, SMALL, LogRig, request
from tests.fakes.disk import Fail, Short

if TYPE_CHECKING:
    from pathlib import Path

    from buffer.fs import Fd

AHEAD = 4_000
ONE_GROUP = 300
"""About what a small request takes, of which zeros are written for eight and more."""


@pytest.fixture
def rig() -> LogRig:
    options = replace(SMALL, segment_bytes_max=20_000, ahead_bytes=AHEAD)
    return LogRig(options=options).open()


def rows(number: int) -> Submission:
    """A request whose payload can be read."""
    chunks = chunks_of_lines(
        *(TenantId("t"), "p", RunId(1), (1764423221123,), (0,), (name_shape(("a", "b")),)),
        (1.0, 2.0),
    )
    return Submission((chunks,), number.to_bytes(16, "little"), 2, 0)


def size_of(rig: LogRig) -> int:
    return len(rig.fs.content(rig.segments()[-1]))


def good_of(rig: LogRig) -> int:
    return rig.log.statistics().bytes


def test_small_groups_find_the_file_as_long_as_they_need_it(rig: LogRig) -> None:
    rig.commit(request(0))
    size = size_of(rig)
    assert size == good_of(rig) + AHEAD
    number = 0
    while good_of(rig) + ONE_GROUP < size:
        number += 1
        rig.commit(request(number))
        assert size_of(rig) == size
    assert number > 8
    while good_of(rig) <= size:
        number += 1
        rig.commit(request(number))
    assert size_of(rig) == good_of(rig) + AHEAD
    assert rig.kill().numbers() == list(range(number + 1))
    assert rig.recovered.torn_bytes == 0


def test_no_more_is_written_ahead_than_a_segment_takes() -> None:
    rig = LogRig(options=replace(SMALL, segment_bytes_max=8_192, ahead_bytes=2**20)).open()
    rig.commit(request(0))
    assert size_of(rig) == good_of(rig) + 8_192


def test_large_groups_have_nothing_written_ahead(rig: LogRig) -> None:
    rig.commit(request(0, size=AHEAD // 8))
    assert size_of(rig) == good_of(rig)
    rig.commit(request(1))
    assert size_of(rig) == good_of(rig) + AHEAD
    rig.commit(request(2, size=2_000))
    rig.commit(request(3, size=3_000))
    assert size_of(rig) == good_of(rig)
    assert rig.kill().numbers() == [0, 1, 2, 3]


def test_a_segment_that_is_sealed_or_closed_keeps_none(rig: LogRig) -> None:
    for number in range(300):
        rig.commit(request(number))
    sizes = [len(rig.fs.content(path)) for path in rig.segments()]
    assert len(sizes) > 2
    assert 0 < sum(sizes) - good_of(rig) <= AHEAD, "only the last one's"
    assert all(rig.fs.content(path)[-1] for path in rig.segments()[:-1])
    rig.close()
    rig.open()
    assert sum(len(rig.fs.content(path)) for path in rig.segments()) == good_of(rig)
    assert rig.numbers() == list(range(300))


@pytest.mark.parametrize("fault", [Fail(errno.ENOSPC), Fail(errno.EDQUOT), Short(700)])
def test_no_room_for_zeros_refuses_nobody(rig: LogRig, fault: Fail | Short) -> None:
    rig.commit(request(0, size=2_000))  # the segment is there
    rig.fs.fail_next(fault, after=1)  # its group is written, the zeros are not
    assert not rig.commit(request(1)).failures
    assert size_of(rig) == good_of(rig)
    assert not rig.commit(request(2)).failures
    assert size_of(rig) == good_of(rig), "not tried again in this segment"
    assert rig.kill().numbers() == [0, 1, 2]
    assert rig.recovered.torn_bytes == 0


def test_zeros_that_cannot_be_cut_off_again_are_read_past(rig: LogRig) -> None:
    rig.commit(request(0, size=2_000))
    rig.fs.fail_next(Short(700), after=1)
    rig.fs.fail_next(Fail(errno.EIO), after=2)  # the cut
    assert not rig.commit(request(1)).failures
    assert not rig.commit(request(2)).failures
    assert rig.kill().numbers() == [0, 1, 2]
    assert rig.recovered.torn_bytes == 0


def test_a_disk_that_is_sick_at_the_zeros_fences_the_segment(rig: LogRig) -> None:
    rig.commit(request(0, size=2_000))
    rig.fs.fail_next(Fail(errno.EIO), after=1)
    (failure,) = rig.commit(request(1)).failures.values()
    assert isinstance(failure, OutcomeUnknown)
    assert len(rig.segments()) == 2
    assert not rig.commit(request(2)).failures
    assert rig.kill().numbers() == [0, 2]


def test_a_segment_that_cannot_be_cut_at_its_end_is_still_read(rig: LogRig) -> None:
    number = 1
    rig.commit(request(number))
    while len(rig.segments()) < 2:
        number += 1
        rig.fs.fail_next(Fail(errno.EIO), after=5)  # of a rotation, the cut of the former one
        try:
            rig.commit(request(number))
        except Broken:
            pytest.fail("a former segment's zeros are no reason to stop")
        rig.fs.faults.clear()
    assert rig.kill().numbers() == list(range(1, number + 1))


@pytest.mark.parametrize("torn_at", [3, 40, 120, 150])
def test_a_group_that_is_torn_ahead_of_zeros_is_cut_off_and_told(rig: LogRig, torn_at: int) -> None:
    rig.commit(request(0))
    good = good_of(rig)
    rig.commit(request(1))
    path = rig.segments()[0]
    content = bytearray(rig.fs.content(path))
    end = good_of(rig)
    content[good + torn_at : end] = bytes(end - good - torn_at)
    rig.fs.put(path, bytes(content))
    rig.kill()
    assert rig.numbers() == [0]
    assert rig.recovered.torn_bytes == len(content) - good
    rig.commit(request(2))
    assert rig.kill().numbers() == [0, 2]


def test_who_looks_at_a_log_in_use_is_not_told_of_zeros(rig: LogRig) -> None:
    rig.commit(request(0))
    rig.commit(request(1))
    (shard,) = look_at_all(rig.fs, ROOT)
    (segment,) = shard.segments
    assert [one.frame is not None for one in frames_of(rig.fs, segment)] == [True, True]


def test_who_looks_while_the_log_goes_on_is_told_of_what_came(rig: LogRig) -> None:
    rig.commit(rows(0))
    (shard,) = look_at_all(rig.fs, ROOT)
    (segment,) = shard.segments
    looking = frames_of(rig.fs, segment)
    walked = [next(looking)]
    rig.commit(rows(1))  # where it has seen zeros already
    walked += looking
    assert [(one.frame is not None, one.fault) for one in walked] == [(True, None)] * 2


def test_who_looks_while_a_group_is_half_written_is_not_told_of_damage(
    rig: LogRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ahead of zeros a read may meet the middle of a write: the file was as long before it."""
    rig.commit(*map(rows, range(2)))
    (segment,) = look_at_all(rig.fs, ROOT)[0].segments
    rig.commit(*map(rows, range(2, 4)))
    size, half = size_of(rig), good_of(rig) - 3
    whole = rig.fs.pread

    def torn_once(fd: Fd, count: int, offset: int) -> bytes:
        monkeypatch.undo()
        data = whole(fd, count, offset)[: half - offset].ljust(min(count, size - offset), b"\0")
        rig.commit(rows(4))  # by now it is whole, and the next group says that it is synced
        return data

    monkeypatch.setattr(rig.fs, "pread", torn_once)
    walked = list(frames_of(rig.fs, segment))
    assert [(one.frame is not None, one.fault) for one in walked] == [(True, None)] * 5
    assert [one.frame.lsn for one in walked if one.frame is not None] == list(range(5))


def test_damage_in_a_log_in_use_is_told(rig: LogRig) -> None:
    rig.commit(rows(0))
    rig.fs.flip(rig.segments()[0], good_of(rig) - 3)
    rig.commit(rows(1))
    (segment,) = look_at_all(rig.fs, ROOT)[0].segments
    told = [(one.fault is None, one.is_tail) for one in frames_of(rig.fs, segment)]
    assert told == [(False, False), (True, False)]


def test_on_a_real_disk_the_file_is_as_long_as_told(tmp_path: Path) -> None:
    header = SegmentHeader(bytes(16), Lsn(0), b"12345678", 0, None)
    writer = SegmentWriter.create(RealFileSystem(), tmp_path, header, ahead_bytes=2**20)
    writer.write_group([], 0, 0, 0)
    size = writer.path.stat().st_size
    assert size == writer.written_bytes + 2**20
    writer.sync()
    blocks = writer.path.stat().st_blocks * 512
    assert blocks >= size - HEADER_BLOCK_BYTES, "zeros are written, not left out"
    writer.cut()
    assert writer.path.stat().st_size == writer.written_bytes
    writer.close()
