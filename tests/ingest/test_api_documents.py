"""What of a stored document is given out, and that no document takes others with it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING
from urllib.parse import quote

import orjson
import pytest

from ingest.api_documents import DEPTH_MAX, json_value
from tests.ingest.api_client import Api, running_api

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def api(tmp_path) -> AsyncIterator[Api]:
    async with running_api(tmp_path, public_url="https://charon.example") as api:
        yield api


def nested(depth: int, leaf: str = "1") -> str:
    return '{"a":' * depth + leaf + "}" * depth


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (None, None),
        ('{"a":1,"a":2}', {"a": 2}),
        (
            '{"a":NaN,"b":[Infinity,{"c":-Infinity}]}',
            {"a": "NaN", "b": ["Infinity", {"c": "-Infinity"}]},
        ),
        ('{"a":1e999,"b":-1e999,"c":0.1}', {"a": "Infinity", "b": "-Infinity", "c": 0.1}),
        (r'{"a":"\ud800","b":"\ud83d\ude00"}', {"a": "\ufffd", "b": "😀"}),
        ('{"a":18446744073709551615,"b":NaN}', {"a": 2**64 - 1, "b": "NaN"}),
        ('{"a":18446744073709551616,"b":NaN}', {"a": 2.0**64, "b": "NaN"}),
        ('{"a":%s}' % ("9" * 5_000), {"a": "Infinity"}),
        ("no JSON", "no JSON"),
    ],
)
def test_a_document_is_told_as_any_json_parser_reads_it(text, value):
    assert json_value(text) == value
    assert orjson.loads(orjson.dumps(json_value(text))) == value


@pytest.mark.parametrize("leaf", ["1", "NaN"])
def test_a_document_that_is_nested_too_deeply_is_its_text(leaf):
    assert isinstance(json_value(nested(DEPTH_MAX, leaf)), dict)
    for depth in (DEPTH_MAX + 1, 254, 900):
        assert json_value(nested(depth, leaf)) == nested(depth, leaf)
    flat = json.dumps([[1]] * (DEPTH_MAX * 2))
    assert json_value(flat) == json.loads(flat)


async def test_a_deep_document_takes_no_list_and_no_history_with_it(api):
    deep = nested(300)
    run_id = (await api.create(config=deep))["runId"]
    body = {"runId": run_id, "status": "FAILED", "statusMetadata": deep}
    assert (await api.post("/api/runs/status/update", body))[0] == 200
    status, details = await api.call("GET", f"/api/runs/details/{run_id}")
    assert (status, details["config"], details["statusMetadata"]) == (200, deep, deep)
    status, answer = await api.call("GET", "/api/runs/list?projectName=wirelab")
    assert (status, [run["config"] for run in answer["runs"]]) == (200, [deep])
    status, history = await api.call("GET", f"/api/runs/status/history?runId={run_id}")
    assert (status, history["events"][-1]["metadata"]) == (200, deep)


@pytest.mark.parametrize("levels", [1_000, 1_100, 9_000])
async def test_a_body_that_is_nested_too_deeply_is_refused(api, levels):
    run_id = (await api.create())["runId"]
    layer = '{"type":"Linear","depth":1,"args":[%s]}' % ("[" * levels + "]" * levels)
    graph = '{"format":"torch","nodes":{"fc":' + layer + "}}"
    body = f'{{"runId":{run_id},"graph":{graph}}}'
    status, answer = await api.call("POST", "/api/runs/modelGraph/create", data=body.encode())
    if levels > 1_000:
        assert (status, answer) == (400, {"error": "Malformed JSON in request body"})
    elif sys.version_info < (3, 12):  # read by one parser, and too deep for the other to write
        assert (status, answer) == (400, {"error": "the request body is nested too deeply"})
    else:
        assert status == 200


@pytest.mark.parametrize("levels", [300, 450, 900])
async def test_a_deep_document_and_a_deep_filter_stop_no_list(api, levels):
    deep = "[" * levels + "1" + "]" * levels
    for document in (nested(levels), f'{{"a":{deep}}}'):
        await api.create(config='{"lr":1}', systemMetadata=document)
    for given, found in (('{"config.lr":1}', 2), (f'{{"systemMetadata.a":{{"$in":[{deep}]}}}}', 1)):
        path = f"/api/runs/list?projectName=wirelab&filter={quote(given, safe='[]')}"
        status, answer = await api.call("GET", path)
        assert (status, len(answer["runs"])) == (200, found)


async def test_times_beyond_the_year_9999_are_told_as_javascript_writes_them(api):
    last = 8_640_000_000_000_000
    run_id = (await api.create(createdAt=last, updatedAt=last))["runId"]
    _, details = await api.call("GET", f"/api/runs/details/{run_id}")
    assert details["createdAt"] == details["updatedAt"] == "+275760-09-13T00:00:00.000Z"
    for path in ("list?projectName=wirelab", "projects"):
        assert (await api.call("GET", f"/api/runs/{path}"))[0] == 200


async def test_half_a_surrogate_pair_is_stored_as_another_letter_whatever_the_name(api):
    given = {"runName": "r\ud800", "projectName": "p\ud800", "externalId": "e\ud800"}
    run_id = (await api.create(**given))["runId"]
    run = await api.run(run_id)
    assert (run.name, run.project, run.external_id) == ("r\ufffd", "p\ufffd", "e\ufffd")
    assert (await api.create(**given))["runId"] == run_id
    status, answer = await api.post("/api/runs/create", {"runName": "r", "projectName": ""})
    assert (status, answer["error"]["issues"][0]["code"]) == (400, "too_small")
    status, answer = await api.post("/api/runs/trigger", {"runId": True})
    assert answer["detail"][0]["msg"] == "Expected number, received boolean"


@pytest.mark.parametrize(
    ("method", "path", "phrase"),
    [("GET", "/api/nothing", "Not Found"), ("DELETE", "/api/runs/create", "Method Not Allowed")],
)
async def test_errors_before_any_handler_have_the_words_of_the_api_too(api, method, path, phrase):
    _, answer = await api.call(method, path)
    assert answer["error"] == phrase
    assert answer["message"]


async def test_a_list_is_bounded_by_when_rows_came_or_says_that_it_cannot_be(api):
    ids = [(await api.create())["runId"] for _ in range(3)]
    await api.catalog.heartbeats.note_rows({ids[0]: 1_000, ids[1]: 2_000})

    async def found(query: str) -> list[int]:
        _, answer = await api.call("GET", f"/api/runs/list?projectName=wirelab&{query}")
        return sorted(run["id"] for run in answer["runs"])

    assert await found("heartbeatAfter=1970-01-01T00:00:02Z") == [ids[1]]
    assert await found("heartbeatBefore=1970-01-01T00:00:01Z") == [ids[0]]
    both = "heartbeatAfter=1970-01-01&heartbeatBefore=1970-01-02"
    assert await found(both) == ids[:2]
    assert await found(f'{both}&filter={{"name":{{"$ne":"basic"}}}}') == []
    for query in ("heartbeatAfter=soon", f"{both}&filter={{", "konduktorJobPrefix=job"):
        status, _ = await api.call("GET", f"/api/runs/list?projectName=wirelab&{query}")
        assert status == 400, query
