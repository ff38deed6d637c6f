"""The description of the HTTP interface, OpenAPI 3.0.0, from the endpoints themselves.

The routes of ingestion stand beside them by hand: their bodies are lines of JSON, which the format
has no words for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web
from pydantic.json_schema import models_json_schema

from ingest.answers import JSON
from ingest.api_answers import PY
from ingest.api_filters import FIELD_FILTER_TERM, GRAMMAR
from ingest.api_replies import ApiError, PyError
from ingest.openapi_ingest import INGEST_PATHS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from pydantic import BaseModel
    from pydantic.json_schema import JsonSchemaMode

    from ingest.api_endpoints import Endpoint

TITLE = "mlop API"
"""As clients of the reference know it: their contract tests read it."""
VERSION = "1.0.0"

_REFERENCE = "#/components/schemas/{model}"
_REFUSALS = {
    400: "A field is missing, of the wrong kind, or makes no sense here",
    401: "The key is missing, unknown, expired or revoked",
    403: "The key lacks the scope",
    404: "No run of that name or number belongs to the key's organisation",
    409: "Several runs match",
    413: "The body or a document is above its limit",
    422: "A name is above its limit",
    429: "Too many failed keys from this address",
    503: "The catalogue's database cannot be used now, or there is no room; try again",
}


def described(
    endpoints: Sequence[Endpoint], *, path: str
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """A handler that gives the description of these endpoints, and of itself.

    Args:
        endpoints: all others.
        path: its own.
    """
    document = orjson.dumps(openapi(endpoints, path=path))

    async def describe(_request: web.Request) -> web.Response:
        """This description."""
        return web.Response(body=document, content_type=JSON)

    return describe


def openapi(endpoints: Sequence[Endpoint], *, path: str) -> dict[str, Any]:
    """The description as a document."""
    paths: dict[str, dict[str, Any]] = {where: dict(what) for where, what in INGEST_PATHS.items()}
    paths[path] = {"get": {"summary": "This description.", "responses": _ok(None)}}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.0.0",
        "info": {"title": TITLE, "version": VERSION},
        "paths": paths,
        "components": {
            "schemas": _schemas(endpoints)
            | {"RunFilterGrammar": GRAMMAR, "FieldFilterTerm": FIELD_FILTER_TERM},
            "securitySchemes": {"bearerAuth": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "parameters": [*_path_parameters(endpoint.path), *_query_parameters(endpoint.query)],
        "responses": _ok(endpoint.answer) | _refusals(endpoint),
    }
    if endpoint.needs_key:
        operation["security"] = [{"bearerAuth": []}]
        operation["description"] = (
            f"The key needs the scope `{endpoint.scope}`."
            if endpoint.scope
            else "Any valid key will do."
        )
    if endpoint.body is not None:
        content: dict[str, Any] = {"schema": _reference(endpoint.body)}
        if endpoint.example is not None:
            content["example"] = endpoint.example
        operation["requestBody"] = {"required": True, "content": {JSON: content}}
    return operation


def _path_parameters(path: str) -> list[dict[str, Any]]:
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    schemas = {"runId": {"type": "integer"}}
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": schemas.get(name, {"type": "string"}),
        }
        for name in names
    ]


def _query_parameters(query: type[BaseModel] | None) -> list[dict[str, Any]]:
    if query is None:
        return []
    schema = _plain(query.model_json_schema(by_alias=True, ref_template=_REFERENCE))
    required = schema.get("required", [])
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            **({"description": text} if (text := what.pop("description", None)) else {}),
            "schema": what,
        }
        for name, what in schema["properties"].items()
    ]


def _ok(answer: type[BaseModel] | None) -> dict[str, Any]:
    schema = {"type": "object"} if answer is None else _reference(answer)
    return {"200": {"description": "Done", "content": {JSON: {"schema": schema}}}}


def _refusals(endpoint: Endpoint) -> dict[str, Any]:
    statuses = [401, 403, 429, 503] if endpoint.needs_key else []
    if endpoint.body is not None:
        statuses += [400, 404, 413, 422]
    if endpoint.query is not None or "{" in endpoint.path:
        statuses += [400, 404]
    if endpoint.path.endswith(("/resume", "{displayId}")):
        statuses.append(409)
    model = PyError if endpoint.dialect is PY else ApiError
    content = {JSON: {"schema": _reference(model)}}
    return {
        str(status): {"description": _REFUSALS[status], "content": content}
        for status in sorted(set(statuses))
    }


def _schemas(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    kinds: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        (ApiError, "serialization"),
        (PyError, "serialization"),
    ]
    for endpoint in endpoints:
        kinds += [(endpoint.body, "validation")] if endpoint.body is not None else []
        kinds += [(endpoint.answer, "serialization")] if endpoint.answer is not None else []
    _, schema = models_json_schema(
        list(dict.fromkeys(kinds)), by_alias=True, ref_template=_REFERENCE
    )
    definitions: dict[str, Any] = _plain(schema["$defs"])
    return definitions


def _reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(model=model.__name__)}


def _plain(schema: Any) -> Any:  # noqa: ANN401 - JSON may be anything
    """The same in the words of OpenAPI 3.0, which has no type null and no constants."""
    if isinstance(schema, list):
        return [_plain(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {name: _plain(what) for name, what in schema.items()}
    if isinstance(plain.get("title"), str):
        del plain["title"]  # the field's name again
    if "default" in plain and plain["default"] is None:
        del plain["default"]
    if "const" in plain:
        plain["enum"] = [plain.pop("const")]
    if plain.get("type") == "null":
        del plain["type"]
        plain |= {"nullable": True, "enum": [None]}
    choices = plain.get("anyOf")
    if isinstance(choices, list):
        others = [choice for choice in choices if choice.get("enum") != [None]]
        if len(others) < len(choices):
            del plain["anyOf"]
            if len(others) == 1 and "$ref" not in others[0]:
                plain = others[0] | plain
            else:
                plain["allOf" if len(others) == 1 else "anyOf"] = others
            plain["nullable"] = True
    return plain
