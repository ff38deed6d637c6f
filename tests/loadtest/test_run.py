"""Every scenario against a real server; what a run must notice: lost rows, and a pause (F44)."""

import csv
import json
import os
import signal
import threading
import time
import urllib.request

import pytest

from loadtest import closed_loop, generators, report, stored, wrk
from loadtest.payloads import Kind
from loadtest.run import make_plan, run, verdict

RUNS = [
    ("steady", "locust", 2),  # two processes: a master hands the plan to two workers
    ("mixed", "locust", 1),
    ("burst", "sockets", 1),
    ("many_runs", "sockets", 2),
    ("wide", "sockets", 1),
    ("shifting", "sockets", 1),
    ("soak", "sockets", 1),
]


@pytest.mark.parametrize(("scenario", "generator", "processes"), RUNS)
def test_a_scenario_is_acknowledged_and_stored_to_the_last_row(
    where, tmp_path, scenario, generator, processes
):
    figures = run(
        where,
        scenario,
        rate=40,
        seconds=3,
        generator=generator,
        processes=processes,
        connections=8,
        is_quiet=True,
    )
    status, said = verdict(figures)
    assert status in {0, 3}, said  # a busy machine may not hold even this rate
    assert figures["requests_due"] == figures["requests_sent"] == 120
    assert figures["requests_acknowledged"] == 120
    assert figures["rows"]["acknowledged"] == figures["rows"]["stored"] > 0
    assert figures["visible_after_ms"]["markers"] > 0
    assert 0 < figures["generator_cores"] < processes
    assert figures["worker_cpu_us_per_request"] > 0

    report.write(tmp_path, figures)
    assert json.loads((tmp_path / "report.json").read_text())["scenario"] == scenario
    with (tmp_path / "seconds.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert sum(int(row["answered"]) for row in rows) == 120
    page = (tmp_path / "report.html").read_text()
    assert "<svg" in page
    assert "://" not in page  # a page that asks no network


def send(where, *, rate=50, seconds=2):
    plan = make_plan(where, "steady", rate=rate, seconds=seconds, connections=8)
    return plan, generators.send(plan, "sockets", is_quiet=True)


def change(where, statement):
    request = urllib.request.Request(
        f"{where.clickhouse_url}?mutations_sync=1",
        data=statement.encode(),
        headers={
            "X-ClickHouse-User": where.clickhouse_user,
            "X-ClickHouse-Key": where.clickhouse_password,
            "X-ClickHouse-Database": where.database,
        },
    )
    urllib.request.urlopen(request, timeout=60).close()


def test_rows_that_are_missing_in_clickhouse_fail_the_run(where):
    plan, recording = send(where)
    assert stored.audit(where, plan, recording).is_clean
    change(
        where, f"ALTER TABLE mlop_metrics DELETE WHERE runId = {plan.run_ids[3]} AND step = 1003"
    )
    audit = stored.audit(where, plan, recording, wait_seconds_max=0.5)
    assert audit.acknowledged - audit.stored == plan.shape.names
    (difference,) = audit.differences
    assert f"run {plan.run_ids[3]}: 100 rows acknowledged, 90 stored" in difference


def test_a_row_too_many_does_not_make_up_for_one_that_is_missing(where):
    plan, recording = send(where)
    run_id = plan.run_ids[5]
    assert stored.audit(where, plan, recording).is_clean
    change(
        where,
        "INSERT INTO mlop_metrics SELECT * REPLACE (step + 100000 AS step) FROM "
        f"(SELECT * FROM mlop_metrics WHERE runId = {run_id} AND step = 1003)",
    )
    change(where, f"ALTER TABLE mlop_metrics DELETE WHERE runId = {run_id} AND step = 1003")
    (difference,) = stored.audit(where, plan, recording, wait_seconds_max=5).differences
    assert f"run {run_id}" in difference
    assert "not the same ones" in difference


def test_rows_whose_request_had_no_clear_answer_may_be_there_or_not(where):
    plan, recording = send(where, seconds=1)
    recording.unknown[Kind.METRICS, 2] = recording.acknowledged.pop((Kind.METRICS, 2))
    audit = stored.audit(where, plan, recording)
    assert audit.is_clean
    assert audit.unknown == 100


def test_a_pause_of_the_server_shows_in_the_percentiles(where):
    """The worker is stopped for two seconds; requests that fell due in them count from then on.

    A closed loop would have noticed as many slow requests as it has connections, and no more.
    """
    (worker,) = where.server.worker_pids()
    connections, rate = 4, 50

    plan = make_plan(where, "steady", rate=rate, seconds=7, connections=connections)
    stored_rows = f"SELECT count() FROM mlop_metrics WHERE projectName = '{plan.project}'"

    def pause():
        while not int(where.sql(stored_rows)[0][0]):
            time.sleep(0.1)
        os.kill(worker, signal.SIGSTOP)
        time.sleep(2)
        os.kill(worker, signal.SIGCONT)

    thread = threading.Thread(target=pause, daemon=True)
    thread.start()
    recording = generators.send(plan, "sockets", is_quiet=True)
    thread.join()

    def slow(histogram):
        return sum(n for bucket, n in histogram.counts.items() if 0.01 * 1.01**bucket > 500)

    assert recording.errors == {}
    assert recording.total.percentile(99) > 1_000
    assert slow(recording.total) > 40
    assert slow(recording.service) <= connections
    assert stored.audit(where, plan, recording).is_clean


@pytest.mark.skipif(not wrk.is_installed(), reason="wrk is not installed")
def test_a_closed_loop_counts_what_it_delivered(where):
    figures = closed_loop.measure(where.server, 10, seconds=1, connections=4)
    again = closed_loop.measure(where.server, 10, seconds=1, connections=4)
    for one in (figures, again):
        assert one.errors == one.rows_missing == 0
        assert one.rows_acknowledged == 10 * one.requests > 0
        assert one.cpu_us_per_request > 0
    # Rows that no request repeated: all are there, those of requests cut off at the ends too.
    stored = where.sql(
        "SELECT count(), uniqExact(time, logName) FROM mlop_metrics WHERE projectName = 'bench'"
    )[0]
    assert int(stored[0]) == int(stored[1]) >= figures.rows_acknowledged + again.rows_acknowledged
