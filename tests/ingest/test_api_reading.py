from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from tests.ingest.api_client import Api, running_api

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NOT_FOUND = (404, {"error": "Run not found"})


@pytest.fixture
async def api(tmp_path) -> AsyncIterator[Api]:
    async with running_api(tmp_path, public_url="https://charon.example") as api:
        yield api


async def test_a_runs_details_are_told_by_number_and_by_display_id(api):
    parent = await api.create()
    created = await api.create(
        externalId="x",
        tags=["t"],
        config='{"lr": NaN}',
        systemMetadata=None,
        forkRunId=parent["runId"],
        forkStep=2.5,
        inheritConfig=False,
        createdAt=0,
    )
    names = {"runId": created["runId"], "logType": "METRIC", "logName": ["train/loss"]}
    await api.post("/api/runs/logName/add", names)
    await api.post("/api/runs/notes/update", {"runId": created["runId"], "notes": "n"})
    trace = {"runId": created["runId"], "status": "FAILED", "statusMetadata": '{"type": "E"}'}
    await api.post("/api/runs/status/update", trace)
    status, details = await api.call("GET", f"/api/runs/details/{created['runId']}?projectName=?")
    now = "2023-11-14T22:13:20.000Z"
    assert status == 200
    assert details == {
        "id": created["runId"],
        "name": "basic",
        "number": 2,
        "displayId": "WIR-2",
        "status": "FAILED",
        "tags": ["t"],
        "config": {"lr": "NaN"},  # which JSON has no word for
        "systemMetadata": None,
        "loggerSettings": {"mode": "perf"},
        "statusMetadata": {"type": "E"},
        "createdAt": "1970-01-01T00:00:00.000Z",
        "updatedAt": now,
        "statusUpdated": now,
        "projectName": "wirelab",
        "externalId": "x",
        "forkedFromRunId": parent["runId"],
        "forkStep": 2.5,
        "notes": "n",
        "url": created["url"],
        "logNames": [{"logName": "train/loss", "logType": "METRIC", "logGroup": "train"}],
    }
    for path in ("WIR-2", "wir-2", "WIR-2?projectName=wirelab"):
        got = await api.call("GET", f"/api/runs/details/by-display-id/{path}")
        assert got == (200, details)


async def test_details_of_what_names_no_one_run_are_refused(api):
    await api.create(projectName="training")
    await api.create(projectName="transport")
    for path in ("details/99", f"details/{'9' * 30}", "details/0", "details/by-display-id/TRA-9"):
        assert await api.call("GET", f"/api/runs/{path}") == NOT_FOUND
    for path in ("details/1", "details/by-display-id/TRA-1"):
        assert await api.call("GET", f"/api/runs/{path}", key=api.other_key) == NOT_FOUND
    status, answer = await api.call("GET", "/api/runs/details/x")
    assert (status, answer) == (400, {"error": "runId must be a run's number"})
    # The SDK asks so for every text.
    status, answer = await api.call("GET", "/api/runs/details/by-display-id/123")
    message = "Invalid display ID format. Expected PREFIX-NUMBER (e.g., 'MMP-1')"
    assert (status, answer) == (400, {"error": message})
    status, answer = await api.call("GET", "/api/runs/details/by-display-id/TRA-1")
    assert status == 409
    assert "projectName" in answer["error"]


async def test_projects_are_listed_newest_first(api):
    for project in ("first", "second", "second"):
        api.clock.now_ms += 1_000
        await api.create(projectName=project)
    status, answer = await api.call("GET", "/api/runs/projects")
    assert status == 200
    assert answer["projects"] == [
        {
            "id": 2,
            "name": "second",
            "createdAt": "2023-11-14T22:13:22.000Z",
            "updatedAt": "2023-11-14T22:13:23.000Z",
            "runCount": 2,
        },
        {
            "id": 1,
            "name": "first",
            "createdAt": "2023-11-14T22:13:21.000Z",
            "updatedAt": "2023-11-14T22:13:21.000Z",
            "runCount": 1,
        },
    ]
    assert await api.call("GET", "/api/runs/projects", key=api.other_key) == (200, {"projects": []})


async def test_a_runs_short_address_leads_to_its_number_without_a_key(api):
    for sqid, run_id in (("UkLWZ", 1), ("86uR0", 100), ("gMvFo", 1_000_000)):
        assert await api.call("GET", f"/api/runs/{sqid}", key="none") == (200, {"runId": run_id})
    for text in ("nothing", "86uR0x", "%C3%A9", "a" * 5_000):
        assert await api.call("GET", f"/api/runs/{text}") == NOT_FOUND


@pytest.mark.parametrize("notes", ["n" * 1_000, "", None])
async def test_notes_are_replaced(api, notes):
    run_id = (await api.create())["runId"]
    await api.post("/api/runs/notes/update", {"runId": run_id, "notes": "before"})
    body = {"runId": run_id, "notes": notes}
    assert await api.post("/api/runs/notes/update", body) == (200, {"success": True})
    assert (await api.run(run_id)).notes == (notes or None)


async def test_notes_that_are_too_long_or_missing_are_refused(api):
    run_id = (await api.create())["runId"]
    body = {"runId": run_id, "notes": "n" * 1_001}
    error = "notes may have at most 1000 characters, and has 1001"
    assert await api.post("/api/runs/notes/update", body) == (422, {"error": error})
    status, answer = await api.post("/api/runs/notes/update", {"runId": run_id})
    assert (status, answer["message"]) == (400, "notes: Field required")


