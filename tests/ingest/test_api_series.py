"""Reading what was logged, from a real engine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import pluto.query
import pytest

from buffer.clickhouse_http import Endpoint
from ingest import appkeys
from ingest.api_series import SERIES_ENDPOINTS
from ingest.reader import Reader
from schema.ddl import create_table
from schema.streams import LOGS, METRICS
from tests.engine_process import start_engine
from tests.ingest.api_client import Api, running_api

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PROJECT = "projectName=wirelab"
TIME = "2026-11-29 12:00:0"


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    process = start_engine(tmp_path_factory.mktemp("series") / "clickhouse")
    yield process
    process.stop()


@pytest.fixture
async def run(engine):
    headers = {"X-ClickHouse-User": engine.user, "X-ClickHouse-Key": engine.password}
    async with aiohttp.ClientSession(headers=headers) as session:

        async def run(statement: str) -> None:
            async with session.post(engine.url, data=statement) as response:
                assert response.status == 200, await response.text()

        for stream in (METRICS, LOGS):
            await run(create_table(stream, "charon", cluster=None, retention_days=None))
            await run(f"TRUNCATE TABLE charon.{stream.table}")
        yield run


@pytest.fixture
async def api(tmp_path, engine, run) -> AsyncIterator[Api]:
    async with running_api(tmp_path) as api:
        endpoint = Endpoint(engine.url, engine.database, engine.user, engine.password)
        reader = api.client.app._state[appkeys.READER] = Reader(endpoint)
        for project in ("wirelab", "wirelab", "elsewhere"):
            await api.create(projectName=project, config='{"lr": 1}')
        yield api
        await reader.close()


async def insert(run, api: Api, *rows: tuple[Any, ...]) -> None:
    """Rows of (run, name, step, second, value); each twice, as a repeat leaves them."""
    values = ",".join(
        f"('{api.tenant}', '{'elsewhere' if run_id == 3 else 'wirelab'}', {run_id}, "
        f"'{name.rpartition('/')[0]}', '{name}', '{TIME}{second}', {step}, {value})"
        for run_id, name, step, second, value in rows
    )
    columns = "tenantId, projectName, runId, logGroup, logName, time, step, value"
    for _ in range(2):
        await run(f"INSERT INTO charon.mlop_metrics ({columns}) VALUES {values}")


async def get(api: Api, path: str, **more: Any) -> tuple[int, Any]:
    status, answer = await api.call("GET", f"/api/runs/{path}", **more)
    if status == 200:
        name = "/api/runs/" + path.partition("?")[0]
        (endpoint,) = (one for one in SERIES_ENDPOINTS if one.path == name)
        endpoint.answer.model_validate(answer)
    return status, answer


async def test_a_step_shows_the_value_that_was_written_last(api, run):
    await insert(
        run,
        api,
        (1, "train/loss", 1, 1, 0.5),
        (1, "train/loss", 2, 2, 0.25),
        (1, "train/loss", 1, 3, 0.75),
        (1, "acc", 2.5, 1, "nan"),
        (1, "acc", 3, 1, "-inf"),
        (2, "acc", 1, 1, 9),
        (3, "acc", 1, 1, 9),
    )
    status, answer = await get(api, f"metrics?runId=1&{PROJECT}")
    assert status == 200
    point = {"logGroup": "", "valueFlag": ""}
    assert answer["metrics"] == [
        point
        | {"logName": "acc", "value": 0, "valueFlag": "NaN", "time": f"{TIME}1.000", "step": 2.5},
        point
        | {"logName": "acc", "value": 0, "valueFlag": "-Inf", "time": f"{TIME}1.000", "step": 3},
        point
        | {"logName": "train/loss", "logGroup": "train", "value": 0.75}
        | {"time": f"{TIME}3.000", "step": 1},
        point
        | {"logName": "train/loss", "logGroup": "train", "value": 0.25}
        | {"time": f"{TIME}2.000", "step": 2},
    ]

    async def steps(query: str, **more: Any) -> list[float]:
        _, answer = await get(api, f"metrics?{query}", **more)
        return [point["step"] for point in answer["metrics"]]

    assert await steps(f"runId=1&{PROJECT}&logName=acc") == [2.5, 3]
    assert await steps(f"runId=1&{PROJECT}&logGroup=train") == [1, 2]
    assert await steps(f"runId=1&{PROJECT}&stepMin=2&stepMax=2") == [2]
    assert await steps(f"runId=77&{PROJECT}") == []
    assert await steps("runId=1&projectName=elsewhere") == []
    assert await steps(f"runId=1&{PROJECT}", key=api.other_key) == []


async def test_of_many_points_every_nth_and_the_last_are_told(api, run):
    await insert(run, api, *((1, "m", step, 1, step) for step in range(11)))
    for limit, steps in (
        (11, list(range(11))),
        (10, [0, 2, 4, 6, 8, 10]),
        (4, [0, 3, 6, 9, 10]),
        (1, [0, 10]),
    ):
        _, answer = await get(api, f"metrics?runId=1&{PROJECT}&limit={limit}")
        assert [point["step"] for point in answer["metrics"]] == steps, limit


async def test_many_names_of_many_points_are_thinned_to_what_one_answer_holds(
    api, run, monkeypatch
):
    monkeypatch.setattr("ingest.stored_rows.ROWS_MAX", 10)
    await insert(run, api, *((1, name, step, 1, step) for name in "ab" for step in range(9)))
    _, answer = await get(api, f"metrics?runId=1&{PROJECT}")
    assert answer["limit"] == 4
    assert [point["step"] for point in answer["metrics"]] == [0, 3, 6, 8] * 2
    _, answer = await get(api, f"metrics?runId=1&{PROJECT}&logName=a")
    assert (answer["limit"], len(answer["metrics"])) == (9, 9)


async def test_the_sdks_query_client_reads_it_all(api, run, monkeypatch):
    await insert(run, api, (1, "loss", 1, 1, 0.5), (1, "loss", 2, 1, "nan"), (2, "acc", 1, 1, 1))
    url = str(api.client.make_url("/")).rstrip("/")
    monkeypatch.setenv("PLUTO_URL_API", url)
    monkeypatch.setenv("PLUTO_URL_INGEST", url)

    def read() -> None:
        with pluto.query.Client(api_token=api.key) as client:
            assert {one["name"] for one in client.list_projects()} == {"wirelab", "elsewhere"}
            runs = client.list_runs("wirelab", search="WIR", sort="createdAt")
            assert [one["displayId"] for one in runs] == ["WIR-1", "WIR-2"]
            assert runs[0]["config"] == {"lr": 1}
            assert client.get_run("wirelab", 1) == client.get_run("wirelab", "WIR-1")
            assert client.get_metric_names("wirelab", run_ids=[1]) == ["loss"]
            points = client.get_metrics("wirelab", "WIR-1", ["loss", "acc"])
            if not isinstance(points, list):  # pandas is there
                points = points.to_dict("records")
            assert [(one["metric"], one["step"], one["value"]) for one in points] == [
                ("loss", 1, 0.5),
                ("loss", 2, 0),
            ]
            (loss,) = client.get_statistics("wirelab", 1)["metrics"]
            assert (loss["count"], loss["last"]) == (1, {"step": 2, "value": 0.5})
            compared = client.compare_runs("wirelab", [1, "WIR-2"], "loss")
            assert [one["stats"] is None for one in compared["runs"]] == [False, True]
            (ranked,) = client.leaderboard("wirelab", "loss")["runs"]
            assert (ranked["rank"], ranked["value"]) == (1, 0.5)
            assert client.get_logs("wirelab", 1, log_type="info") == []
            with pytest.raises(pluto.query.QueryError, match="Run not found"):
                client.get_run("wirelab", 99)

    await asyncio.to_thread(read)


async def test_an_answer_without_end_is_refused_with_what_to_do(api, run, monkeypatch):
    monkeypatch.setattr("ingest.stored_rows._BOUNDS", "SETTINGS max_result_rows = 3")
    await insert(run, api, *((1, "m", step, 1, step) for step in range(5)))
    status, answer = await get(api, f"metrics?runId=1&{PROJECT}")
    assert (status, "give logName, a range of steps" in answer["error"]) == (413, True)


async def test_statistics_are_of_finite_values_and_count_a_step_once(api, run):
    await insert(
        run,
        api,
        *((1, "loss", step, 1, value) for step, value in enumerate((4, 2, 6))),
        (1, "loss", 2, 2, 9),
        (1, "loss", 5, 1, "inf"),
        (1, "none", 1, 1, "nan"),
        (1, "train/acc", 1, 1, 1),
    )
    status, answer = await get(api, f"statistics?runId=1&{PROJECT}")
    assert status == 200
    loss, none, _ = answer.pop("metrics")
    assert answer["runName"] == "basic"
    assert loss.pop("stddev") == pytest.approx(2.943920288775949)
    assert loss == {
        "logName": "loss",
        "logGroup": "",
        "count": 3,
        "min": 2,
        "max": 9,
        "mean": 5,
        "last": {"step": 5, "value": 9},
    }
    assert (none["count"], none["min"], none["stddev"], none["last"]["value"]) == (0, *[None] * 3)
    not_found = (404, {"error": "Run not found"})
    assert await get(api, "statistics?runId=1&projectName=elsewhere") == not_found
    for group, names in (("", ["loss", "none"]), ("train", ["train/acc"]), ("no", [])):
        _, of_group = await get(api, f"statistics?runId=1&{PROJECT}&logGroup={group}")
        assert [metric["logName"] for metric in of_group["metrics"]] == names
    assert await get(api, f"statistics?runId=1&{PROJECT}", key=api.other_key) == not_found


async def test_runs_are_compared_by_one_metric(api, run):
    await insert(run, api, (1, "loss", 1, 1, 4), (1, "loss", 2, 1, 2), (3, "loss", 1, 1, 9))
    status, answer = await get(api, f"compare?runIds=2,1,3,99,1&{PROJECT}&logName=loss")
    assert status == 200
    second, first = answer["runs"]
    assert (second["runId"], second["stats"], second["config"]) == (2, None, {"lr": 1})
    assert first["stats"] == {"count": 2, "min": 2, "max": 4, "mean": 3, "final": 2}
    assert answer["comparisonUrl"].endswith("/o/acme/projects/wirelab")
    for query, status in (
        (f"runIds=3,99&{PROJECT}&logName=loss", 400),
        (f"runIds=x&{PROJECT}&logName=loss", 400),
        (f"runIds={','.join(map(str, range(101)))}&{PROJECT}&logName=loss", 400),
    ):
        assert (await get(api, f"compare?{query}"))[0] == status
    _, answer = await get(api, f"compare?runIds=3,99&{PROJECT}&logName=loss")
    assert answer["error"] == "No valid run IDs provided"


async def test_runs_are_ranked_by_one_metric(api, run):
    third = (await api.create(projectName="wirelab", tags=["t"]))["runId"]
    values = [(1, 1, 5), (1, 2, 1), (2, 1, 2), (2, 2, 4), (third, 1, 3), (third, 2, "inf")]
    rows = [(run_id, "loss", step, 1, value) for run_id, step, value in values]
    await insert(run, api, *rows, (3, "loss", 1, 1, 0), (99, "nan only", 1, 1, "nan"))
    path = f"leaderboard?{PROJECT}&logName=loss"
    status, answer = await get(api, path)
    assert (status, answer["total"], answer["aggregation"]) == (200, 3, "LAST")
    found = [(one["rank"], one["runId"], one["value"]) for one in answer["runs"]]
    assert found == [(1, 1, 1), (2, third, 3), (3, 2, 4)]
    assert answer["runs"][1]["tags"] == ["t"]
    for query, runs in (
        ("direction=DESC", [2, third, 1]),
        ("aggregation=MAX&direction=DESC", [1, 2, third]),
        ("aggregation=AVG", [1, 2, third]),
        ("aggregation=MIN", [1, 2, third]),
        ("aggregation=VARIANCE", [third, 2, 1]),
        ("limit=1&offset=1", [third]),
        ("offset=9", []),
    ):
        _, answer = await get(api, f"{path}&{query}")
        assert ([one["runId"] for one in answer["runs"]], answer["total"]) == (runs, 3), query
    _, answer = await get(api, f"leaderboard?{PROJECT}&logName=nan%20only")
    assert (answer["runs"], answer["total"]) == ([], 0)
    assert (await get(api, f"{path}&aggregation=SUM"))[0] == 400


async def test_names_of_metrics_are_found(api, run):
    names = ["train/loss", "train/acc", "Été"]
    await insert(run, api, *((1, name, 1, 1, 1) for name in names), (2, "other", 1, 1, 1))
    for query, found in (
        (PROJECT, ["other", "train/acc", "train/loss", "Été"]),
        (f"{PROJECT}&runIds=1", ["train/acc", "train/loss", "Été"]),
        (f"{PROJECT}&search=LOSS", ["train/loss"]),
        (f"{PROJECT}&search=%C3%A9T", ["Été"]),
        (f"{PROJECT}&limit=1", ["other"]),
        ("projectName=nothing", []),
    ):
        _, answer = await get(api, f"metric-names?{query}")
        assert answer == {
            "projectName": query.partition("&")[0].partition("=")[2],
            "metricNames": found,
        }


async def test_console_lines_come_by_their_number(api, run):
    values = ",".join(
        f"('{api.tenant}', 'wirelab', 1, '{kind}', '{TIME}{second}', {number}, '{message}')"
        for kind, second, number, message in [
            ("INFO", 2, 2, "two"),
            ("INFO", 1, 1, "one"),
            ("ERROR", 3, 1, "err"),
        ]
    )
    columns = "tenantId, projectName, runId, logType, time, lineNumber, message"
    for _ in range(2):
        await run(f"INSERT INTO charon.mlop_logs ({columns}) VALUES {values}")
    status, answer = await get(api, f"logs?runId=1&{PROJECT}")
    assert (status, answer["total"]) == (200, 3)
    assert [line["message"] for line in answer["logs"]] == ["one", "err", "two"]
    assert answer["logs"][0] == {
        "time": f"{TIME}1.000",
        "logType": "INFO",
        "lineNumber": 1,
        "message": "one",
        "step": 0,
    }
    for query, messages, total in (
        ("logType=info", ["one", "two"], 2),
        ("logType=ERROR", ["err"], 1),
        ("limit=1&offset=1", ["err"], 3),
    ):
        _, answer = await get(api, f"logs?runId=1&{PROJECT}&{query}")
        assert [line["message"] for line in answer["logs"]] == messages
        assert answer["total"] == total
    assert (await get(api, f"logs?runId=1&{PROJECT}&logType=NOISE"))[0] == 400
