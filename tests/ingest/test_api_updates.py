from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select

from catalog.tables import alerts, log_names
from tests.ingest.api_client import Api, running_api

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SUCCESS = (200, {"success": True})
NOT_FOUND = (404, {"error": "Run not found"})


@pytest.fixture
async def api(tmp_path) -> AsyncIterator[Api]:
    async with running_api(tmp_path) as api:
        yield api


@pytest.fixture
async def run_id(api) -> int:
    return (await api.create())["runId"]


async def update_status(api: Api, run_id: int, status: str, **more) -> tuple[int, dict]:
    body = {"runId": run_id, "status": status, "statusMetadata": None, "statusUpdated": None} | more
    return await api.post("/api/runs/status/update", body)


async def test_a_run_that_ends_is_completed_once_however_many_ranks_say_so(api, run_id):
    for _ in range(4):
        assert await update_status(api, run_id, "COMPLETED") == SUCCESS
    status, answer = await api.call("GET", f"/api/runs/status/history?runId={run_id}")
    assert status == 200
    first, second = answer["events"]
    assert answer["runId"] == run_id
    assert first | {"id": "", "apiKeyId": ""} == {
        "id": "",
        "runId": run_id,
        "fromStatus": None,
        "toStatus": "RUNNING",
        "source": "api",
        "metadata": None,
        "actorId": None,
        "apiKeyId": "",
        "createdAt": "2023-11-14T22:13:20.000Z",
    }
    assert (second["fromStatus"], second["toStatus"]) == ("RUNNING", "COMPLETED")
    assert isinstance(second["id"], str)
    assert second["apiKeyId"] == (await api.catalog.keys.list(api.tenant))[0].id


async def test_the_worst_final_status_stays(api, run_id):
    trace = json.dumps({"type": "E", "frames": [1]})
    assert await update_status(api, run_id, "FAILED", statusMetadata=trace) == SUCCESS
    assert await update_status(api, run_id, "COMPLETED") == SUCCESS
    run = await api.run(run_id)
    assert (run.status, run.status_metadata) == ("FAILED", trace)
    _, answer = await api.call("GET", f"/api/runs/status/history?runId={run_id}")
    assert answer["events"][-1]["metadata"] == json.loads(trace)


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"statusMetadata": "{"}, "Invalid statusMetadata JSON"),
        ({"loggerSettings": "{"}, "Invalid loggerSettings JSON"),
    ],
)
async def test_a_status_with_a_broken_document_changes_nothing(api, run_id, more, error):
    assert await update_status(api, run_id, "FAILED", **more) == (400, {"error": error})
    assert (await api.run(run_id)).status == "RUNNING"


async def test_a_status_that_does_not_exist_is_refused(api, run_id):
    status, answer = await update_status(api, run_id, "DONE")
    assert (status, answer["error"]["issues"][0]["path"]) == (400, ["status"])
    assert answer["error"]["issues"][0]["code"] == "invalid_enum_value"


async def test_log_names_of_any_type_are_registered(api, run_id):
    for log_type, names in (("METRIC", ["train/loss", "acc"]), ("GRAPH", ["model", "acc"])):
        body = {"runId": run_id, "logType": log_type, "logName": names}
        assert await api.post("/api/runs/logName/add", body) == SUCCESS
    async with api.catalog.database.read() as connection:
        rows = (await connection.execute(select(log_names))).all()
    assert {row.log_name: (row.log_group, row.log_type) for row in rows} == {
        "train/loss": ("train", "METRIC"),
        "acc": ("", "METRIC"),
        "model": ("", "GRAPH"),
    }


async def test_tags_are_replaced(api, run_id):
    assert await api.post("/api/runs/tags/update", {"runId": run_id, "tags": ["a", "b"]}) == SUCCESS
    assert (await api.run(run_id)).tags == ["a", "b"]
    body = {"runId": run_id, "tags": ["group:a", "group:b"]}
    error = "A run can have at most one group:* tag."
    assert await api.post("/api/runs/tags/update", body) == (400, {"error": error})
    assert (await api.run(run_id)).tags == ["a", "b"]
    assert await api.post("/api/runs/tags/update", {"runId": run_id, "tags": []}) == SUCCESS
    assert (await api.run(run_id)).tags == []


