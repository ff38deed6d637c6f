"""A training process as a user writes it, run by the tests with the real SDK.

Arguments: a JSON object with `mode` and what the mode needs; prints one line `RESULT {...}`, by
which the test finds what was logged.
"""

from __future__ import annotations

import json
import math
import struct
import sys

import numpy as np
import pluto

SETTINGS = {
    "sync_process_batch_size": 2_000,
    "sync_process_flush_interval": 0.2,
    "disable_system_metrics": False,
}


def value(seed: int, step: int, name: int) -> float:
    """A deterministic value; some places are not finite."""
    if (step, name) == (7, 3):
        return math.nan
    if (step, name) == (8, 3):
        return math.inf
    if (step, name) == (9, 3):
        return -math.inf
    return math.sin(seed + step * 0.01) * (name + 1) / 3.0


def bits(number: float) -> str:
    return struct.pack("<d", number).hex()


def full(seed: int, steps: int, names: int) -> dict:
    run = pluto.init(
        project="e2e",
        name=f"full-{seed}",
        config={"lr": 0.1, "nested": {"a": 1}},
        tags=["first", "second"],
        settings=SETTINGS,
    )
    for step in range(1, steps + 1):
        run.log({f"train/m{n}": value(seed, step, n) for n in range(names)}, step=step)
        if step % 100 == 0:
            print(f"stdout line {step}")
    run.log({"hist/weights": pluto.Histogram(np.arange(64.0), bins=8)}, step=1)
    run.log({"tables/t": pluto.Table(table=[[1, "a"], [2, None]], columns=["n", "s"])}, step=2)
    for step, text in enumerate(["warm-up", "steady — é", "done"]):
        run.log({"phase": text}, step=step + 10)
    run.update_config({"nested": {"b": 2}, "late": True})
    run.add_tags(["third"])
    run_id = int(run.id)
    run.finish()
    return {"run_id": run_id}


def shared(external_id: str, rank: int, steps: int, names: int) -> dict:
    run = pluto.init(
        project="e2e", name="shared", run_id=external_id, resume=True, settings=SETTINGS
    )
    for step in range(1, steps + 1):
        run.log({f"rank{rank}/m{n}": value(rank, step, n) for n in range(names)}, step=step)
    run_id = int(run.id)
    run.finish()
    return {"run_id": run_id}


def main() -> None:
    arguments = json.loads(sys.argv[1])
    mode = arguments.pop("mode")
    result = {"full": full, "shared": shared}[mode](**arguments)
    print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
