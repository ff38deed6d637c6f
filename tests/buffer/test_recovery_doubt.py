"""Opening a log whose end is in memory and perhaps not on disk: after a sync that failed."""

from __future__ import annotations

import errno
from random import Random

import pytest

from buffer.errors import Broken
from tests.buffer.log_rig import LogRig, request
from tests.fakes.disk import Fail


def rig_that_ended_over_a_failed_sync() -> LogRig:
    """Requests 0 and 1 are stored; 2 is written, its sync and its fence have failed."""
    rig = LogRig().open()
    rig.commit(request(0))
    rig.commit(request(1))
    rig.fs.failed_syncs = 1  # the next one that fails drops what it should have written
    rig.fs.fail_next(Fail(errno.EIO), after=1)
    rig.fs.fail_next(Fail(errno.EIO), after=2)
    with pytest.raises(Broken):
        rig.commit(request(2))
    return rig


@pytest.mark.parametrize("seed", range(20))
def test_what_a_start_shows_survives_a_power_cut_though_its_first_sync_had_failed(
    seed: int,
) -> None:
    rig = rig_that_ended_over_a_failed_sync().kill()
    shown = rig.numbers()
    assert shown == [0, 1, 2], "the killed process left it in memory"
    assert [one.digest[0] for one in rig.recovered.remembered] == shown, "a repeat is told so"
    rig.fs.power_cut(Random(seed))
    rig.open()
    assert rig.numbers() == shown


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_instead_of_that_start_keeps_what_was_stored(seed: int) -> None:
    rig = rig_that_ended_over_a_failed_sync()
    rig.fs.power_cut(Random(seed))
    rig.open()
    assert rig.numbers() in ([0, 1], [0, 1, 2])


@pytest.mark.parametrize("seed", range(40))
def test_a_power_cut_while_the_end_is_written_again_loses_nothing_stored(seed: int) -> None:
    rig = LogRig().open()
    for number in range(3):
        rig.commit(request(number, size=3_000))
    rig.kill()  # the last group is written again, and its sync is what the power cut comes before
    rig.fs.power_cut(Random(seed))
    rig.open()
    assert rig.numbers() == [0, 1, 2]


def test_a_start_that_cannot_write_the_end_again_is_no_start() -> None:
    rig = rig_that_ended_over_a_failed_sync()
    rig.fs.kill()
    writes = [0]
    pwritev = rig.fs.pwritev

    def fail_on_the_segment(fd, pieces, offset):  # type: ignore[no-untyped-def]
        writes[0] += 1
        if writes[0] == 2:  # the first is the checkpoint's
            raise OSError(errno.EIO, "no")
        return pwritev(fd, pieces, offset)

    rig.fs.pwritev = fail_on_the_segment  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no"):
        rig.open()
    rig.fs.pwritev = pwritev  # type: ignore[method-assign]
    rig.fs.kill()
    assert rig.open().numbers() == [0, 1, 2]
