from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING

import pytest

from ingest import appkeys
from ingest.answers import Code, RequestRefused
from tests.ingest.api_client import Api, running_api

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def api(tmp_path) -> AsyncIterator[Api]:
    async with running_api(tmp_path) as api:
        yield api


async def test_a_run_is_created_as_the_sdk_asks_for_it(api):
    answer = await api.create(projectName="wire lab/é")
    port = api.client.port
    url = answer.pop("url")
    assert re.fullmatch(
        rf"http://127\.0\.0\.1:{port}/o/acme/projects/wire%20lab%2F%C3%A9/\w{{5,}}", url
    )
    assert answer == {
        "runId": 1,
        "number": 1,
        "displayId": "WLA-1",
        "projectName": "wire lab/é",
        "organizationSlug": "acme",
        "resumed": False,
        "forkedFromRunId": None,
        "forkStep": None,
    }
    run = await api.run(1)
    assert (run.config, run.logger_settings, run.system_metadata) == (
        '{"lr": 0.1}',
        '{"mode": "perf"}',
        "{}",
    )


async def test_the_url_ends_in_the_runs_sqid(api):
    assert (await api.create())["url"].endswith("/o/acme/projects/wirelab/UkLWZ")


async def test_a_configured_address_is_what_clients_are_told(tmp_path):
    async with running_api(tmp_path, public_url="https://charon.example/") as api:
        url = (await api.create())["url"]
    assert url == "https://charon.example/o/acme/projects/wirelab/UkLWZ"


async def test_the_least_that_makes_a_run_is_its_name_and_project(api):
    status, answer = await api.post(
        "/api/runs/create", {"runName": "r", "projectName": "p", "new": 1}
    )
    assert (status, answer["displayId"]) == (200, "P-1")


async def test_bare_nan_is_taken_in_documents_and_around_them(api):
    run_id = (await api.create(config='{"lr": NaN}', createdAt=1_000, unknown=float("nan")))[
        "runId"
    ]
    run = await api.run(run_id)
    assert (run.config, run.created_at_ms) == ('{"lr": NaN}', 1_000)


async def test_twenty_creates_at_once_with_one_external_id_make_one_run(api):
    answers = await asyncio.gather(*(api.create(externalId="multi-node") for _ in range(20)))
    assert len({answer["runId"] for answer in answers}) == 1
    assert sorted(answer["resumed"] for answer in answers) == [False] + [True] * 19
    assert {answer["displayId"] for answer in answers} == {"WIR-1"}


async def test_an_external_id_that_is_there_resumes_its_run(api):
    first = await api.create(externalId="x", tags=["a"])
    await api.post("/api/runs/status/update", {"runId": first["runId"], "status": "COMPLETED"})
    again = await api.create(
        externalId="x", tags=["b"], config='{"more": {"x": 1}}', forkRunId=77, forkStep=1
    )
    assert again == first | {"resumed": True}
    run = await api.run(first["runId"])
    assert (run.status, run.tags, json.loads(run.config)) == (
        "RUNNING",
        ["a"],
        {"lr": 0.1, "more": {"x": 1}},
    )


async def test_a_fork_tells_the_run_that_it_comes_from(api):
    parent = await api.create(config='{"a": 1, "b": 1}', tags=["p"])
    child = await api.create(
        forkRunId=parent["runId"], forkStep=10, config='{"b": 2}', inheritTags=True
    )
    assert (child["forkedFromRunId"], child["forkStep"]) == (parent["runId"], 10)
    assert isinstance(child["forkStep"], int)
    run = await api.run(child["runId"])
    assert (json.loads(run.config), run.tags) == ({"a": 1, "b": 2}, ["p"])
    grandchild = await api.create(forkRunId=child["runId"], forkStep=2.5)
    assert (grandchild["forkedFromRunId"], grandchild["forkStep"]) == (parent["runId"], 2.5)
    assert (await api.create(forkRunId=0))["forkedFromRunId"] is None


