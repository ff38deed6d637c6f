"""What `GET /api/openapi.json` says of the routes of ingestion and health."""

from __future__ import annotations

from typing import Any

_KEY: list[dict[str, list[str]]] = [{"bearerAuth": []}]
_HEADERS = [
    {"name": name, "in": "header", "required": True, "schema": {"type": kind}}
    for name, kind in (("X-Run-Id", "integer"), ("X-Project-Name", "string"))
]


def _get(summary: str, content_type: str = "application/json", *, key: bool = False) -> Any:  # noqa: ANN401 - JSON
    operation: dict[str, Any] = {
        "summary": summary,
        "responses": {"200": {"description": "Done", "content": {content_type: {}}}},
    }
    return {"get": operation | ({"security": _KEY} if key else {})}


def _lines(summary: str) -> dict[str, Any]:
    operation = {
        "summary": summary,
        "security": _KEY,
        "parameters": _HEADERS,
        "requestBody": {
            "required": True,
            "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
        },
        "responses": {
            "200": {"description": "Every row that is not told refused is on disk"},
            "400": {"description": "A header is missing or malformed"},
            "401": {"description": "The key is missing, unknown, expired or revoked"},
            "403": {"description": "The key lacks the scope `ingest`"},
            "413": {"description": "The body is above its limit"},
            "503": {"description": "No room, or no disk; try again"},
        },
    }
    return {"post": operation}


INGEST_PATHS: dict[str, dict[str, Any]] = {
    "/ingest/metrics": _lines("Metrics, one JSON object a line."),
    "/ingest/logs": _lines("Console lines, one JSON object a line."),
    "/ingest/data": _lines("Histograms, tables and string series, one JSON object a line."),
    "/ingest/refused": _get("The lines refused last of the key's organisation.", key=True),
    "/step": {
        "post": {
            "summary": "The largest step of a run's metrics.",
            "security": _KEY,
            "parameters": _HEADERS,
            "responses": {"200": {"description": "Done", "content": {"application/json": {}}}},
        }
    },
    "/health": _get("The process answers.", "text/plain"),
    "/health/ready": _get("Whether rows can be made durable, and each dependency's state."),
    "/health/dlq": _get("What was accepted and proved undeliverable."),
    "/version": _get("The release that runs."),
    "/metrics": _get("The server's numbers, for Prometheus.", "text/plain"),
}
