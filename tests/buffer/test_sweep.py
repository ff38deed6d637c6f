"""Many records at a time: the same frames and the same damage as one by one."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import buffer.reader
from buffer.frame import Frame
from buffer.frames import Frames
from buffer.lsn import Lsn
from buffer.records import WINDOW_BYTES
from buffer.sweep import OWNERS_BYTES_MAX, Limits, Owners, Swept
from schema.streams import StreamKind
from tests.buffer.log_rig import EVERYTHING, LogRig, request

KINDS = (StreamKind.METRICS, StreamKind.LOGS, StreamKind.DATA)


def one_by_one(monkeypatch, read):
    def nothing(records, kind, lsn, walk_lsn, into, limits, owners):
        return Swept(lsn, walk_lsn, limits.are_met(into))

    with monkeypatch.context() as patched:
        patched.setattr(buffer.reader, "sweep", nothing)
        return read()


def filled(sizes):
    rig = LogRig().open()
    number = 0
    for group in sizes:
        requests = []
        for size in group:
            kinds = KINDS[number % 3 :] + KINDS[: number % 3]
            requests.append(request(number, frames=1 + size % 3, size=8 + size, kinds=kinds))
            number += 1
        rig.commit(*requests)
    return rig


def all_of(rig, kind, from_lsn, steps):
    """Everything from an LSN on, in readings of so many rows."""
    reader = rig.log.reader(Lsn(from_lsn), kind)
    found = []
    while items := reader.read(steps, EVERYTHING):
        found += items
    reader.close()
    return found, reader.lsn


@given(
    sizes=st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=5), min_size=1, max_size=9),
    flips=st.lists(st.tuples(st.integers(0, 9), st.floats(0, 1)), max_size=3),
    kind=st.sampled_from(KINDS),
    from_lsn=st.integers(0, 12),
    steps=st.sampled_from([1, 7, EVERYTHING]),
)
@example([[0, 0, 0, 0, 0], [1, 1]], [(0, 0.96875)], StreamKind.DATA, 0, 1)
def test_whatever_is_damaged_both_find_the_same(sizes, flips, kind, from_lsn, steps):
    rig = filled(sizes)
    segments = rig.segments()
    for segment, share in flips:
        path = segments[segment % len(segments)]
        rig.fs.flip(path, int(share * (len(rig.fs.content(path)) - 1)))
    with pytest.MonkeyPatch.context() as patch:
        expected = one_by_one(patch, lambda: all_of(rig, kind, from_lsn, steps))
    assert all_of(rig, kind, from_lsn, steps) == expected


def test_frames_larger_than_a_window_and_those_across_two_are_read(monkeypatch):
    sizes = [[100, 3 * WINDOW_BYTES, 50], [WINDOW_BYTES // 2 + 1] * 5, [20] * 30]
    rig = filled(sizes)
    read = lambda: all_of(rig, StreamKind.METRICS, 0, EVERYTHING)  # noqa: E731
    found, end = read()
    assert (found, end) == one_by_one(monkeypatch, read)
    assert len(found) > 30


@pytest.mark.parametrize("size", [200, WINDOW_BYTES + 1], ids=["swept", "one by one"])
def test_a_frame_that_would_pass_the_bytes_begins_the_next_reading_unless_it_is_the_first(size):
    rig = filled([[size, size, size, size]])
    reader = rig.log.reader(Lsn(0), StreamKind.METRICS)
    lsns = []
    for _ in range(4):
        frames = Frames(StreamKind.METRICS)
        assert reader.read_into(frames, Limits(EVERYTHING, size + 100)) in (([], True), ([], False))
        lsns.append([frame.lsn for frame in frames])
    assert [len(part) for part in lsns[:3]] == [1, 1, 1]
    reader.close()


def test_a_reading_ends_before_an_lsn(monkeypatch):
    rig = filled([[0, 1, 2, 3], [4, 5, 6]])
    last = rig.log.durable_lsn

    def read():
        counts = []
        for end in range(last + 1):
            frames = Frames(StreamKind.METRICS)
            reader = rig.log.reader(Lsn(0), StreamKind.METRICS)
            reader.read_into(frames, Limits(EVERYTHING, EVERYTHING, Lsn(end)))
            reader.close()
            assert all(frame.lsn < end for frame in frames)
            counts.append(len(frames))
        return counts

    counts = read()
    assert counts == one_by_one(monkeypatch, read)
    assert counts[-1] > counts[0] == 0


def test_frames_by_field_are_the_frames():
    rig = filled([[0, 10, 20, 30], [5, 5, 5]])
    frames = Frames(StreamKind.METRICS)
    reader = rig.log.reader(Lsn(0), StreamKind.METRICS)
    reader.read_into(frames, Limits(EVERYTHING, EVERYTHING))
    assert all(isinstance(frame, Frame) for frame in frames)
    again = Frames.of(StreamKind.METRICS, list(frames))
    assert list(again) == list(frames) == frames[:]
    assert (again.rows, again.bytes, again.proofs) == (frames.rows, frames.bytes, frames.proofs)
    assert (frames.first_lsn, frames.last_lsn) == (frames[0].lsn, frames[-1].lsn)
    reader.close()


@pytest.mark.parametrize("name_bytes", [6, 8_000])
def test_ever_new_runs_do_not_fill_memory(name_bytes):
    owners = Owners()
    names = b"a" + b"p" * (name_bytes - 1)
    for run in range(10_000):
        owner = owners[run, 1, names]
        whose = (owner.tenant, owner.project, owner.run_id)
        assert whose == ("a", "p" * (name_bytes - 1), run)
        assert owners.bytes <= OWNERS_BYTES_MAX
    assert 0 < len(owners) < 10_000
