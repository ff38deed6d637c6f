"""The description of the API against the routes that there are, and its examples against them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ingest.api_answers import PY
from ingest.api_replies import ApiError, PyError
from ingest.api_runs import endpoints, run_routes
from ingest.api_series import SERIES_ENDPOINTS
from ingest.app import make_app
from tests.ingest.api_client import Api, running_api

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# As the SDK's own contract test has them.
FIELDS = [
    *("state", "status", "name", "displayName", "display_name", "tags"),
    *("heartbeat_at", "heartbeatAt", "created_at", "createdAt", "updated_at", "updatedAt"),
]
LEAVES = ["$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$regex"]


@pytest.fixture
async def api(tmp_path) -> AsyncIterator[Api]:
    async with running_api(tmp_path) as api:
        yield api


@pytest.fixture
async def document(api) -> dict[str, Any]:
    async with api.client.get("/api/openapi.json") as response:  # without a key
        assert response.status == 200
        return await response.json()


async def test_every_route_is_described_and_every_description_has_its_route(document):
    router = make_app(more_routes=run_routes()).router
    routes = {
        (route.method, route.resource.canonical)
        for route in router.routes()
        if route.method != "HEAD"
    }
    described = {
        (method.upper(), path) for path, item in document["paths"].items() for method in item
    }
    assert described == routes


async def test_it_is_what_the_sdks_contract_test_reads(document):
    assert document["openapi"] == "3.0.0"
    assert document["info"] == {"title": "mlop API", "version": "1.0.0"}
    assert document["components"]["securitySchemes"]["bearerAuth"]["scheme"] == "bearer"
    listing = document["paths"]["/api/runs/list"]["get"]["parameters"]
    assert {"filter", "projectName", "limit", "sort", "offset"} <= {one["name"] for one in listing}
    grammar = document["components"]["schemas"]["RunFilterGrammar"]["properties"]
    expected = {
        "booleanOperators": ["$and", "$or", "$not"],
        "leafOperators": LEAVES,
        "fields": FIELDS,
        "fieldPrefixes": ["config.", "systemMetadata.", "summaryMetrics.", "summary_metrics."],
    }
    assert {name: set(grammar[name]["items"]["enum"]) for name in grammar} == {
        name: set(words) for name, words in expected.items()
    }
    assert "FieldFilterTerm" in document["components"]["schemas"]


async def test_it_holds_only_words_of_its_version_and_every_reference_leads_somewhere(document):
    schemas = document["components"]["schemas"]
    words = {
        *("type", "properties", "required", "items", "enum", "nullable", "description", "$ref"),
        *("anyOf", "allOf", "minimum", "maximum", "minLength", "maxLength", "minItems"),
        *("maxItems", "additionalProperties", "default"),
    }

    def see(schema: Any) -> None:
        assert set(schema) <= words, schema
        if "$ref" in schema:
            assert schema["$ref"].removeprefix("#/components/schemas/") in schemas
        assert schema.get("type") in {
            *(None, "object", "array", "string", "integer", "number", "boolean"),
        }
        for part in schema.get("properties", {}).values():
            see(part)
        for part in [*schema.get("anyOf", []), *schema.get("allOf", [])]:
            see(part)
        for name in ("items", "additionalProperties"):
            if isinstance(schema.get(name), dict):
                see(schema[name])

    for schema in schemas.values():
        see(schema)
    for item in document["paths"].values():
        for operation in item.values():
            for parameter in operation.get("parameters", []):
                see(parameter["schema"])
            contents = [operation.get("requestBody", {}), *operation["responses"].values()]
            for content in contents:
                for media in content.get("content", {}).values():
                    see(media.get("schema", {}))


@pytest.fixture(params=["sqlite", "postgres"])
async def api_on_each(request, tmp_path) -> AsyncIterator[Api]:
    is_postgres = request.param == "postgres"
    database = request.getfixturevalue("postgres_url") if is_postgres else None
    async with running_api(tmp_path, database=database) as api:
        yield api


async def test_every_example_is_taken_and_every_answer_is_as_described(api_on_each):
    api = api_on_each
    created = await api.create(externalId="x")
    await api.post(
        "/api/runs/logName/add",
        {"runId": created["runId"], "logType": "METRIC", "logName": ["a/b"]},
    )
    parts = {
        "runId": str(created["runId"]),
        "displayId": created["displayId"],
        "sqid": created["url"].rpartition("/")[2],
    }
    queries = {
        "/api/runs/status/history": f"?runId={created['runId']}",
        "/api/runs/list": "?projectName=wirelab",
    }
    seen = set()
    for endpoint in endpoints():
        if endpoint.answer is None or endpoint in SERIES_ENDPOINTS:
            continue  # series need an engine: test_api_series.py
        path = re.sub(r"\{(\w+)\}", lambda found: parts[found[1]], endpoint.path)
        body = endpoint.example
        if body is not None and "runId" in body:
            body = body | {"runId": created["runId"]}
        elif endpoint.body is not None:
            assert body is not None, endpoint.path
        status, answer = await api.call(
            endpoint.method, path + queries.get(endpoint.path, ""), body
        )
        assert status == 200, (endpoint.path, answer)
        endpoint.answer.model_validate(answer)
        seen.add(endpoint.path)
    assert "/api/runs/create" in seen


async def test_an_endpoint_says_whether_it_needs_a_key_and_means_it(api, document):
    for endpoint in endpoints():
        operation = document["paths"][endpoint.path][endpoint.method.lower()]
        assert ("security" in operation) == endpoint.needs_key
        if not endpoint.needs_key:
            continue
        path = endpoint.path.replace("{", "").replace("}", "")
        headers = {"Authorization": "Bearer mlps_" + "x" * 24}
        async with api.client.request(endpoint.method, path, data=b"{}", headers=headers) as answer:
            assert answer.status == 401
            assert str(answer.status) in operation["responses"]
            model = PyError if endpoint.dialect is PY else ApiError
            model.model_validate(await answer.json())


async def test_a_body_that_is_refused_is_refused_as_described(api, document):
    for endpoint in endpoints():
        if endpoint.body is None:
            continue
        status, answer = await api.post(endpoint.path, {})
        assert str(status) in document["paths"][endpoint.path]["post"]["responses"]
        model = PyError if endpoint.dialect is PY else ApiError
        model.model_validate(answer)


def test_the_page_of_the_run_api_names_every_endpoint():
    page = (Path(__file__).parents[2] / "docs" / "run-api.md").read_text()
    named = set(re.findall(r"`((?:GET|POST) /[^`?]+)`", page))
    assert named == {f"{one.method} {one.path}" for one in endpoints()}
