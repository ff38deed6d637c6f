"""The same points into VictoriaMetrics, in the same run: ratios that a noisy machine leaves alone.

Charon and VictoriaMetrics take turns on the same core with wrk on the other, a few seconds each.
VictoriaMetrics gets InfluxDB's line protocol, one line a step with ten fields, and answers before
anything is on disk; Charon answers after fsync, and delivers to ClickHouse besides.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from loadtest import closed_loop, machine, wrk
from loadtest.throwaway import throwaway_server

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = "victoria-metrics"
ADVICE = f"{PROGRAM} is not installed: apt-get install {PROGRAM}"
TARGETS = {10: 0.9, 100: 1.2, 1_000: 1.4}
START_SECONDS_MAX = 20.0
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Turn:
    """Both servers at one size of request."""

    points: int
    charon_requests_per_second: float
    charon_cpu_us: float
    peer_requests_per_second: float
    peer_cpu_us: float
    peer_errors: int
    charon_wrk_cores: float
    peer_wrk_cores: float
    faults: list[str]

    @property
    def ratio(self) -> float:
        """Charon's requests a second to the peer's."""
        return round(self.charon_requests_per_second / self.peer_requests_per_second, 2)

    def to_json(self) -> dict[str, Any]:
        """All of it, with the ratio and what it should be."""
        return {**asdict(self), "ratio": self.ratio, "target": TARGETS.get(self.points)}


def is_installed() -> bool:
    """Whether there is a VictoriaMetrics to run."""
    return shutil.which(PROGRAM) is not None


def compare(points: int, *, seconds: int, rounds: int) -> Turn:
    """Let both take so many turns of so many seconds."""
    with throwaway_server() as server, _victoria_metrics() as (url, pid):
        closed_loop.pin(server)
        closed_loop.warm_up(server, points)
        base = time.time_ns() // 10**6 - 20 * DAY_MS
        count = _load(url, points, closed_loop.WARM_UP_SECONDS, 0, base).requests
        ours, theirs, cpu = [], [], 0.0
        for _ in range(rounds):
            ours.append(closed_loop.measure(server, points, seconds=seconds))
            count += 10_000  # those under way at an end were sent too
            before = machine.cpu_seconds(pid)
            theirs.append(_load(url, points, seconds, count, base))
            cpu += machine.cpu_seconds(pid) - before
            count += theirs[-1].requests
    requests = sum(figures.requests for figures in ours)
    their_requests = sum(loop.requests for loop in theirs)
    return Turn(
        points=points,
        charon_requests_per_second=round(requests / sum(figures.seconds for figures in ours)),
        charon_cpu_us=round(
            sum(figures.cpu_us_per_request * figures.requests for figures in ours) / requests, 1
        ),
        peer_requests_per_second=round(their_requests / sum(loop.seconds for loop in theirs)),
        peer_cpu_us=round(1e6 * cpu / their_requests, 1),
        peer_errors=sum(loop.errors for loop in theirs),
        charon_wrk_cores=max(figures.wrk_cores for figures in ours),
        peer_wrk_cores=max(loop.cores for loop in theirs),
        faults=[fault for figures in ours for fault in figures.faults],
    )


def table(turns: list[Turn]) -> list[str]:
    """Markdown."""
    lines = [
        (
            "| points | Charon requests/s | CPU \u00b5s | VictoriaMetrics requests/s | CPU \u00b5s "
            "| ratio of requests/s | wanted | wrk's cores, Charon / VictoriaMetrics |"
        ),
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {turn.points:,} | {turn.charon_requests_per_second:,.0f} | {turn.charon_cpu_us:,.1f} "
        f"| {turn.peer_requests_per_second:,.0f} | {turn.peer_cpu_us:,.1f} "
        f"| {turn.ratio:.2f} | {TARGETS.get(turn.points, '')} "
        f"| {turn.charon_wrk_cores:.2f} / {turn.peer_wrk_cores:.2f} |"
        for turn in turns
    ]
    return lines


def _load(url: str, points: int, seconds: int, start: int, base: int) -> wrk.Loop:
    return wrk.run(
        url,
        points=points,
        seconds=seconds,
        connections=closed_loop.CONNECTIONS,
        start=start,
        FORMAT="influx",
        BASE=str(base),
    )


@contextmanager
def _victoria_metrics() -> Iterator[tuple[str, int]]:
    """One on a free port of loopback, on the core of the workers; its address and pid."""
    first, _ = machine.cores()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="charon-peer-") as directory:
        process = subprocess.Popen(
            [
                *("taskset", "-c", str(first), PROGRAM, f"-storageDataPath={directory}"),
                *(f"-httpListenAddr=127.0.0.1:{port}", "-retentionPeriod=1y"),
            ],
            env={"GOMAXPROCS": "1", "PATH": "/usr/bin:/bin"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(url)
            yield url, process.pid
        finally:
            process.terminate()
            process.wait()


def _wait(url: str) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
