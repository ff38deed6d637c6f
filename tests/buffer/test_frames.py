"""Many frames as lists: what becomes of them when nobody needs them any more."""

from buffer.frames import LET_GO_AT_ONCE, Frames
from schema.streams import StreamKind
from tests.buffer.delivery_rig import Rig, metrics
from tests.buffer.log_rig import LogRig, request
from tests.fakes.sink import FakeSink, refuse

MANY = 2 * LET_GO_AT_ONCE + 1


def test_what_is_let_go_of_is_empty_whatever_its_number():
    rig = LogRig().open()
    rig.commit(request(1))
    frames = Frames.of(StreamKind.METRICS, rig.read() * MANY)
    stack = frames.stack
    frames.let_go()
    assert not any((frames.headers, stack.payloads, stack.owners, stack.row_counts))


async def test_a_batch_of_many_frames_is_delivered_whole_however_often_it_is_let_go_of(tmp_path):
    """Once before each wait for a server that is busy, and once in the end."""
    rig = Rig(tmp_path, FakeSink())
    rig.append(*[metrics(float(number)) for number in range(MANY)])
    rig.table().script.extend([refuse(252), refuse(252)])
    rig.start()
    await rig.drain()
    assert [row["value"] for row in rig.table().rows] == list(map(float, range(MANY)))
    await rig.close()
