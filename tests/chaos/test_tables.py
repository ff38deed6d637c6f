"""Goal: one table's trouble, or one row's, is its own: all else flows, and nothing is lost.

Method: a table is dropped under load and made again; a CHECK refuses one row among very many.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import orjson
import pytest

from loadtest.oracle import TIME_BASE_MS, RequestNumber, Shape, body_of
from tests.chaos.house import drained, get
from tests.chaos.load import FIRST_RUNS, Load, eventually
from tests.chaos.posting import post

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.chaos.house import House

pytestmark = pytest.mark.slow

INSERTS_MAX = 64
POISON = 1e300
WIDE = Shape(lines=100, names=100)
REQUESTS = 100


def logs(first: int, count: int) -> bytes:
    return b"".join(
        orjson.dumps(
            {
                "time": TIME_BASE_MS + number,
                "logType": "INFO",
                "lineNumber": number,
                "message": f"line {number}",
            }
        )
        + b"\n"
        for number in range(first, first + count)
    )


def test_a_table_dropped_and_made_again_loses_nothing_and_holds_up_no_other(
    house: House, tmp_path: Path
) -> None:
    server, ask = house.server, house.backend.ask
    load = Load(server, tmp_path / "notes", writers=2)

    def stored(table: str) -> int:
        ours = f"runId BETWEEN {load.runs[0]} AND {load.runs[-1]}"
        return int(ask(f"SELECT count() FROM {table} WHERE {ours}")[0][0])

    assert post(server, "/ingest/logs", logs(0, 50), load.runs[0]).status == 200
    eventually(lambda: stored("mlop_logs") == 50, 20, "50 lines")
    ask("DROP TABLE mlop_logs SYNC")
    for number in range(1, 4):
        assert post(server, "/ingest/logs", logs(50 * number, 50), load.runs[0]).status == 200
    load.send(5)
    rows = len(load.outcomes.acknowledged) * load.shape.rows
    eventually(lambda: stored("mlop_metrics") == rows, 20, "the other table's rows")
    status, body = get(server.url, "/health/ready")
    assert status == 200
    eventually(
        lambda: b"mlop_logs" in get(server.url, "/health/ready")[1], 10, f"a table named: {body}"
    )
    server.command("migrate")
    eventually(lambda: stored("mlop_logs") == 150, 40, "150 lines")
    drained(server)
    ((lines, last),) = ask("SELECT uniqExact(lineNumber), max(lineNumber) FROM mlop_logs")
    assert (int(lines), int(last)) == (150, 199)
    load.audit(ask, requests_min=10)


@pytest.fixture
def constraint(house: House) -> Iterator[None]:
    """A CHECK on the metrics, for as long as a test takes."""
    house.backend.ask(f"ALTER TABLE mlop_metrics ADD CONSTRAINT sane CHECK value < {POISON}")
    yield
    house.backend.ask("ALTER TABLE mlop_metrics DROP CONSTRAINT sane")


@pytest.mark.usefixtures("constraint")
def test_one_row_among_a_million_that_a_check_refuses_is_set_aside_alone(
    make_house: Callable[..., House],
) -> None:
    house = make_house(clickhouse_timeout_seconds="60", batch_age_seconds_max="1")
    server, ask = house.server, house.backend.ask
    run = next(FIRST_RUNS)
    house.proxy.down()
    for number in range(REQUESTS):
        body = body_of(run, RequestNumber(number), WIDE)
        if number == REQUESTS // 2:  # among its own request's good lines
            bad = {"time": TIME_BASE_MS, "step": 1, "data": {"load/bad": 2 * POISON}}
            body += orjson.dumps(bad) + b"\n"
        assert post(server, "/ingest/metrics", body, run).status == 200
    before = house.proxy.inserts
    house.proxy.up()
    rows = REQUESTS * WIDE.rows
    ours = f"FROM mlop_metrics WHERE runId = {run}"
    eventually(lambda: int(ask(f"SELECT count() {ours}")[0][0]) == rows, 60, f"{rows} rows")
    drained(server)
    eventually(lambda: _set_aside(server.url) == 1, 10, "one row set aside")
    ((distinct, sane),) = ask(f"SELECT uniqExact(logName, step), countIf(value < {POISON}) {ours}")
    assert (int(distinct), int(sane)) == (rows, rows)
    tries = house.proxy.inserts - before
    assert tries <= INSERTS_MAX
    print(f"{rows} rows, {tries} inserts")


def _set_aside(url: str) -> int:
    return json.loads(get(url, "/health/dlq")[1])["records_pending"]
