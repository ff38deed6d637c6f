"""A table's condition says what is, also when there is nothing to deliver."""

import pytest

from buffer.lsn import Lsn
from buffer.reader import Damage
from buffer.statistics import TableCondition
from schema.streams import StreamKind
from tests.buffer.delivery_rig import Rig, logs
from tests.fakes.sink import FakeSink


@pytest.fixture
async def rig(tmp_path):
    made = Rig(tmp_path, FakeSink())
    yield made
    await made.close()


async def test_a_table_that_only_passed_frames_by_is_well_once_the_checkpoint_can_be_written(rig):
    pwritev, failures = rig.fs.pwritev, [28, 28, 28]

    def fail_thrice(fd, pieces, offset):
        if fd == rig.checkpoint._fd and failures:
            raise OSError(failures.pop(), "No space left on device")
        return pwritev(fd, pieces, offset)

    rig.fs.pwritev = fail_thrice
    rig.append(logs("not for the table of metrics"))
    rig.start()
    await rig.drain()
    conditions = {rig.statistics(kind).condition for kind in StreamKind}
    assert not failures
    assert conditions == {TableCondition.OK}


async def test_a_table_that_waited_to_set_damage_aside_is_well_once_it_could(rig):
    rig.start()
    sender = rig.delivery._flushers["mlop_metrics"]._sender
    rig.quarantine._bytes_max = 10
    damage = Damage("0.seg", 0, 9, Lsn(0), Lsn(1), "rot", b"123456789", None)
    sleep = rig.clock.sleep

    async def make_room(seconds):
        assert sender.condition.state is TableCondition.WAITING
        rig.quarantine._bytes_max = 2**20
        await sleep(seconds)

    rig.clock.sleep = make_room
    await sender.set_damage_aside(damage)
    assert sender.condition.state is TableCondition.OK
    assert len(rig.quarantine.names()) == 1
