"""LSNs that failed groups have used up, and what is above them."""

import asyncio
import errno

from schema.streams import StreamKind
from tests.buffer.log_rig import LogRig, request
from tests.fakes.disk import Fail


async def test_a_full_log_is_freed_though_a_refused_group_has_used_up_lsns():
    """No room: all is delivered, a request is refused, and what is delivered has to go."""
    rig = LogRig().open()
    rig.commit(request(0))
    rig.fs.fail_next(Fail(errno.ENOSPC))
    assert rig.commit(request(1)).failures
    delivered = rig.log.durable_lsn
    [segment] = rig.segments()
    waiting = asyncio.create_task(rig.log.grown(delivered))
    await asyncio.sleep(0)
    await rig.log.release(delivered, keep=False)
    await asyncio.wait_for(waiting, 1)  # or the tables would never pass what is left out
    reader = rig.log.reader(delivered, StreamKind.METRICS)
    assert reader.read(10, 1_000) == []
    await rig.log.release(reader.lsn, keep=False)
    assert segment not in rig.segments()
