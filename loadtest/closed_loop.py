"""Closed-loop figures with wrk: one worker pinned to one core, the generator to the other.

`python -m loadtest.closed_loop` starts a throw-away server, pins its worker to core 0 and the rest
(wrk, the embedded ClickHouse, the supervisor) to core 1, and posts requests of 10, 100 and 1,000
points over 64 connections. Every body differs, so that the window of repeats answers none.
Each answer is durable: fsync is on as always.

CPU time of a request is the worker's own (user and system, delivery included), read from
/proc/<pid>/stat before the run and after it; on a noisy machine it is steadier than wall time.
At the end the rows in ClickHouse are counted against those acknowledged.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loadtest.throwaway import throwaway_server

if TYPE_CHECKING:
    from loadtest.throwaway import Server

SCRIPT = Path(__file__).with_suffix(".lua")
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
WORKER_CORE = "0"
OTHER_CORE = "1"


@dataclass(frozen=True, slots=True)
class Figures:
    """One run: counts of the whole run, latencies at the client in milliseconds."""

    points: int
    connections: int
    seconds: float
    requests: int
    requests_per_second: float
    points_per_second: float
    cpu_us_per_request: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    errors: int
    rows_delivered_in_run: int
    rows_missing: int
    worker_peak_mib: float


def measure(server: Server, points: int, *, connections: int, seconds: int) -> Figures:
    """One run of wrk against a running server.

    Raises:
        RuntimeError: wrk gave no figures; holds its output.
    """
    pid = server.worker_pids()[0]
    before = server.count_rows("mlop_metrics")
    cpu_before = _cpu_seconds(pid)
    run = subprocess.run(
        [
            *("taskset", "-c", OTHER_CORE, "wrk", "-t1", f"-c{connections}", f"-d{seconds}s"),
            *("--timeout", "30s", "-s", str(SCRIPT), server.url),
        ],
        env={
            **os.environ,
            "KEY": server.key,
            "POINTS": str(points),
            "START": str(before),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    delivered = server.count_rows("mlop_metrics") - before
    lines = [line for line in run.stdout.splitlines() if line.startswith("JSON ")]
    if not lines:
        raise RuntimeError(f"wrk gave no figures:\n{run.stdout}\n{run.stderr}")
    figures = json.loads(lines[-1].removeprefix("JSON "))
    acknowledged = figures["requests"] * points
    stored = _wait_for_rows(server, before + acknowledged) - before
    # Delivery of what was acknowledged belongs to a request's cost: the clock stops after it.
    cpu = _cpu_seconds(pid) - cpu_before
    took = figures["duration_us"] / 1e6
    return Figures(
        points=points,
        connections=connections,
        seconds=round(took, 2),
        requests=figures["requests"],
        requests_per_second=round(figures["requests"] / took),
        points_per_second=round(acknowledged / took),
        cpu_us_per_request=round(1e6 * cpu / figures["requests"], 1),
        p50_ms=figures["p50_us"] / 1e3,
        p95_ms=figures["p95_us"] / 1e3,
        p99_ms=figures["p99_us"] / 1e3,
        errors=figures["errors"],
        rows_delivered_in_run=delivered,
        # Requests that wrk had under way at its end were stored and not counted by it.
        rows_missing=max(0, acknowledged - stored),
        worker_peak_mib=round(_peak_mib(pid), 1),
    )


def main() -> None:
    """Print a table and, with --json, machine-readable figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, nargs="*", default=[10, 100, 1_000])
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("wrk is not installed: apt-get install wrk")
    results = []
    for points in arguments.points:
        with throwaway_server() as server:
            _pin(server)
            measure(server, points, connections=arguments.connections, seconds=3)  # warm-up
            results.append(
                measure(
                    server, points, connections=arguments.connections, seconds=arguments.seconds
                )
            )
    if arguments.json:
        facts = {"python": platform.python_version(), "cpu": _cpu_name(), "cores": os.cpu_count()}
        print(json.dumps({"machine": facts, "runs": [asdict(result) for result in results]}))
    else:
        _print(results)
    if any(result.errors or result.rows_missing for result in results):
        sys.exit("errors, or rows acknowledged and not stored: see above")


def _pin(server: Server) -> None:
    for pid in (*server.worker_pids(), *server.other_pids()):
        core = WORKER_CORE if pid in server.worker_pids() else OTHER_CORE
        subprocess.run(
            ["taskset", "--all-tasks", "-cp", core, str(pid)], check=True, capture_output=True
        )


def _wait_for_rows(server: Server, expected: int) -> int:
    deadline = time.monotonic() + 120
    while (count := server.count_rows("mlop_metrics")) < expected and time.monotonic() < deadline:
        time.sleep(0.2)
    return count


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def _peak_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _print(results: list[Figures]) -> None:
    print(
        "| points | requests/s | points/s | CPU us a request | P50 ms | P95 ms | P99 ms | errors |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for row in results:
        print(
            f"| {row.points:,} | {row.requests_per_second:,.0f} | {row.points_per_second:,.0f} "
            f"| {row.cpu_us_per_request} | {row.p50_ms:.1f} | {row.p95_ms:.1f} | {row.p99_ms:.1f} "
            f"| {row.errors} |"
        )
    for row in results:
        print(
            f"{row.points} points: {row.rows_delivered_in_run:,} rows delivered within the run, "
            f"{row.rows_missing} missing at the end, worker's peak {row.worker_peak_mib} MiB"
        )


if __name__ == "__main__":
    main()
