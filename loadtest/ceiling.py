"""What a generator can send at most: against a stub that answers at once, over a real socket."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

from loadtest import generators
from loadtest.scenarios import SCENARIOS, Plan, runs_of
from loadtest.throwaway import TREE

OFFERED = 30_000
"""Requests a second: above what any of the generators can do."""


def measure_ceiling(
    generator: str, *, scenario: str = "steady", seconds: float = 5, processes: int = 1
) -> dict[str, Any]:
    """Requests a second that get through when all are overdue, and what each costs to send."""
    offered = float(OFFERED) if generator == "sockets" else OFFERED / 6
    with subprocess.Popen(
        [sys.executable, "-m", "loadtest.stub", scenario],
        cwd=TREE,
        stdout=subprocess.PIPE,
        text=True,
    ) as stub:
        try:
            assert stub.stdout is not None
            port = int(stub.stdout.readline())
            runs = runs_of(SCENARIOS[scenario], offered)
            plan = Plan(
                scenario=scenario,
                url=f"http://127.0.0.1:{port}",
                key="none",
                project="ceiling",
                # As many as it may get through in the time, all due almost at once.
                rate=offered,
                seconds=seconds / 4,
                run_ids=list(range(1, runs + 1)),
                first_second=time.time_ns() // 10**9 - 10**6,
                generators=processes,
            )
            recording = generators.send(plan, generator, is_quiet=True)
        finally:
            stub.kill()
    # Seconds that were busy from end to end.
    full = [count for _, count in sorted(recording.answered.items())[:-1]] or [
        recording.answered.total()
    ]
    requests = len(recording.total)
    return {
        "generator": generator,
        "scenario": scenario,
        "processes": processes,
        "requests": requests,
        "failures": dict(recording.errors),
        "requests_per_second": round(sum(full) / len(full)),
        "cpu_us_per_request": round(1e6 * recording.cpu_seconds / max(1, requests), 1),
    }
