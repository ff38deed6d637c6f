"""Running wrk: requests as fast as the answers come, each one different."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from loadtest import machine

SCRIPT = Path(__file__).with_name("closed_loop.lua")
ADVICE = "wrk is not installed, so there are no closed-loop figures: apt-get install wrk"


@dataclass(frozen=True, slots=True)
class Loop:
    """What wrk saw: counts of the whole run, latencies in milliseconds."""

    requests: int
    seconds: float
    errors: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    cores: float
    """Of CPU that wrk itself took: near 1, the figures are wrk's."""


def is_installed() -> bool:
    """Whether there is a wrk to run."""
    return shutil.which("wrk") is not None


def run(
    url: str, *, points: int, seconds: int, connections: int, start: int, **variables: str
) -> Loop:
    """Post requests of so many points over so many connections, from one thread.

    Args:
        url: of the server.
        points: a request.
        seconds: how long.
        connections: each has one request under way.
        start: a number such that no two runs on one server count through the same ones.
        variables: KEY, FORMAT, BASE; see the script.

    Raises:
        RuntimeError: wrk gave no figures; holds its output.
    """
    _, others = machine.cores()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [
            *("taskset", "-c", ",".join(map(str, others)), "wrk", "-t1", f"-c{connections}"),
            *(f"-d{seconds}s", "--timeout", "30s", "-s", str(SCRIPT), url),
        ],
        env={**os.environ, **variables, "POINTS": str(points), "START": str(start)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("JSON ")]
    if not lines:
        raise RuntimeError(f"wrk gave no figures:\n{done.stdout}\n{done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    said = json.loads(lines[-1].removeprefix("JSON "))
    return Loop(
        requests=said["requests"],
        seconds=said["duration_us"] / 1e6,
        errors=said["errors"],
        p50_ms=said["p50_us"] / 1e3,
        p95_ms=said["p95_us"] / 1e3,
        p99_ms=said["p99_us"] / 1e3,
        cores=round(cpu / (said["duration_us"] / 1e6), 2),
    )
