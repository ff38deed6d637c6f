"""Goal: a backlog of any size is boring: a start with it is quick, it drains in bounded memory.

Method: millions of rows accepted with ClickHouse away, kill -9 of everything, a start, ClickHouse
back. Each row is recomputed in SQL from its run, step and name, which say what was sent.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from loadtest.oracle import RequestNumber, Shape, body_of
from tests.chaos.house import pending
from tests.chaos.load import FIRST_RUNS, eventually
from tests.chaos.posting import post
from tests.e2e.test_bounds import memory_mib

if TYPE_CHECKING:
    from collections.abc import Callable

    from loadtest.throwaway import Server
    from tests.chaos.house import House

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]

SHAPE = Shape(lines=1_000, names=100)
ROWS = 1_000_000
ROWS_LONG = 20_000_000
MEMORY_MIB_MAX = 400.0
FIRST_REQUEST_SECONDS_MAX = 5.0
BACKLOG_SECONDS_MAX = 3.0
PROBE = Shape(lines=1, names=1)
PROBE_RUN = 1_000_000


def test_a_backlog_drains_in_bounded_memory_after_a_quick_start(
    make_house: Callable[..., House], minutes: float
) -> None:
    # F21: ClickHouse away for long, everything accepted lands, once.
    house = make_house(batch_age_seconds_max="1.0", clickhouse_timeout_seconds="60")
    server, ask = house.server, house.backend.ask
    requests = (ROWS_LONG if minutes else ROWS) // SHAPE.rows
    quiet = [probe(server, number) for number in range(30)]
    first = next(FIRST_RUNS)
    ours = f"FROM mlop_metrics WHERE runId BETWEEN {first} AND {first + 3}"
    house.proxy.down()
    begun = time.monotonic()
    for number in range(requests):
        run, place = first + number % 4, RequestNumber(number // 4)
        assert post(server, "/ingest/metrics", body_of(run, place, SHAPE), run).status == 200
    accepted_seconds = time.monotonic() - begun
    server.kill_tree()

    first_seconds = started(server, 1_000)
    assert pending(server) > 0

    house.proxy.up()
    begun = time.monotonic()
    rows = requests * SHAPE.rows
    busy: list[float] = []

    def is_drained() -> bool:
        busy.append(probe(server, 2_000 + len(busy)))
        return int(ask(f"SELECT count() {ours}")[0][0]) >= rows

    eventually(is_drained, 60 + rows / 20_000, f"{rows} rows")
    drain_seconds = time.monotonic() - begun
    (worker,) = server.worker_pids()
    peak = memory_mib(worker, "VmHWM")
    assert peak < MEMORY_MIB_MAX

    ((count, distinct, wrong),) = ask(
        "SELECT count(), uniqExact(runId, logName, step), countIf(value != "
        "(toInt64(runId) * 1000003 + toInt64(step) * 131 + toInt64(substring(logName, 7))) / 7) "
        + ours
    )
    assert (int(count), int(distinct), int(wrong)) == (rows, rows, 0)
    plain_seconds = 0.0
    if minutes or first_seconds > FIRST_REQUEST_SECONDS_MAX:
        # On a machine that is busy with others any start takes its time; a backlog adds little.
        server.kill_tree()
        plain_seconds = started(server, 100_000)
        assert first_seconds < max(FIRST_REQUEST_SECONDS_MAX, plain_seconds + BACKLOG_SECONDS_MAX)
    print(
        f"{rows} rows: accepted at {rows / accepted_seconds:,.0f}/s, first request "
        f"{first_seconds:.1f} s after the start ({plain_seconds:.1f} without), "
        f"drained at {rows / drain_seconds:,.0f}/s, "
        f"worker's peak {peak:.0f} MiB, request P95 {p95(quiet) * 1e3:.1f} ms quiet, "
        f"{p95(busy) * 1e3:.1f} ms while draining"
    )


def started(server: Server, number: int) -> float:
    """A start; the seconds until the first request was accepted."""
    begun = time.monotonic()
    server.start(is_ready=False)
    probe(server, number)
    return time.monotonic() - begun


def probe(server: Server, number: int) -> float:
    """One small request; the seconds it took."""
    answer = post(
        server, "/ingest/metrics", body_of(PROBE_RUN, RequestNumber(number), PROBE), PROBE_RUN
    )
    assert answer.status == 200, answer
    return answer.seconds


def p95(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.95)]
