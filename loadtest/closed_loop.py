"""Closed-loop figures of Charon: one worker on one core; wrk, ClickHouse and the rest on another.

Every body differs, so that the window of repeats answers none. Each answer is durable: fsync is on
as always. CPU time of a request is the workers' own (user and system, delivery included), from
before the run until the last acknowledged row is in ClickHouse; on a noisy machine it is steadier
than wall time. At the end the rows in ClickHouse are counted against those acknowledged.

Servers with one worker and with several take turns, so that noise is all of theirs, and the turn
with the median of CPU time stands for all. Each worker has as many connections as one alone has:
with a share of them its groups would be smaller, and what is asked is what a second worker costs.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from loadtest import machine, wrk
from loadtest.backlog import Looking
from loadtest.throwaway import throwaway_server

if TYPE_CHECKING:
    from loadtest.throwaway import Server

POINTS = (10, 100, 1_000)
CONNECTIONS = 64
WARM_UP_SECONDS = 2
WAIT_SECONDS_MAX = 120.0


@dataclass(frozen=True, slots=True)
class Figures:
    """One run: counts of the whole run, latencies at the client in milliseconds."""

    points: int
    workers: int
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
    rows_acknowledged: int
    rows_delivered_in_run: int
    rows_missing: int
    backlog_half_way_seconds: float
    backlog_at_the_end_seconds: float
    is_backlog_growing: bool
    wrk_cores: float
    worker_peak_mib: float

    @property
    def faults(self) -> list[str]:
        """What makes these figures worth nothing."""
        found = []
        if self.errors:
            found.append(f"{self.errors:,} requests failed")
        if self.rows_missing:
            found.append(f"{self.rows_missing:,} acknowledged rows are not in ClickHouse")
        if self.is_backlog_growing:
            found.append(
                f"the backlog grew, to {self.backlog_at_the_end_seconds} s of the run's rows: "
                "ClickHouse did not keep up, and the rate would not last"
            )
        return [f"{self.points} points: {fault}" for fault in found]

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return asdict(self)


def in_turns(
    points: int, *, workers: list[int], seconds: int, rounds: int, connections: int = CONNECTIONS
) -> list[Figures]:
    """Figures for each number of workers, of servers that take turns; see the module.

    Args:
        points: of a request.
        workers: of each server.
        seconds: of a turn.
        rounds: turns of each server, of which the one with the median of CPU time is told, with the
            errors and missing rows of all.
        connections: of each worker.
    """
    turns: dict[int, list[Figures]] = {count: [] for count in workers}
    with ExitStack() as stack:
        servers = {n: stack.enter_context(throwaway_server(workers=n)) for n in turns}
        for server in servers.values():
            pin(server)
            warm_up(server, points)
        for _ in range(rounds):
            for count, server in servers.items():
                figures = measure(server, points, seconds=seconds, connections=connections * count)
                turns[count].append(figures)
    return [_median(of_one) for of_one in turns.values()]


def _median(turns: list[Figures]) -> Figures:
    middle = sorted(turns, key=lambda turn: turn.cpu_us_per_request)[(len(turns) - 1) // 2]
    return replace(
        middle,
        errors=sum(turn.errors for turn in turns),
        rows_missing=sum(turn.rows_missing for turn in turns),
        is_backlog_growing=any(turn.is_backlog_growing for turn in turns),
    )


def pin(server: Server) -> None:
    """Workers on the first core, everything else on the others."""
    first, others = machine.cores()
    workers = server.worker_pids()
    for pid in workers:
        machine.pin(pid, [first])
    for pid in server.other_pids():
        machine.pin(pid, others)


def warm_up(server: Server, points: int) -> None:
    """A short run that nobody counts, with all its rows delivered."""
    measure(server, points, seconds=WARM_UP_SECONDS)


def measure(
    server: Server, points: int, *, seconds: int, connections: int = CONNECTIONS
) -> Figures:
    """One run of wrk against a running server.

    Raises:
        RuntimeError: wrk gave no figures; holds its output.
    """
    pids = server.worker_pids()
    before = server.count_rows("mlop_metrics")
    cpu_before = sum(map(machine.cpu_seconds, pids))
    with Looking(server) as looking:
        loop = wrk.run(
            server.url,
            points=points,
            seconds=seconds,
            connections=connections,
            start=before,
            KEY=server.key,
        )
    acknowledged = loop.requests * points
    backlog = looking.backlog(acknowledged)
    stored = _wait_for_rows(server, before + acknowledged) - before
    # Delivery of what was acknowledged belongs to a request's cost: the clock stops after it.
    cpu = sum(map(machine.cpu_seconds, pids)) - cpu_before
    return Figures(
        points=points,
        workers=len(pids),
        connections=connections,
        seconds=round(loop.seconds, 2),
        requests=loop.requests,
        requests_per_second=round(loop.requests / loop.seconds),
        points_per_second=round(acknowledged / loop.seconds),
        cpu_us_per_request=round(1e6 * cpu / max(1, loop.requests), 1),
        p50_ms=loop.p50_ms,
        p95_ms=loop.p95_ms,
        p99_ms=loop.p99_ms,
        errors=loop.errors,
        rows_acknowledged=acknowledged,
        rows_delivered_in_run=looking.delivered,
        # Requests that wrk had under way at its end were stored and not counted by it.
        rows_missing=max(0, acknowledged - stored),
        backlog_half_way_seconds=backlog.half_way_seconds,
        backlog_at_the_end_seconds=backlog.at_the_end_seconds,
        is_backlog_growing=backlog.is_growing,
        wrk_cores=loop.cores,
        worker_peak_mib=round(max(machine.memory_mib(pid, "VmHWM") for pid in pids), 1),
    )


def table(results: list[Figures]) -> list[str]:
    """Markdown."""
    lines = [
        (
            "| points | workers | connections | requests/s | points/s | CPU \u00b5s a request "
            "| P50 / P95 / P99 ms | rows acknowledged | of them delivered in the run "
            "| backlog at half / end s | peak MiB | wrk's cores | errors |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.points:,} | {row.workers} | {row.connections} "
        f"| {row.requests_per_second:,.0f} "
        f"| {row.points_per_second:,.0f} | {row.cpu_us_per_request:,.1f} "
        f"| {row.p50_ms:.1f} / {row.p95_ms:.1f} / {row.p99_ms:.1f} "
        f"| {row.rows_acknowledged:,} | {row.rows_delivered_in_run:,} "
        f"| {row.backlog_half_way_seconds} / {row.backlog_at_the_end_seconds} "
        f"| {row.worker_peak_mib:.0f} | {row.wrk_cores:.2f} | {row.errors} |"
        for row in results
    ]
    return lines


def workers_table(results: list[Figures]) -> list[str]:
    """Markdown: CPU a request with several workers, to one worker's; empty without both."""
    alone = {row.points: row.cpu_us_per_request for row in results if row.workers == 1}
    rows = [
        f"| {row.points:,} | {row.workers} | {row.cpu_us_per_request / alone[row.points]:.2f} |"
        for row in results
        if row.workers > 1 and alone.get(row.points)
    ]
    head = ["| points | workers | CPU a request, to one worker's |", "|---|---|---|"]
    return head + rows if rows else []


def _wait_for_rows(server: Server, expected: int) -> int:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while (count := server.count_rows("mlop_metrics")) < expected and time.monotonic() < deadline:
        time.sleep(0.1)
    return count
