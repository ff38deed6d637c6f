"""When a batch is ripe."""

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
