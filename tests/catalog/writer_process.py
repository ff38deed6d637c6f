"""A server's share of many writers who all want the same: one project, one run.

Standard input gives a JSON object; `ready` is printed; the next line of input starts them all.
What they were told is printed as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

from catalog import Catalog, Unavailable
from catalog.run_creation import NewRun
from catalog.run_status import StatusRequest
from catalog.statuses import Status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

FINAL = [Status.COMPLETED, Status.TERMINATED, Status.CANCELLED, Status.FAILED]
TRIES_MAX = 8


async def patient(call: Callable[[], Awaitable[Any]]) -> Any:
    """As a client does that is told to come again."""
    for _ in range(TRIES_MAX):
        try:
            return await call()
        except Unavailable:
            await asyncio.sleep(0.2)
    return await call()


async def write(catalog: Catalog, tenant: str, writer: int) -> dict[str, Any]:
    """One writer's work, and the runs that it got."""
    runs = catalog.runs
    own = await patient(lambda: runs.create(tenant, NewRun("own", "shared")))
    config = json.dumps({f"created by {writer}": writer})
    job = await patient(
        lambda: runs.create(
            tenant, NewRun("job", "shared", external_id="job", config=config, tags=["first"])
        )
    )
    run_id = job.run.id
    names = [f"m/{n}" for n in range(20)]
    await patient(
        lambda: catalog.log_names.add(tenant, run_id, "METRIC", names[:: 1 if writer % 2 else -1])
    )
    config = json.dumps({"merged": {f"by {writer}": writer}})
    await patient(lambda: runs.merge_config(tenant, run_id, config))
    await patient(lambda: runs.set_tags(tenant, run_id, [f"writer {writer}", f"again {writer}"]))
    await patient(lambda: runs.update_status(tenant, run_id, StatusRequest(FINAL[writer % 4])))
    return {
        "own": [own.run.id, own.run.number],
        "job": [run_id, job.run.number],
        "resumed": job.is_resumed,
    }


async def main() -> None:
    given = json.loads(sys.stdin.readline())
    catalog = await Catalog.open(given["url"])
    print("ready", flush=True)
    sys.stdin.readline()
    told = await asyncio.gather(
        *(write(catalog, given["tenant"], writer) for writer in given["writers"])
    )
    await catalog.close()
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
