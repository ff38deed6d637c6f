"""Rot that comes when some tables have passed it already."""

from dataclasses import replace

from buffer.lsn import Lsn
from schema.block import rows_of
from schema.streams import StreamKind
from tests.buffer.delivery_rig import Rig, metrics
from tests.buffer.log_rig import LogRig, request
from tests.buffer.test_recovery import group_offsets, split
from tests.fakes import sink as fakes
from tests.fakes.sink import FakeSink


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


async def test_what_rots_in_a_batch_that_is_searched_takes_no_other_row_of_it(tmp_path):
    """A part of the batch was stored, and its answer lost, when a frame behind that part rotted."""
    rig = Rig(tmp_path, FakeSink())
    table = rig.table()
    table.is_bad, table.names_bad_row = (lambda row: row["value"] == 1.0), True

    async def store(sink, *what):
        sink._store(*what[:-1])

    async def store_and_go_down(sink, *what):
        sink._store(*what[:-1])
        sink.is_down = True
        raise fakes.lost()

    table.script.extend([store, store_and_go_down])  # refused whole, then [0.0] alone
    for value, name in enumerate(["first", "second", "third", "fourth"]):
        rig.append(metrics(float(value), name=name))
    rig.start()
    await rig.until(lambda: rig.sink.is_down)
    await rig.kill()
    (path,) = tmp_path.glob("*.seg")
    path.write_bytes(path.read_bytes().replace(b"third", b"thirf"))
    rig.sink.is_down = False
    rig.start()
    await rig.drain()
    assert {row["value"] for row in table.rows} == {0.0, 3.0}  # 0.0 twice: one by identity
    damage, bad = sorted(rig.set_aside(), key=lambda entry: len(entry.chunks))
    assert not damage.chunks
    assert [row["value"] for row in rows_of(bad.chunks[0])] == [1.0]
    await rig.close()
