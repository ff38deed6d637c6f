"""When a batch is ripe."""

import errno

import pytest

from buffer.checkpoint import Pending
from buffer.cursor import reread
from buffer.lsn import Lsn
from schema.ids import BlockNumber
from schema.streams import StreamKind
from tests.buffer.delivery_rig import LeapingClock, Rig, metrics
from tests.fakes.sink import FakeSink


class WrongClock(LeapingClock):
    """Somebody sets the machine's clock while the server runs."""

    def __init__(self):
        super().__init__()
        self.wall_seconds = 0

    def wall_ns(self):
        return super().wall_ns() + self.wall_seconds * 10**9


async def test_a_clock_set_back_by_an_hour_holds_no_batch_up(tmp_path):
    rig = Rig(tmp_path, FakeSink(), clock=WrongClock(), batch_age_seconds_max=0.2)
    rig.append(metrics(1.0))
    rig.clock.wall_seconds = -3_600
    begun = rig.clock.monotonic()
    rig.start()
    await rig.drain()
    assert rig.clock.monotonic() - begun < 60
    assert [row["value"] for row in rig.table().rows] == [1.0]
    await rig.close()


@pytest.mark.parametrize("failing", range(1, 5))
async def test_a_batch_is_read_again_whole_or_not_at_all(tmp_path, monkeypatch, failing):
    """Else what the disk would not give once would be taken for damaged, and passed by."""
    rig = Rig(tmp_path, FakeSink(), segment_bytes_max=5_500)
    for value in range(60):
        rig.append(metrics(float(value), *[0.5] * 30))
    pending = Pending(Lsn(0), Lsn(59), 60 * 31, BlockNumber(1), 0, None)
    opened, open_read = [], rig.fs.open_read

    def open_or_fail(path):
        opened.append(path)
        if len(opened) == failing:
            raise OSError(errno.EIO, "Input/output error")
        return open_read(path)

    monkeypatch.setattr(rig.fs, "open_read", open_or_fail)
    try:
        frames, damages = await reread(rig.log, StreamKind.METRICS, pending, rig.disk)
    except OSError:
        frames, damages = await reread(rig.log, StreamKind.METRICS, pending, rig.disk)
    assert len(opened) > failing, "the disk has failed, and was asked again"
    assert (frames.rows, damages) == (pending.rows, [])
    await rig.close()