GRAPH = {
    "format": "torch",
    "nodes": {
        ".": {"type": "Net", "depth": 0, "node_type": "MODULE", "inst_id": "0", "label": None},
        "fc": {
            "type": "Linear",
            "depth": 1,
            "order": 3,
            "args": [float("nan"), "\ud800"],
            "kwargs": {"bias": True},
            "params": {"weight": [8, 4]},
            "edges": [["a", "b"]],
            "more": 1,
        },
    },
}


async def test_a_model_graph_is_kept_as_it_came_and_once(api):
    run_id = (await api.create())["runId"]
    for _ in range(2):
        body = {"runId": run_id, "graph": GRAPH}
        assert await api.post("/api/runs/modelGraph/create", body) == (200, {"success": True})
    (kept,) = await api.catalog.model_graphs.of_run(api.tenant, run_id)
    assert json.dumps(json.loads(kept.graph), sort_keys=True) == json.dumps(GRAPH, sort_keys=True)
    other = {"format": "torch", "nodes": {}}
    await api.post("/api/runs/modelGraph/create", {"runId": run_id, "graph": other})
    assert len(await api.catalog.model_graphs.of_run(api.tenant, run_id)) == 2
    body = {"runId": run_id, "graph": other}
    assert await api.post("/api/runs/modelGraph/create", body, key=api.other_key) == NOT_FOUND


@pytest.mark.parametrize(
    ("node", "field"),
    [
        ({"type": "Linear"}, "graph.nodes.fc.depth"),
        ({"type": 1, "depth": 0}, "graph.nodes.fc.type"),
        ({"type": "L", "depth": 0, "params": {"w": ["x"]}}, "graph.nodes.fc.params.w.0"),
        ({"type": "L", "depth": 0, "edges": [["a"]]}, "graph.nodes.fc.edges.0"),
    ],
)
async def test_a_node_that_is_none_is_named(api, node, field):
    run_id = (await api.create())["runId"]
    body = {"runId": run_id, "graph": {"format": "torch", "nodes": {"fc": node}}}
    status, answer = await api.post("/api/runs/modelGraph/create", body)
    assert (status, answer["message"].partition(": ")[0]) == (400, field)


@pytest.mark.parametrize("level", ["INFO", "WARNING", "ERROR", "DEBUG", "RUN_FAILED", "MY OWN", ""])
async def test_an_alert_of_any_level_with_any_address_and_no_word_on_mail_is_taken(api, level):
    run_id = (await api.create())["runId"]
    alert = {"timestamp": 1, "level": level, "title": "t\0", "body": "b", "email": None}
    for url in (None, "https://hooks.example/x"):
        body = {"runId": run_id, "alert": alert | {"url": url}}
        assert await api.post("/api/runs/alert", body) == (200, {"status": "success"})
    body = {"runId": run_id, "alert": alert | {"title": "t" * 65_537}}
    status, answer = await api.post("/api/runs/alert", body)
    error = "alert.title may have at most 65536 characters, and has 65537"
    assert (status, answer) == (422, {"detail": error})


async def test_the_health_of_each_service_is_told_without_a_key(api):
    body = {"status": "ok", "heartbeatWrites": {"failing": False}}
    assert await api.call("GET", "/healthz", key="none") == (200, body)
    assert await api.call("GET", "/api/health", key="none") == (200, {"status": "ok"})


async def test_runs_of_a_project_are_listed(api):
    first = await api.create(tags=["a"], config='{"lr": 0.1}')
    await api.create(projectName="elsewhere")
    api.clock.now_ms += 1
    second = await api.create(runName="second", tags=["b"], config=None)
    await api.post("/api/runs/status/update", {"runId": second["runId"], "status": "FAILED"})
    status, answer = await api.call("GET", "/api/runs/list?projectName=wirelab&limit=1")
    assert status == 200
    assert answer == {
        "runs": [
            {
                "id": second["runId"],
                "name": "second",
                "number": 2,
                "displayId": "WIR-2",
                "projectName": "wirelab",
                "status": "FAILED",
                "tags": ["b"],
                "config": None,
                "url": second["url"],
                "createdAt": "2023-11-14T22:13:20.001Z",
                "updatedAt": "2023-11-14T22:13:20.001Z",
            }
        ],
        "total": 2,
    }
    lr = quote('{"$not":{"state":"crashed"},"\\u0063onfig.lr":{"$lt":0.2}}')
    for query in (
        f"filter={lr}",
        "offset=1",
        "tags=%20a%20,zzz",
        "status=RUNNING",
        "search=WIR-1",
        "sort=name&limit=1",
    ):
        status, answer = await api.call("GET", f"/api/runs/list?projectName=wirelab&{query}")
        assert [run["id"] for run in answer["runs"]] == [first["runId"]], query
        assert answer["runs"][0]["config"] == {"lr": 0.1}
    nothing = (200, {"runs": [], "total": 0})
    assert await api.call("GET", "/api/runs/list?projectName=unknown") == nothing
    assert await api.call("GET", "/api/runs/list?projectName=wirelab", key=api.other_key) == nothing


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "projectName is required"),
        ("projectName=p&limit=0", "limit"),
        ("projectName=p&limit=201", "limit"),
        ("projectName=p&offset=-1", "offset"),
        ("projectName=p&status=DONE", "status.0"),
        ("projectName=p&sort=id", "sort must be one of"),
        ("projectName=p&filter=%7B", "filter must be valid JSON"),
        ("projectName=p&fieldFilters=%5B%5D", "fieldFilters is not taken yet"),
    ],
)
async def test_a_list_that_cannot_be_made_is_refused_with_the_field(api, query, field):
    status, answer = await api.call("GET", f"/api/runs/list?{query}")
    assert status == 400
    message = answer.get("message") or answer["error"]
    assert message.startswith(field)
