"""The log as its users see it: commit, read, rotate, fail, release."""

from __future__ import annotations

import asyncio
import errno
from itertools import pairwise

import pytest

from buffer.errors import Broken, LogFull, OutcomeUnknown
from buffer.frame import Frame
from buffer.lsn import Lsn
from buffer.options import BufferOptions
from buffer.segment import parse_header
from schema.streams import StreamKind
from tests.buffer.log_rig import EVERYTHING, LogRig, request
from tests.fakes.disk import Fail, FakeFileSystem, Short


@pytest.fixture
def rig() -> LogRig:
    return LogRig().open()


def test_what_is_committed_is_read_back_whole(rig: LogRig) -> None:
    wanted = request(1, frames=2)
    outcome = rig.commit(wanted)
    assert not outcome.failures
    assert outcome.frames == 2
    frames = rig.read()
    assert [frame.chunks for frame in frames] == list(wanted.chunks)
    assert [frame.is_last for frame in frames] == [False, True]
    assert {frame.digest for frame in frames} == {wanted.digest}
    assert {(frame.accepted, frame.rejected) for frame in frames} == {(6, 1)}
    assert [frame.lsn for frame in frames] == [0, 1]
    assert frames[0].received_at_ns == rig.clock.wall_ns()


def test_one_group_is_one_write_and_one_sync(rig: LogRig) -> None:
    rig.commit(request(1))
    before = len(rig.fs.trace)
    rig.commit(*[request(number) for number in range(2, 12)])
    calls = [line.split()[0] for line in rig.fs.trace[before:]]
    assert calls == ["pwritev", "fdatasync"]


def test_a_group_of_more_pieces_than_a_vector_takes_is_still_one_write(rig: LogRig) -> None:
    rig.commit(request(0))
    before = len(rig.fs.trace)
    rig.commit(*[request(number, size=8, frames=2) for number in range(1, 500)])
    writes = [line for line in rig.fs.trace[before:] if line.startswith("pwritev")]
    assert len(writes) == 2  # the segment that this rotates to, and the group
    assert rig.numbers()[-1] == 499


def test_a_reader_sees_only_its_table_and_steps_over_the_others(rig: LogRig) -> None:
    kinds = (StreamKind.METRICS, StreamKind.LOGS)
    rig.commit(request(1, frames=4, kinds=kinds), request(2, kinds=(StreamKind.FILES,)))
    assert rig.numbers(StreamKind.METRICS) == [1, 1]
    assert rig.numbers(StreamKind.LOGS) == [1, 1]
    reader = rig.log.reader(Lsn(0), StreamKind.DATA)
    assert reader.read(EVERYTHING, EVERYTHING) == []
    assert reader.lsn == 5


def test_a_reader_goes_on_where_it_was_when_the_log_grows(rig: LogRig) -> None:
    reader = rig.log.reader(Lsn(0), StreamKind.METRICS)
    for number in range(300):
        rig.commit(request(number))
        (frame,) = reader.read(EVERYTHING, EVERYTHING)
        assert frame.lsn == number
    assert len(rig.segments()) > 3
    reader.close()


def test_a_read_is_bounded_in_rows_and_in_bytes(rig: LogRig) -> None:
    rig.commit(*[request(number, size=100) for number in range(9)])
    reader = rig.log.reader(Lsn(0), StreamKind.METRICS)
    assert len(reader.read(4, EVERYTHING)) == 2
    assert reader.lsn == 2
    block = 3 * 3 * 9 * 8 + 3 * 100  # rows of nine columns, and payloads
    assert len(reader.read(EVERYTHING, block)) == 3
    assert len(reader.read(EVERYTHING, EVERYTHING)) == 4
    reader.close()


@pytest.mark.parametrize("start", range(0, 120, 7))
def test_a_reader_starts_at_any_lsn(rig: LogRig, start: int) -> None:
    for number in range(40):
        rig.commit(*[request(3 * number + k) for k in range(3)])
    assert rig.numbers(from_lsn=start) == list(range(start, 120))


def test_segments_rotate_and_say_where_the_former_one_ends(rig: LogRig) -> None:
    for number in range(200):
        rig.commit(request(number))
    segments = rig.segments()
    assert len(segments) > 2
    assert all(len(rig.fs.content(path)) <= rig.options.segment_bytes_max for path in segments)
    for path, successor in pairwise(segments):
        header = parse_header(rig.fs.content(successor))
        assert header.predecessor.first_lsn == parse_header(rig.fs.content(path)).first_lsn
        assert header.predecessor.good_bytes == len(rig.fs.content(path))
        assert not header.predecessor.is_fenced