async def test_a_configuration_is_merged_and_null_leaves_it(api, run_id):
    for config in ('{"opt": {"name": "adam"}}', '{"opt": {"lr": NaN}}', "null", None):
        assert (
            await api.post("/api/runs/config/update", {"runId": run_id, "config": config})
            == SUCCESS
        )
    assert (await api.run(run_id)).config == '{"lr":0.1,"opt":{"name":"adam","lr":NaN}}'
    for config, error in (
        ("[1]", "Invalid config JSON: expected an object"),
        ("nope", "Invalid config JSON"),
    ):
        body = {"runId": run_id, "config": config}
        assert await api.post("/api/runs/config/update", body) == (400, {"error": error})


async def test_a_heartbeat_tells_the_status_until_the_run_is_cancelled(api, run_id):
    body = {"runId": run_id}
    assert await api.post("/api/runs/trigger", body) == (
        200,
        {"status": "RUNNING", "triggers": None},
    )
    await update_status(api, run_id, "CANCELLED")
    assert await api.post("/api/runs/trigger", body) == (
        200,
        {"status": "CANCELLED", "triggers": None},
    )


async def test_an_alert_is_kept(api, run_id):
    alert = {
        "timestamp": 5,
        "level": "WARNING",
        "title": "t",
        "body": "b",
        "email": True,
        "url": None,
    }
    body = {"runId": run_id, "alert": alert}
    assert await api.post("/api/runs/alert", body) == (200, {"status": "success"})
    async with api.catalog.database.read() as connection:
        (row,) = (await connection.execute(select(alerts))).all()
    assert (row.level, row.title, row.raised_at_ms, row.wants_mail) == ("WARNING", "t", 5, True)


async def test_the_py_routes_refuse_in_their_own_words(api, run_id):
    assert await api.post("/api/runs/trigger", {"runId": 999}) == (404, {"detail": "Run not found"})
    status, answer = await api.post("/api/runs/trigger", {})
    assert (status, answer["detail"][0]["loc"]) == (422, ["body", "runId"])
    status, answer = await api.post("/api/runs/alert", {"runId": run_id, "alert": {"level": 1}})
    assert status == 422
    assert (await api.post("/api/runs/trigger", data=b"{"))[0] == 400


async def test_another_organisations_run_is_not_found_by_any_route(api, run_id):
    before = await api.run(run_id)
    for path, more in (
        ("status/update", {"status": "FAILED"}),
        ("logName/add", {"logType": "METRIC", "logName": ["a"]}),
        ("tags/update", {"tags": ["t"]}),
        ("config/update", {"config": '{"a": 1}'}),
        ("config/update", {"config": None}),
    ):
        body = {"runId": run_id} | more
        assert await api.post(f"/api/runs/{path}", body, key=api.other_key) == NOT_FOUND
    history = await api.call("GET", f"/api/runs/status/history?runId={run_id}", key=api.other_key)
    assert history == NOT_FOUND
    alert = {"level": "INFO", "title": "t", "body": "b"}
    for path, more in (("trigger", {}), ("alert", {"alert": alert})):
        answer = await api.post(f"/api/runs/{path}", {"runId": run_id} | more, key=api.other_key)
        assert answer == (404, {"detail": "Run not found"})
    assert await api.run(run_id) == before


@pytest.mark.parametrize("query", ["", "?runId=", "?runId=x", "?runId=1.5"])
async def test_a_history_needs_a_runs_number(api, query):
    status, answer = await api.call("GET", f"/api/runs/status/history{query}")
    assert (status, answer["error"]["issues"][0]["path"]) == (400, ["runId"])
    assert answer["message"].startswith("runId: ")


@pytest.mark.parametrize("run_id", ["0", "-1", "999", "9" * 30])
async def test_a_history_of_no_run_is_not_found(api, run_id):
    assert await api.call("GET", f"/api/runs/status/history?runId={run_id}") == NOT_FOUND
