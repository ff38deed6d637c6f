"""What a table's reader passes without reading it: the log knows which streams it has written."""

import errno

from hypothesis import given
from hypothesis import strategies as st

from buffer.lsn import Lsn
from schema.streams import StreamKind
from tests.buffer.log_rig import EVERYTHING, LogRig, number_of, request
from tests.fakes.disk import Fail

METRICS, LOGS, DATA = StreamKind.METRICS, StreamKind.LOGS, StreamKind.DATA
KINDS = (METRICS, LOGS, DATA)


def watched(rig, monkeypatch):
    """The sizes of all reads from here on."""
    real, sizes = rig.fs.pread, []

    def pread(fd, count, offset):
        sizes.append(count)
        return real(fd, count, offset)

    monkeypatch.setattr(rig.fs, "pread", pread)
    return sizes


def test_what_holds_no_frame_of_a_table_is_passed_without_a_read(monkeypatch):
    rig = LogRig().open()
    reader = rig.log.reader(Lsn(0), LOGS)
    for number in range(300):
        rig.commit(request(number))
    assert len(rig.segments()) > 3
    sizes = watched(rig, monkeypatch)
    assert reader.read(EVERYTHING, EVERYTHING) == []
    assert (reader.lsn, sizes) == (300, [])


def test_the_first_frame_of_a_table_behind_what_was_passed_is_read_alone(monkeypatch):
    rig = LogRig().open()
    reader = rig.log.reader(Lsn(0), LOGS)
    rig.commit(*[request(number, size=100) for number in range(10)])
    assert reader.read(EVERYTHING, EVERYTHING) == []
    before = rig.log.statistics().bytes
    rig.commit(request(10, kinds=(LOGS,)))
    sizes = watched(rig, monkeypatch)
    assert [number_of(frame) for frame in reader.read(EVERYTHING, EVERYTHING)] == [10]
    assert max(sizes) == rig.log.statistics().bytes - before
    reader.close()


def test_a_log_that_another_process_wrote_is_read():
    rig = LogRig().open()
    rig.commit(request(1), request(2, kinds=(LOGS,)), request(3))
    rig.kill()
    assert rig.numbers(LOGS) == [2]
    assert rig.numbers(DATA) == []


@given(
    steps=st.lists(
        st.one_of(
            st.lists(
                st.lists(st.sampled_from(KINDS), min_size=1, max_size=3), min_size=1, max_size=4
            ),
            st.tuples(st.sampled_from(KINDS), st.sampled_from([1, 5, EVERYTHING])),
            st.sampled_from(["sync fails", "no room", "kill"]),
        ),
        max_size=40,
    )
)
def test_each_table_gets_its_frames_once_whatever_is_passed(steps):
    """Groups of any streams, failed ones among them, readings of any size, and starts anew."""
    rig, number = LogRig().open(), 0
    expected, found = ({kind: [] for kind in KINDS} for _ in range(2))
    readers = {kind: rig.log.reader(Lsn(0), kind) for kind in KINDS}
    for step in [*steps, *[(kind, EVERYTHING) for kind in KINDS]]:
        if isinstance(step, list):
            sent = []
            for kinds in step:
                sent.append((number, kinds))
                number += 1
            outcome = rig.commit(
                *[request(one, frames=len(kinds), kinds=tuple(kinds)) for one, kinds in sent]
            )
            rig.fs.faults.clear()
            for index, (one, kinds) in enumerate(sent):
                for kind in kinds if index not in outcome.failures else ():
                    expected[kind].append(one)
        elif isinstance(step, tuple):
            kind, rows = step
            found[kind] += map(number_of, readers[kind].read(rows, EVERYTHING))
        elif step == "kill":
            rig.fs.faults.clear()
            for reader in readers.values():
                reader.close()
            rig.kill()
            readers = {kind: rig.log.reader(reader.lsn, kind) for kind, reader in readers.items()}
        elif step == "no room":
            rig.fs.fail_next(Fail(errno.ENOSPC))
        else:
            rig.fs.fail_next(Fail(errno.EIO), after=1)
    while rest := [kind for kind in KINDS if readers[kind].lsn < rig.log.durable_lsn]:
        for kind in rest:
            found[kind] += map(number_of, readers[kind].read(EVERYTHING, EVERYTHING))
    assert found == expected