def test_a_request_larger_than_a_segment_has_one_for_itself(rig: LogRig) -> None:
    rig.commit(request(1))
    rig.commit(request(2, size=50_000))
    rig.commit(request(3))
    assert rig.numbers() == [1, 2, 3]
    assert len(rig.segments()) == 3


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_no_room_refuses_the_request_and_leaves_nothing_of_it(rig: LogRig, error: int) -> None:
    rig.commit(request(1))
    size = len(rig.fs.content(rig.segments()[0]))
    rig.fs.fail_next(Fail(error))
    outcome = rig.commit(request(2))
    assert isinstance(outcome.failures[0], LogFull)
    assert len(rig.fs.content(rig.segments()[0])) == size
    rig.commit(request(3))
    assert rig.numbers() == [1, 3]
    assert rig.kill().numbers() == [1, 3]


def test_a_short_write_is_no_room_and_is_cut_back(rig: LogRig) -> None:
    rig.commit(request(1))
    size = len(rig.fs.content(rig.segments()[0]))
    rig.fs.fail_next(Short(70))
    outcome = rig.commit(request(2))
    assert len(rig.fs.content(rig.segments()[0])) == size
    assert isinstance(outcome.failures[0], LogFull)
    rig.commit(request(3))
    assert rig.numbers() == [1, 3]


def test_lack_of_room_for_one_request_does_not_fail_its_neighbours() -> None:
    rig = LogRig(fs=FakeFileSystem(capacity=40_000)).open()
    rig.commit(request(1))
    outcome = rig.commit(request(2), request(3, size=60_000), request(4), request(5, size=60_000))
    assert sorted(outcome.failures) == [1, 3]
    assert all(isinstance(failure, LogFull) for failure in outcome.failures.values())
    assert rig.numbers() == [1, 2, 4]
    assert rig.kill().numbers() == [1, 2, 4]


def test_no_room_for_a_new_segment_refuses_and_recovers() -> None:
    fs = FakeFileSystem()
    rig = LogRig(fs=fs).open()
    for number in range(20):
        rig.commit(request(number))
    before = len(rig.segments())
    fs.capacity = fs.used_bytes
    outcome = rig.commit(request(20, size=5_000))
    assert isinstance(outcome.failures[0], LogFull)
    fs.capacity = None
    assert not rig.commit(request(21)).failures
    assert len(rig.segments()) == before + 1
    assert rig.numbers() == [*range(20), 21]
    assert rig.kill().numbers() == [*range(20), 21]


def test_after_a_failed_rotation_the_old_segment_takes_nothing_more(rig: LogRig) -> None:
    """The successor may be on disk although making it failed, and says where the old one ends."""
    for number in range(20):
        rig.commit(request(number))
    before = len(rig.segments())
    rig.fs.fail_next(Fail(errno.EIO), after=4)  # create, write, sync, rename, the directory's sync
    assert rig.commit(request(20, size=5_000)).failures
    assert rig.fs.trace[-1].startswith("unlink")
    assert not rig.commit(request(21)).failures
    assert len(rig.segments()) == before + 1
    assert rig.kill().numbers() == [*range(20), 21]


@pytest.mark.parametrize("after", [0, 1], ids=["write", "sync"])
def test_a_failed_write_or_sync_fences_the_segment_and_the_outcome_is_unknown(
    rig: LogRig, after: int
) -> None:
    rig.commit(request(1))
    good = len(rig.fs.content(rig.segments()[0]))
    rig.fs.fail_next(Fail(errno.EIO), after=after)
    outcome = rig.commit(request(2), request(3))
    assert [type(failure) for failure in outcome.failures.values()] == [OutcomeUnknown] * 2
    fenced, successor = rig.segments()
    header = parse_header(rig.fs.content(successor))
    assert header.predecessor.is_fenced
    assert header.predecessor.good_bytes == good
    rig.commit(request(4))
    frames = rig.read()
    assert [frame.digest[0] for frame in frames] == [1, 4]
    assert frames[-1].lsn >= 3, "the failed group's LSNs are not given again"
    # What the cache still holds of the failed group is void, also for a new process.
    rig.kill()
    assert rig.numbers() == [1, 4]
    assert {one.digest[0] for one in rig.recovered.remembered} == {1, 4}
    assert fenced in rig.segments()


def test_a_fenced_segment_is_never_synced_again(rig: LogRig) -> None:
    rig.commit(request(1))
    rig.fs.fail_next(Fail(errno.EIO), after=1)
    rig.commit(request(2))
    before = len(rig.fs.trace)
    fenced_fd = next(line for line in rig.fs.trace if line.startswith("pwritev"))
    rig.commit(request(3))
    rig.close()
    assert fenced_fd.replace("pwritev", "fdatasync") not in rig.fs.trace[before:]


def test_when_fencing_fails_the_log_is_broken_and_stays_so(rig: LogRig) -> None:
    rig.commit(request(1))
    rig.fs.fail_next(Fail(errno.EIO), after=1)
    rig.fs.fail_next(Fail(errno.EIO), after=2)
    with pytest.raises(Broken, match="successor could not be made"):
        rig.commit(request(2))
    with pytest.raises(Broken):
        rig.commit(request(3))
    assert rig.numbers() == [1]


