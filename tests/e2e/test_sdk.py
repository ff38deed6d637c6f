"""The real SDK, in processes of its own, against a real server; everything read back."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.e2e.conftest import bits, clickhouse, eventually
from tests.e2e.sdk import result, start
from tests.e2e.sdk_run import value

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from loadtest.throwaway import Server

STEPS, NAMES = 2_000, 20


def series(client, run_id: int, prefix: str, *, final: bool = False) -> dict[str, list[tuple]]:
    rows = client.query(
        "SELECT logName, step, value, time, logGroup FROM mlop_metrics "
        + ("FINAL " if final else "")
        + "WHERE runId = {run:UInt64} AND startsWith(logName, {prefix:String}) "
        "ORDER BY logName, step",
        parameters={"run": run_id, "prefix": prefix},
    ).result_rows
    found: dict[str, list[tuple]] = {}
    for name, *rest in rows:
        found.setdefault(name, []).append(tuple(rest))
    return found


def check_series(
    found: dict[str, list[tuple]], prefix: str, seed: int, steps: int, names: int
) -> None:
    """Every value bit-equal, every step once, nothing else."""
    assert sorted(found) == sorted(f"{prefix}/m{n}" for n in range(names))
    for n in range(names):
        points = found[f"{prefix}/m{n}"]
        assert [step for step, *_ in points] == [float(step) for step in range(1, steps + 1)]
        assert [bits(v) for _, v, *_ in points] == [
            bits(value(seed, step, n)) for step in range(1, steps + 1)
        ]
        assert {group for *_, group in points} == {prefix}


def wait_for(client, run_id: int, prefix: str, rows: int) -> None:
    query = (
        f"SELECT count() FROM mlop_metrics WHERE runId = {run_id} "
        f"AND startsWith(logName, '{prefix}')"
    )
    eventually(
        lambda: client.query(query).result_rows[0][0] >= rows, 20, f"{rows} rows of {prefix}"
    )


@pytest.mark.slow
def test_every_value_of_a_training_run_arrives_bit_equal_and_once(
    server: Server, tmp_path: Path
) -> None:
    process = start(
        server.url, server.key, tmp_path / "home", "full", seed=1, steps=STEPS, names=NAMES
    )
    run_id = result(process)["run_id"]
    client = clickhouse(server)
    wait_for(client, run_id, "train/", STEPS * NAMES)
    for final in (False, True):
        check_series(series(client, run_id, "train/", final=final), "train", 1, STEPS, NAMES)

    eventually(
        lambda: (
            client.query(f"SELECT count() FROM mlop_data WHERE runId = {run_id}").result_rows[0][0]
            >= 5
        ),
        20,
        "histogram, table and string series",
    )
    data = client.query(
        "SELECT logName, dataType, step, data FROM mlop_data "
        f"WHERE runId = {run_id} ORDER BY logName, step"
    ).result_rows
    by_type = {}
    for name, kind, step, text in data:
        by_type.setdefault(kind, []).append((name, step, text))
    assert by_type["string-series"] == [
        ("phase", 10.0, "warm-up"),
        ("phase", 11.0, "steady — é"),
        ("phase", 12.0, "done"),
    ]
    ((name, step, text),) = by_type["HISTOGRAM"]
    counts, edges = np.histogram(np.arange(64.0), bins=8)
    histogram = json.loads(text)
    assert (name, step, histogram["freq"]) == ("hist/weights", 1.0, counts.tolist())
    assert (histogram["bins"]["min"], histogram["bins"]["max"]) == (edges[0], edges[-1])
    ((name, step, text),) = by_type["TABLE"]
    assert (name, step, json.loads(text)["table"]) == ("tables/t", 2.0, [[1, "a"], [2, None]])

    lines = client.query(
        "SELECT lineNumber, message FROM mlop_logs "
        f"WHERE runId = {run_id} AND logType = 'INFO' AND startsWith(message, 'stdout line') "
        "ORDER BY lineNumber"
    ).result_rows
    assert [message for _, message in lines] == [
        f"stdout line {s}" for s in range(100, STEPS + 1, 100)
    ]

    run = catalogue_run(server, run_id)
    assert run["status"] == "COMPLETED"
    assert sorted(json.loads(run["tags"])) == ["first", "second", "third"]
    config = json.loads(run["config"])
    assert (config["lr"], config["nested"], config["late"]) == (0.1, {"a": 1, "b": 2}, True)


@pytest.mark.slow
def test_four_processes_of_one_run_share_it_by_its_external_id(
    server: Server, tmp_path: Path
) -> None:
    steps, names = 200, 5
    processes = [
        start(
            *(server.url, server.key, tmp_path / f"rank{rank}", "shared"),
            external_id="job-17",
            rank=rank,
            steps=steps,
            names=names,
        )
        for rank in range(4)
    ]
    (run_id,) = {result(process)["run_id"] for process in processes}
    client = clickhouse(server)
    for rank in range(4):
        wait_for(client, run_id, f"rank{rank}/", steps * names)
        check_series(series(client, run_id, f"rank{rank}/"), f"rank{rank}", rank, steps, names)
    assert catalogue_run(server, run_id)["status"] == "COMPLETED"


@pytest.mark.slow
def test_eight_runs_at_once_stay_apart(make_server: Callable[..., Server], tmp_path: Path) -> None:
    server = make_server(workers=2)
    steps, names = 150, 5
    processes = [
        start(
            *(server.url, server.key, tmp_path / f"home{seed}", "full"),
            seed=seed,
            steps=steps,
            names=names,
        )
        for seed in range(8)
    ]
    runs = [result(process)["run_id"] for process in processes]
    assert len(set(runs)) == 8
    client = clickhouse(server)
    for seed, run_id in enumerate(runs):
        wait_for(client, run_id, "train/", steps * names)
        check_series(series(client, run_id, "train/"), "train", seed, steps, names)


def catalogue_run(server: Server, run_id: int) -> dict:
    """The run's row, read with SQLite itself."""
    with sqlite3.connect(server.data_dir / "catalog.sqlite") as connection:
        connection.row_factory = sqlite3.Row
        row = connection.execute("SELECT * FROM charon_runs WHERE id = ?", (run_id,)).fetchone()
    connection.close()
    return dict(row)
