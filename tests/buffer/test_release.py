"""Deleting what is delivered, on a disk that refuses it."""

from __future__ import annotations

import errno

import pytest

from tests.buffer.log_rig import LogRig, request
from tests.fakes.disk import Fail


@pytest.mark.parametrize("failing", [5, 6])  # the first file's end, and its sync: sealing takes 5
def test_a_segment_that_the_disk_would_not_delete_goes_the_next_time(failing: int) -> None:
    """Or its bytes would count for the log's cap until a restart, and nothing be taken."""
    rig = LogRig().open()
    for number in range(90):
        rig.commit(request(number))
    count = len(rig.segments())
    rig.deliver(rig.log.durable_lsn)
    rig.fs.fail_next(Fail(errno.EIO), after=failing)
    assert rig.release() == 0
    assert rig.release() == count
    assert len(rig.segments()) == rig.log.statistics().segments == 1