def test_two_fences_in_a_row_leave_what_was_good_before_each(rig: LogRig) -> None:
    rig.commit(request(1))
    for number in (2, 3):
        rig.fs.fail_next(Fail(errno.EIO), after=1)
        rig.commit(request(number))
    rig.commit(request(4))
    assert len(rig.segments()) == 3
    assert rig.numbers() == [1, 4]
    assert rig.kill().numbers() == [1, 4]


def test_release_deletes_what_every_table_is_past(rig: LogRig) -> None:
    for number in range(200):
        rig.commit(request(number))
    rig.deliver(100, (StreamKind.METRICS,))
    assert rig.release() == 0
    rig.deliver(100)
    assert rig.release() > 0
    assert rig.numbers(from_lsn=100) == list(range(100, 200))
    assert rig.log.statistics().oldest_lsn <= 100


def test_delivered_segments_stay_for_the_repeat_window(rig: LogRig) -> None:
    for number in range(100):
        rig.commit(request(number))
    rig.deliver(100)
    assert rig.release(keep=True) == 0
    assert rig.log.statistics().kept_bytes > 0
    rig.clock.advance(601)
    assert rig.release(keep=True) > 0
    assert rig.log.statistics().kept_bytes == 0


def test_the_kept_log_is_bounded_in_bytes() -> None:
    options = BufferOptions(segment_bytes_max=8_192, log_bytes_max=160_000, disk_free_bytes_min=0)
    rig = LogRig(options=options).open()
    for number in range(200):
        rig.commit(request(number))
    rig.deliver(200)
    rig.release(keep=True)
    assert 0 < rig.log.statistics().kept_bytes <= 20_000


def test_short_of_room_the_active_segment_goes_too_when_it_is_delivered(rig: LogRig) -> None:
    rig.commit(request(1, size=7_000))
    rig.deliver(1)
    assert rig.release(keep=False) == 1
    assert rig.log.statistics().bytes < 5_000
    assert not rig.commit(request(2)).failures
    assert rig.kill().numbers() == [2]


def test_a_reader_of_a_table_that_is_caught_up_outlives_the_segment(rig: LogRig) -> None:
    reader = rig.log.reader(Lsn(0), StreamKind.LOGS)
    rig.commit(request(1, size=7_000))
    before = rig.fs.open_count
    assert reader.read(EVERYTHING, EVERYTHING) == []
    assert rig.fs.open_count == before, "a deleted file that is open keeps its room"
    rig.deliver(1)
    rig.release(keep=False)
    rig.commit(request(2, kinds=(StreamKind.LOGS,)))
    assert [frame.lsn for frame in reader.read(EVERYTHING, EVERYTHING)] == [1]
    reader.close()


def test_a_read_error_loses_no_frame(rig: LogRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.commit(request(1), request(2, size=400_000), request(3))
    reader = rig.log.reader(Lsn(0), StreamKind.METRICS)
    real, failing = rig.fs.pread, [True]

    def pread(fd: object, count: int, offset: int) -> bytes:
        if count == 400_000 and failing[0]:
            raise OSError(errno.EIO, "sick")
        return real(fd, count, offset)

    monkeypatch.setattr(rig.fs, "pread", pread)
    assert [frame.lsn for frame in reader.read(EVERYTHING, EVERYTHING)] == [0]
    with pytest.raises(OSError, match="sick"):
        reader.read(EVERYTHING, EVERYTHING)
    failing[0] = False
    assert [frame.lsn for frame in reader.read(EVERYTHING, EVERYTHING)] == [1, 2]
    reader.close()


async def test_growth_wakes_those_who_wait_for_it() -> None:
    rig = LogRig().open()
    waiters = [asyncio.create_task(rig.log.grown(Lsn(after))) for after in (0, 0, 1)]
    await asyncio.sleep(0)
    rig.commit(request(1))
    rig.log.announce()
    await asyncio.gather(*waiters[:2])
    assert not waiters[2].done()
    rig.commit(request(2))
    rig.log.announce()
    await waiters[2]
    await rig.log.grown(Lsn(1))


def test_bytes_behind_an_lsn_are_told(rig: LogRig) -> None:
    for number in range(200):
        rig.commit(request(number))
    whole = rig.log.bytes_from(Lsn(0))
    assert whole == sum(len(rig.fs.content(p)) - 4_096 for p in rig.segments())
    assert rig.log.bytes_from(Lsn(100)) == pytest.approx(whole / 2, rel=0.1)
    assert rig.log.bytes_from(Lsn(200)) == 0


def test_nothing_stays_open(rig: LogRig) -> None:
    for number in range(100):
        rig.commit(request(number))
    assert isinstance(rig.read()[0], Frame)
    rig.close()
    assert rig.fs.open_count == 0


def test_a_limit_on_a_files_size_begins_the_next_file(rig: LogRig) -> None:
    rig.commit(request(1))
    rig.fs.fail_next(Fail(errno.EFBIG))
    rig.commit(request(2))
    assert not rig.commit(request(3)).failures
    assert len(rig.segments()) == 2
    rig.kill()
    assert rig.numbers() == [1, 3]
