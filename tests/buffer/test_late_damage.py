"""Rot that comes when some tables have passed it already."""

from dataclasses import replace

from buffer.lsn import Lsn
from schema.streams import StreamKind
from tests.buffer.log_rig import LogRig, request
from tests.buffer.test_recovery import group_offsets, split


def test_what_rots_after_one_table_has_passed_it_is_told_of_by_those_that_have_not():
    rig = LogRig().open()
    kinds = (StreamKind.METRICS, StreamKind.LOGS)
    for number in range(3):
        rig.commit(request(number, frames=2, kinds=kinds))
    rig.deliver(rig.log.durable_lsn, (StreamKind.METRICS,))
    path, offsets = rig.segments()[0], group_offsets(rig)
    frame_of_logs = rig.fs.content(path).index((3).to_bytes(8, "little"), offsets[1] + 60)
    rig.fs.flip(path, frame_of_logs)  # in its header
    rig.kill()
    assert rig.read(StreamKind.METRICS) == []
    numbers, (damage,) = split(rig.read(StreamKind.LOGS))
    assert numbers == [0, 2]
    assert (damage.first_lsn, damage.end_lsn) == (Lsn(3), Lsn(4))


def test_a_lost_segment_is_told_of_by_each_table_that_needs_it():
    rig = LogRig(options=replace(LogRig().options, segment_bytes_max=4_400)).open()
    for number in range(6):
        rig.commit(request(number))
    path = rig.segments()[1]
    rig.fs.flip(path, 20)
    rig.fs.flip(path, 2_048 + 20)
    rig.kill()
    told = [split(rig.read(kind))[1] for kind in StreamKind]
    assert all(len(damages) == 1 for damages in told)
    assert len({damages[0] for damages in told}) == 1