class Steps:
    """Reads of the largest step: one answer after the other, the last one for ever."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def max_step(self, tenant, project, run_id):
        self.asked.append((tenant, project, run_id))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def fork(api, monkeypatch, *answers, step=10, wait=0.02, **given):
    monkeypatch.setattr("ingest.api_opening.FORK_WAIT_SECONDS", wait)
    monkeypatch.setattr("ingest.api_opening.FORK_POLL_SECONDS", 0.0)
    reader = Steps(*answers)
    monkeypatch.setitem(api.client.app._state, appkeys.READER, reader)
    body = {"runName": "r", "projectName": "wirelab", "forkRunId": 1, "forkStep": step} | given
    return (*await api.post("/api/runs/create", body), reader.asked)


@pytest.mark.parametrize(
    "last",
    [None, 0.0, 10.0, 11.5, RequestRefused(Code.DATABASE_UNAVAILABLE, "away")],
)
async def test_a_fork_at_a_step_that_the_parent_may_have_is_made(api, monkeypatch, last):
    await api.create()
    status, answer, asked = await fork(api, monkeypatch, last)
    assert (status, answer["forkStep"]) == (200, 10)
    assert asked == [(api.tenant, "wirelab", 1)]


async def test_a_fork_beyond_the_parents_last_step_is_refused(api, monkeypatch):
    await api.create()
    status, answer, asked = await fork(api, monkeypatch, 9.0, step=10.5)
    error = "forkStep (10.5) exceeds the parent run's max step (9)"
    assert (status, answer) == (400, {"error": error})
    assert len(asked) > 1  # its last rows might have been on their way
    assert (await api.create())["number"] == 2


async def test_a_fork_waits_for_its_parents_last_rows(api, monkeypatch):
    await api.create()
    status, _, asked = await fork(api, monkeypatch, 9.0, 10.0, wait=60)
    assert (status, len(asked)) == (200, 2)


async def test_a_fork_of_a_fork_asks_for_the_steps_of_the_run_that_holds_them(api, monkeypatch):
    await api.create()
    await api.create(forkRunId=1, forkStep=100)
    status, answer, asked = await fork(api, monkeypatch, 100.0, forkRunId=2, step=50)
    assert (status, answer["forkedFromRunId"]) == (200, 1)
    assert asked == [(api.tenant, "wirelab", 1)]


async def test_a_fork_under_an_external_id_that_is_there_is_none(api, monkeypatch):
    await api.create(externalId="x")
    status, answer, asked = await fork(api, monkeypatch, 1.0, externalId="x")
    assert (status, answer["resumed"], answer["forkedFromRunId"], asked) == (200, True, None, [])


async def test_forks_of_forks_are_followed_ten_hops_up(api, monkeypatch):
    await api.create()
    for parent in range(1, 13):
        await fork(api, monkeypatch, None, forkRunId=parent, step=100 * parent)
    assert (await fork(api, monkeypatch, None, forkRunId=13, step=50))[1]["forkedFromRunId"] == 3


@pytest.mark.parametrize(
    ("given", "status", "error"),
    [
        ({"tags": ["group:a", "group:b"]}, 400, "A run can have at most one group:* tag."),
        ({"config": "{nope"}, 400, "Invalid JSON format in request body"),
        ({"systemMetadata": ""}, 400, "Invalid JSON format in request body"),
        ({"forkRunId": 1}, 400, "forkStep is required when forkRunId is provided"),
        ({"forkRunId": 99, "forkStep": 1}, 400, "Fork parent run not found in this project"),
        ({"runName": "n" * 300}, 422, "runName may have at most 255 characters, and has 300"),
        ({"projectName": "n" * 256}, 422, "projectName may have at most 255 characters, and has"),
        ({"externalId": "n" * 256}, 422, "externalId may have at most 255 characters, and has 256"),
        ({"tags": ["t", "t" * 1_025]}, 422, "tags: a tag may have at most 1024 characters, and"),
        ({"runName": " "}, 400, "runName must not be empty"),
        ({"config": json.dumps("x" * (16 * 2**20))}, 413, "config may have at most 16777216 bytes"),
        ({"config": json.dumps([0] * 100_002)}, 413, "config may hold at most 100000 values"),
        ({"more": [0] * 110_002}, 413, "the body holds more than 110,000 JSON values"),
        ({"config": "[" * 100_000}, 400, "Invalid JSON format in request body"),
    ],
)
async def test_what_makes_no_run_is_told_why(api, given, status, error):
    body = {"runName": "r", "projectName": "p"} | given
    got, answer = await api.post("/api/runs/create", body)
    assert (got, answer["error"][: len(error)]) == (status, error)
    assert (await api.create(projectName="p"))["number"] == 1


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"runName": None}, "runName"),
        ({"projectName": ""}, "projectName"),
        ({"projectName": 5}, "projectName"),
        ({"externalId": ""}, "externalId"),
        ({"tags": ["t"] * 51}, "tags"),
        ({"tags": "t"}, "tags"),
        ({"tags": [1]}, "tags.0"),
        ({"config": {"a": 1}}, "config"),
        ({"createdAt": -1}, "createdAt"),
        ({"createdAt": 8_640_000_000_000_001}, "createdAt"),
        ({"createdAt": 1.5}, "createdAt"),
        ({"forkRunId": True}, "forkRunId"),
        ({"forkRunId": "x"}, "forkRunId"),
        ({"forkStep": float("inf"), "forkRunId": 1}, "forkStep"),
        ({"forkStep": 1e308, "forkRunId": 1}, "forkStep"),
        ({"forkStep": -(2**53) - 2, "forkRunId": 1}, "forkStep"),
    ],
)
async def test_a_field_of_the_wrong_kind_is_named_as_zod_names_it(api, given, field):
    status, answer = await api.post(
        "/api/runs/create", {"runName": "r", "projectName": "p"} | given
    )
    assert status == 400
    assert (answer["success"], answer["error"]["name"]) == (False, "ZodError")
    (issue,) = answer["error"]["issues"]
    assert ".".join(map(str, issue["path"])) == field
    assert issue["code"] in {"invalid_type", "too_big", "too_small"}
    assert answer["message"].startswith(field + ": ")


async def test_all_missing_fields_are_named_at_once(api):
    status, answer = await api.post("/api/runs/create", {})
    assert status == 400
    assert [issue["path"] for issue in answer["error"]["issues"]] == [["runName"], ["projectName"]]
    status, answer = await api.post("/api/runs/create", [1])
    assert (status, answer["error"]["issues"][0]["path"]) == (400, [])


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"a": 1}x', b"[" * 100_000, b"1" * 10_000])
async def test_what_is_no_json_is_refused(api, data):
    status, answer = await api.post("/api/runs/create", data=data)
    assert status == 400
    assert answer == {"error": "Malformed JSON in request body"} or data == b"1" * 10_000


async def test_a_body_of_many_megabytes_makes_a_run(api):
    config = json.dumps({"blob": "é\n" * 1_000_000})
    run_id = (await api.create(config=config, loggerSettings=config))["runId"]
    assert (await api.run(run_id)).config == config


async def test_a_body_over_the_limit_is_refused(tmp_path):
    async with running_api(tmp_path, body_bytes_max=100_000) as api:
        status, answer = await api.post("/api/runs/create", data=b'"' + b"x" * 200_000 + b'"')
    assert (status, answer["code"]) == (413, "BODY_TOO_LARGE")


async def test_a_run_is_resumed_in_three_ways(api):
    created = await api.create(externalId="x")
    expected = {key: created[key] for key in created if "fork" not in key} | {"resumed": True}
    for body in (
        {"runId": created["runId"]},
        {"displayId": created["displayId"]},
        {"displayId": created["displayId"].lower(), "projectName": "wirelab"},
        {"externalId": "x", "projectName": "wirelab"},
    ):
        await api.post("/api/runs/status/update", {"runId": created["runId"], "status": "FAILED"})
        assert await api.post("/api/runs/resume", body) == (200, expected)
        assert (await api.run(created["runId"])).status == "RUNNING"


async def test_a_resume_that_names_no_one_run_is_told_why(api):
    await api.create(projectName="training")
    await api.create(projectName="transport")
    for body, status, error in (
        ({"externalId": "x"}, 400, "projectName is required when using externalId"),
        (
            {"displayId": "nope"},
            400,
            "Invalid displayId format. Expected PREFIX-NUMBER (e.g., 'MMP-1')",
        ),
        ({"displayId": "TRA-9"}, 404, "Run not found"),
        ({"runId": 999}, 404, "Run not found"),
        ({"runId": 2**63}, 404, "Run not found"),
        ({"externalId": "x", "projectName": "training"}, 404, "Run not found"),
    ):
        assert await api.post("/api/runs/resume", body) == (status, {"error": error})
    status, answer = await api.post("/api/runs/resume", {"displayId": "TRA-1"})
    assert status == 409
    assert "projectName" in answer["error"]
    for body in ({}, {"runId": 1, "displayId": "TRA-1"}):
        assert (await api.post("/api/runs/resume", body))[0] == 400


async def test_another_organisation_sees_nothing_of_a_run(api):
    created = await api.create(externalId="x")
    for body in (
        {"runId": 1},
        {"displayId": "WIR-1"},
        {"externalId": "x", "projectName": "wirelab"},
    ):
        assert await api.post("/api/runs/resume", body, key=api.other_key) == (
            404,
            {"error": "Run not found"},
        )
    body = {"runName": "r", "projectName": "wirelab", "externalId": "x"}
    status, theirs = await api.post("/api/runs/create", body, key=api.other_key)
    assert (status, theirs["resumed"], theirs["organizationSlug"]) == (200, False, "other")
    assert theirs["runId"] != created["runId"]
