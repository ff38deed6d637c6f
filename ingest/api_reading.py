"""Reading the catalogue: a run's details, the projects, and the run of a short address."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from catalog import json_depth
from catalog.errors import Invalid, NotFound
from catalog.iso_times import iso_time
from catalog.run_pages import RunSearch
from catalog.sqid import run_id_of
from ingest.api_answers import API, json_response
from ingest.api_documents import in_turns, json_value
from ingest.api_endpoints import asked, giving, public
from ingest.api_opening import plain_number, run_url
from ingest.api_queries import DetailsQuery, ListQuery
from ingest.api_replies import Details, Projects, RunNumber
from ingest.api_series_replies import RunList

if TYPE_CHECKING:
    from aiohttp import web

    from catalog.run_details import RunDetails
    from ingest.api_calls import Asked, Caller

SQID_LENGTH_MAX = 64


async def projects(caller: Caller) -> dict[str, Any]:
    """The organisation's projects, newest first."""
    return {
        "projects": [
            {
                "id": project.id,
                "name": project.name,
                "createdAt": iso_time(project.created_at_ms),
                "updatedAt": iso_time(project.updated_at_ms),
                "runCount": project.run_count,
            }
            for project in await caller.catalog.runs.projects(caller.tenant)
        ]
    }


async def list_runs(call: Asked[ListQuery]) -> dict[str, Any]:
    """Runs of a project, found and sorted, a page at a time."""
    query = call.query
    if query.konduktor_job_prefix is not None:
        raise Invalid("konduktorJobPrefix is not taken yet: use filter")
    if query.project_name is None:
        raise Invalid("projectName is required")
    if query.field_filters is not None:
        raise Invalid("fieldFilters is not taken yet: use filter")
    search = RunSearch(
        project=query.project_name,
        text=query.search,
        tags=query.tags,
        statuses=query.status,
        filter=_filter(query),
        sort=query.sort,
        limit=query.limit,
        offset=query.offset,
    )
    page = await call.catalog.runs.page(call.tenant, search)
    return {
        "runs": [
            {
                "id": run.head.id,
                "name": run.head.name,
                "number": run.head.number,
                "displayId": run.head.display_id,
                "projectName": run.head.project,
                "status": run.head.status,
                "tags": run.tags,
                "config": json_value(run.config),
                "url": run_url(call.request, page.organisation_slug, run.head),
                "createdAt": iso_time(run.head.created_at_ms),
                "updatedAt": iso_time(run.head.updated_at_ms),
            }
            async for run in in_turns(page.runs)
        ],
        "total": page.total,
    }


async def details(call: Asked[DetailsQuery]) -> dict[str, Any]:
    """A run whole, by its number; the project's name is not looked at."""
    run_id = path_number(call.request, "runId")
    found = await call.catalog.runs.details(call.tenant, run_id)
    return _details(call.request, found)


async def details_by_display_id(call: Asked[DetailsQuery]) -> dict[str, Any]:
    """A run whole, by its display id; the project's name where several have it."""
    text = call.request.match_info["displayId"]
    try:
        found = await call.catalog.runs.details_by_display_id(
            call.tenant, text, call.query.project_name
        )
    except Invalid as error:
        message = "Invalid display ID format. Expected PREFIX-NUMBER (e.g., 'MMP-1')"
        raise Invalid(message) from error
    return _details(call.request, found)


async def run_of_sqid(request: web.Request) -> web.Response:
    """The number of the run whose address ends so; whether there is one is not told."""
    text = request.match_info["sqid"]
    run_id = run_id_of(text) if len(text) <= SQID_LENGTH_MAX else None
    if run_id is None:
        return API.refused(404, "Run not found")
    return json_response({"runId": run_id})


READING_ENDPOINTS = [
    giving("/api/runs/projects", projects, Projects),
    asked("/api/runs/list", ListQuery, list_runs, RunList),
    asked(
        "/api/runs/details/by-display-id/{displayId}", DetailsQuery, details_by_display_id, Details
    ),
    asked("/api/runs/details/{runId}", DetailsQuery, details, Details),
]
LAST_ENDPOINTS = [public("/api/runs/{sqid}", run_of_sqid, RunNumber)]
"""Whose paths hold what others have a word for."""


def _filter(query: ListQuery) -> str | None:
    """The filter, with the bounds of the heartbeat as another condition."""
    bounds = {"$gte": query.heartbeat_after, "$lte": query.heartbeat_before}
    bounds = {operator: time for operator, time in bounds.items() if time is not None}
    if not bounds:
        return query.filter
    try:
        given = json_depth.loads(query.filter or "{}")
        return json.dumps({"$and": [given, {"heartbeat_at": bounds}]})
    except (ValueError, RecursionError) as error:
        raise Invalid("filter must be valid JSON") from error


def path_number(request: web.Request, name: str) -> int:
    """A number in the path.

    Raises:
        Invalid: it is none. NotFound: no run can have it.
    """
    text = request.match_info[name]
    if not (text.isascii() and text.isdecimal()):
        raise Invalid(f"{name} must be a run's number")
    if len(text) > 20:
        raise NotFound("Run not found")
    return int(text)


def _details(request: web.Request, found: RunDetails) -> dict[str, Any]:
    run = found.run
    updated_at_ms = run.status_updated_at_ms
    return {
        "id": run.id,
        "name": run.name,
        "number": run.number,
        "displayId": run.display_id,
        "status": run.status,
        "tags": run.tags,
        "config": json_value(run.config),
        "systemMetadata": json_value(run.system_metadata),
        "loggerSettings": json_value(run.logger_settings),
        "statusMetadata": json_value(run.status_metadata),
        "createdAt": iso_time(run.created_at_ms),
        "updatedAt": iso_time(run.updated_at_ms),
        "statusUpdated": None if updated_at_ms is None else iso_time(updated_at_ms),
        "projectName": run.project,
        "externalId": run.external_id,
        "forkedFromRunId": run.forked_from_run_id,
        "forkStep": plain_number(run.fork_step),
        "notes": run.notes,
        "url": run_url(request, found.organisation_slug, run),
        "logNames": [
            {"logName": name.name, "logType": name.type, "logGroup": name.group}
            for name in found.log_names
        ],
    }
