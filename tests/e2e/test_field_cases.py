"""What users of comparable systems ran into: posted as reported, and read back with a client.

Each test names the case it stands for (F01 to F12, F19); others are named where they are tested.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import aiohttp
import pytest

from loadtest.throwaway import Server
from tests.e2e.conftest import clickhouse, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

TIME_MS = 1_764_423_221_123
DAY_MS = 86_400_000

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all cases; each has a run of its own. Its machine's zone is far from UTC (F12)."""
    one = Server(tmp_path_factory.mktemp("cases") / "data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        try:
            one.start()
        except BaseException:
            one.stop()
            raise
    yield one
    assert one.stop() == 0


@pytest.fixture
def run(request: pytest.FixtureRequest) -> int:
    """A number of its own for each test."""
    return 1 + request.node.session.items.index(request.node)


def line(step: object, data: dict, time_ms: object = TIME_MS) -> bytes:
    return json.dumps({"time": time_ms, "step": step, "data": data}).encode() + b"\n"


def post(server: Server, run: int, *bodies: bytes) -> list[dict]:
    """The answers, in order; all must be 200."""
    return asyncio.run(post_all(server, [(run, body) for body in bodies]))


async def post_all(server: Server, requests: list[tuple[int, bytes]]) -> list[dict]:
    answers = []
    async with aiohttp.ClientSession() as client:
        for run, body in requests:
            headers = {
                "Authorization": f"Bearer {server.key}",
                "X-Run-Id": str(run),
                "X-Project-Name": "cases",
            }
            url = server.url + "/ingest/metrics"
            async with client.post(url, data=body, headers=headers) as answer:
                assert answer.status == 200, await answer.text()
                answers.append(await answer.json())
    return answers


def stored(server: Server, run: int, count: int) -> list[tuple[str, float, float]]:
    """(name, step, value) of every row of the run, once so many are there; the raw table's."""
    client = clickhouse(server)
    query = f"SELECT logName, step, value FROM mlop_metrics WHERE runId = {run} ORDER BY ALL"
    eventually(lambda: len(client.query(query).result_rows) >= count, 20, f"{count} rows")
    rows = client.query(query).result_rows
    assert len(rows) == count
    return rows


def test_f01_nan_and_infinities_are_values_like_others(server, run):
    body = (
        b'{"time":1764423221123,"step":3,'
        b'"data":{"loss":NaN,"g":Infinity,"h":-Infinity,"acc":0.9,"say \\"NaN\\"":1}}\n'
    )
    (answer,) = post(server, run, body)
    assert (answer["accepted"], answer["rejected"]) == (5, 0)
    values = {name: value for name, _, value in stored(server, run, 5)}
    assert math.isnan(values.pop("loss"))
    assert values == {"g": math.inf, "h": -math.inf, "acc": 0.9, 'say "NaN"': 1.0}


def test_f02_infinity_and_the_largest_number_stay_two(server, run):
    post(server, run, line(0, {"x": math.inf, "y": 1.7976931348623157e308}))
    assert [v for *_, v in stored(server, run, 2)] == [math.inf, 1.7976931348623157e308]


def test_f03_an_unusual_name_is_taken_and_an_empty_one_loses_only_itself(server, run):
    names = {40: "timing(s)/gen@95%", 41: ""}
    body = b"".join(line(n, {names.get(n, "loss"): n, "other": n}) for n in range(1, 101))
    (answer,) = post(server, run, body)
    assert (answer["accepted"], answer["rejected"]) == (199, 1)
    assert (answer["errors"][0]["line"], answer["errors"][0]["field"]) == (41, "data.")
    assert ("timing(s)/gen@95%", 40.0, 40.0) in stored(server, run, 199)


def test_f04_a_broken_line_is_told_and_its_neighbours_are_stored(server, run):
    lines = [line(n, {"loss": n}) for n in range(1, 101)]
    lines[59] = b'{"time":1\n'
    (answer,) = post(server, run, b"".join(lines))
    assert (answer["accepted"], answer["rejected"]) == (99, 1)
    assert answer["errors"][0]["line"] == 60
    assert {step for _, step, _ in stored(server, run, 99)} == set(range(1, 101)) - {60}


def test_f05_a_wrong_step_is_a_200_with_its_refusal(server, run):
    (answer,) = post(server, run, line("three", {"loss": 1}) + line(4, {"loss": 1}))
    assert (answer["accepted"], answer["rejected"]) == (1, 1)
    assert answer["errors"][0]["field"] == "step"


def test_f06_of_equal_keys_the_last_one_counts(server, run):
    post(server, run, b'{"time":1764423221123,"step":1,"step":2,"data":{"a":1,"a":2}}\n')
    assert stored(server, run, 1) == [("a", 2.0, 2.0)]


def test_f07_deep_nesting_is_refused_quickly_and_hurts_nobody(server, run):
    workers = server.worker_pids()
    deep = b'{"time":1,"step":0,"data":' + b"[" * 100_000
    began = time.monotonic()
    answer, after = post(server, run, deep, line(1, {"loss": 1}))
    assert time.monotonic() - began < 5
    assert (answer["accepted"], answer["rejected"]) == (0, 1)
    assert after["accepted"] == 1
    assert server.worker_pids() == workers


def test_f08_a_new_name_at_every_step_is_taken(server, run):
    body = b"".join(line(n, {f"metric_{n}": n}) for n in range(10_000))
    (answer,) = post(server, run, body)
    assert answer["accepted"] == 10_000
    assert len({name for name, *_ in stored(server, run, 10_000)}) == 10_000


def test_f09_past_and_future_are_stored_as_sent_and_seconds_are_refused(server, run):
    now_ms = time.time_ns() // 1_000_000
    future, past = now_ms + 10 * DAY_MS, now_ms - 3 * 365 * DAY_MS
    (answer,) = post(
        server,
        run,
        line(1, {"x": 1}, future) + line(2, {"x": 2}, past) + line(3, {"x": 3}, TIME_MS // 1000),
    )
    assert (answer["accepted"], answer["rejected"]) == (2, 1)
    assert "seconds" in answer["errors"][0]["error"]
    stored(server, run, 2)
    times = clickhouse(server).query(
        f"SELECT toUnixTimestamp64Milli(time) FROM mlop_metrics WHERE runId = {run} ORDER BY step"
    )
    assert [t for (t,) in times.result_rows] == [future, past]


def test_f10_late_and_lower_steps_are_stored(server, run):
    points = [(10, "a"), (5, "a"), (7, "a"), (5, "b"), (0, "a")]
    lines = [line(step, {name: step}) for step, name in points]
    later = [line(step, {f"later/{name}": step}) for step, name in points]
    post(server, run, b"".join(lines), later[0], later[1] + later[2], later[3] + later[4])
    expected = sorted((f"{p}{name}", step, step) for step, name in points for p in ("", "later/"))
    assert stored(server, run, 10) == expected


def test_f11_a_restart_at_an_earlier_step_deletes_nothing_and_the_latest_is_found(server, run):
    first = b"".join(line(n, {"loss": n}, TIME_MS + n) for n in range(1, 151))
    again = b"".join(line(n, {"loss": -n}, TIME_MS + 1_000 + n) for n in range(101, 161))
    post(server, run, first, again)
    stored(server, run, 210)
    latest = clickhouse(server).query(
        "SELECT step, argMax(value, time) FROM mlop_metrics FINAL "
        f"WHERE runId = {run} GROUP BY step ORDER BY step"
    )
    expected = [(n, float(n)) for n in range(1, 101)] + [(n, -float(n)) for n in range(101, 161)]
    assert [tuple(row) for row in latest.result_rows] == expected


def test_f12_a_time_is_the_same_millisecond_in_every_zone(server, run):
    post(server, run, line(0, {"loss": 1}))
    stored(server, run, 1)
    address = urlsplit(server.clickhouse_url)
    # Without tz_mode this client gives naive times in UTC, which `timestamp` would take as local.
    program = f"""
import clickhouse_connect
client = clickhouse_connect.get_client(host={address.hostname!r}, port={address.port},
    username="charon", password={server.clickhouse_password!r}, database="charon", tz_mode="aware")
((at, ms, text),) = client.query("SELECT time, toUnixTimestamp64Milli(time), toString(time) "
    "FROM mlop_metrics WHERE runId = {run}").result_rows
print(round(at.timestamp() * 1000), ms, text)
"""
    for zone in ("America/Los_Angeles", "UTC", "Asia/Tokyo"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"TZ": zone},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == [str(TIME_MS), str(TIME_MS), "2025-11-29", "13:33:41.123"]


def test_f19_rows_of_many_runs_share_their_inserts(server):
    client = clickhouse(server)
    parts = "SELECT count() FROM system.parts WHERE database = 'charon' AND table = 'mlop_metrics'"
    before = client.query(parts).result_rows[0][0]
    runs = range(100_001, 100_201)
    asyncio.run(post_all(server, [(run, line(1, {"loss": run})) for run in runs]))
    rows = "SELECT count() FROM mlop_metrics WHERE runId > 100000"
    eventually(lambda: client.query(rows).result_rows[0][0] == 200, 20, "200 rows")
    assert client.query(parts).result_rows[0][0] - before <= 12
