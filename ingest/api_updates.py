"""Changing a run that is open: status, names, tags, configuration; and its status history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from catalog.errors import Invalid
from catalog.run_status import StatusRequest
from ingest.api_answers import API, iso_time
from ingest.api_bodies import ConfigBody, LogNameBody, StatusBody, TagsBody
from ingest.api_calls import with_body, with_key
from ingest.appkeys import HEARTBEATS

if TYPE_CHECKING:
    from catalog.run_events import RunEvent
    from ingest.api_calls import Call, Caller

SUCCESS: dict[str, Any] = {"success": True}


async def update_status(call: Call[StatusBody]) -> dict[str, Any]:
    """A milder final status than the stored one is answered as a success, and ignored."""
    body = call.body
    request = StatusRequest(
        status=body.status,
        metadata=body.status_metadata,
        has_metadata="status_metadata" in body.model_fields_set,
        logger_settings=body.logger_settings,
        status_updated_at_ms=body.status_updated,
    )
    await call.catalog.runs.update_status(call.tenant, body.run_id, request, api_key_id=call.key.id)
    call.request.app[HEARTBEATS].forget(call.tenant, body.run_id)
    return SUCCESS


async def add_log_names(call: Call[LogNameBody]) -> dict[str, Any]:
    """Registers names; the first type of a name stays."""
    body = call.body
    await call.catalog.log_names.add(call.tenant, body.run_id, body.log_type, body.log_name)
    return SUCCESS


async def update_tags(call: Call[TagsBody]) -> dict[str, Any]:
    """Replaces the list."""
    await call.catalog.runs.set_tags(call.tenant, call.body.run_id, call.body.tags)
    return SUCCESS


async def update_config(call: Call[ConfigBody]) -> dict[str, Any]:
    """Merges an object; null leaves all as it is."""
    await call.catalog.runs.merge_config(call.tenant, call.body.run_id, call.body.config)
    return SUCCESS


async def status_history(caller: Caller) -> dict[str, Any]:
    """All changes of a run's status, oldest first."""
    text = caller.request.query.get("runId", "")
    if not (text.isascii() and text.isdecimal() and len(text) <= 20):
        raise Invalid("runId must be a run's number")
    events = await caller.catalog.runs.history(caller.tenant, int(text))
    return {"runId": int(text), "events": [_event(event) for event in events]}


UPDATE_ROUTES = [
    web.post("/api/runs/status/update", with_body(API, StatusBody, update_status)),
    web.get("/api/runs/status/history", with_key(API, status_history)),
    web.post("/api/runs/logName/add", with_body(API, LogNameBody, add_log_names)),
    web.post("/api/runs/tags/update", with_body(API, TagsBody, update_tags)),
    web.post("/api/runs/config/update", with_body(API, ConfigBody, update_config)),
]


def _event(event: RunEvent) -> dict[str, Any]:
    return {
        "id": str(event.id),
        "runId": event.run_id,
        "fromStatus": event.from_status,
        "toStatus": event.to_status,
        "source": event.source,
        "metadata": json_value(event.metadata),
        "actorId": event.actor_id,
        "apiKeyId": event.api_key_id,
        "createdAt": iso_time(event.created_at_ms),
    }


def json_value(text: str | None) -> Any:  # noqa: ANN401 - JSON may be anything
    """A stored document as a value; what is no strict JSON (a bare NaN) as its text."""
    if text is None:
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
