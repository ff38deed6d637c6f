"""Changing a run: status, names, tags, notes, configuration, graphs; and its status history."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from catalog.iso_times import iso_time
from catalog.run_status import StatusRequest
from ingest.api_bodies import (
    ConfigBody,
    GraphBody,
    LogNameBody,
    NotesBody,
    StatusBody,
    TagsBody,
)
from ingest.api_documents import json_value
from ingest.api_endpoints import asked, taking
from ingest.api_queries import RunQuery
from ingest.api_replies import History, Success
from ingest.appkeys import HEARTBEATS

if TYPE_CHECKING:
    from catalog.run_events import RunEvent
    from ingest.api_calls import Asked, Call

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


async def update_notes(call: Call[NotesBody]) -> dict[str, Any]:
    """Replaces the notes."""
    await call.catalog.runs.set_notes(call.tenant, call.body.run_id, call.body.notes)
    return SUCCESS


async def add_model_graph(call: Call[GraphBody]) -> dict[str, Any]:
    """Adds a graph of the run's model; one that is there already is there once."""
    graph = call.body.graph.model_dump(by_alias=True, exclude_unset=True)
    text = json.dumps(graph, sort_keys=True, separators=(",", ":"))
    await call.catalog.model_graphs.add(call.tenant, call.body.run_id, text)
    return SUCCESS


async def status_history(call: Asked[RunQuery]) -> dict[str, Any]:
    """The changes of a run's status, oldest first."""
    run_id = call.query.run_id
    events = await call.catalog.runs.history(call.tenant, run_id)
    return {"runId": run_id, "events": [_event(event) for event in events]}


UPDATE_ENDPOINTS = [
    taking(
        "/api/runs/status/update",
        StatusBody,
        update_status,
        Success,
        example={
            "runId": 100,
            "status": "COMPLETED",
            "statusMetadata": None,
            "statusUpdated": None,
        },
    ),
    asked("/api/runs/status/history", RunQuery, status_history, History),
    taking(
        "/api/runs/logName/add",
        LogNameBody,
        add_log_names,
        Success,
        example={"runId": 100, "logType": "METRIC", "logName": ["train/loss", "acc"]},
    ),
    taking(
        "/api/runs/tags/update",
        TagsBody,
        update_tags,
        Success,
        example={"runId": 100, "tags": ["baseline", "group:sweep-3"]},
    ),
    taking(
        "/api/runs/notes/update",
        NotesBody,
        update_notes,
        Success,
        example={"runId": 100, "notes": "warm-up too short"},
    ),
    taking(
        "/api/runs/config/update",
        ConfigBody,
        update_config,
        Success,
        example={"runId": 100, "config": '{"optimizer": {"lr": 0.1}}'},
    ),
    taking(
        "/api/runs/modelGraph/create",
        GraphBody,
        add_model_graph,
        Success,
        example={
            "runId": 100,
            "graph": {
                "format": "torch",
                "nodes": {"fc": {"type": "Linear", "depth": 1, "params": {"weight": [8, 4]}}},
            },
        },
    ),
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
