"""Opening a run: create and resume."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from catalog.documents import NotJson
from catalog.errors import Invalid
from catalog.run_creation import NewRun
from catalog.run_forks import ForkRequest
from catalog.sqid import sqid_of
from ingest.answers import RequestRefused
from ingest.api_bodies import CreateBody, ResumeBody
from ingest.api_endpoints import taking
from ingest.api_replies import Created, Resumed
from ingest.appkeys import HEARTBEATS, READER, RUNS, SETTINGS
from schema.ids import RunId, TenantId

if TYPE_CHECKING:
    from aiohttp import web

    from catalog.run_creation import OpenedRun
    from catalog.run_records import RunHead
    from ingest.api_calls import Call

FORK_WAIT_SECONDS = 3.0
"""A step that is too large is asked for again so long: rows take a second to where they are read,
and a run may be forked as soon as it has ended."""
FORK_POLL_SECONDS = 0.25


async def create(call: Call[CreateBody]) -> dict[str, Any]:
    """Makes a run, or resumes the one of that external id."""
    body = call.body
    new = NewRun(
        name=body.run_name,
        project=body.project_name,
        external_id=body.external_id,
        tags=body.tags or (),
        config=body.config,
        system_metadata=body.system_metadata,
        logger_settings=body.logger_settings,
        created_at_ms=body.created_at,
        updated_at_ms=body.updated_at,
        fork=_fork(body),
        api_key_id=call.key.id,
    )
    if new.fork is not None:
        await _see_fork_step(call, new)
    try:
        opened = await call.catalog.runs.create(call.tenant, new)
    except NotJson as error:
        raise Invalid("Invalid JSON format in request body") from error
    run = opened.run
    _expect(call.request, opened)
    is_fork = not opened.is_resumed and run.forked_from_run_id is not None
    return _answer(call.request, opened) | {
        "forkedFromRunId": run.forked_from_run_id if is_fork else None,
        "forkStep": plain_number(run.fork_step) if is_fork else None,
    }


async def resume(call: Call[ResumeBody]) -> dict[str, Any]:
    """Lets a run run again, named in one of three ways."""
    body, runs, key_id = call.body, call.catalog.runs, call.key.id
    if sum(one is not None for one in (body.run_id, body.display_id, body.external_id)) != 1:
        raise Invalid("Exactly one of runId, displayId or externalId must be provided")
    if body.run_id is not None:
        opened = await runs.resume(call.tenant, body.run_id, api_key_id=key_id)
    elif body.display_id is not None:
        opened = await runs.resume_by_display_id(
            call.tenant, body.display_id, body.project_name, api_key_id=key_id
        )
    else:
        assert body.external_id is not None
        if body.project_name is None:
            raise Invalid("projectName is required when using externalId")
        opened = await runs.resume_by_external_id(
            call.tenant, body.external_id, body.project_name, api_key_id=key_id
        )
    _expect(call.request, opened)
    return _answer(call.request, opened)


OPENING_ENDPOINTS = [
    taking(
        "/api/runs/create",
        CreateBody,
        create,
        Created,
        example={
            "runName": "basic",
            "projectName": "wirelab",
            "externalId": None,
            "tags": ["baseline"],
            "config": '{"lr": 0.1}',
            "systemMetadata": "{}",
            "loggerSettings": "{}",
            "createdAt": None,
            "updatedAt": None,
        },
    ),
    taking("/api/runs/resume", ResumeBody, resume, Resumed, example={"runId": 100}),
]


def plain_number(value: float | None) -> float | int | None:
    """A whole number without its point."""
    return int(value) if value is not None and value.is_integer() else value


def _fork(body: CreateBody) -> ForkRequest | None:
    if not body.fork_run_id:
        return None
    return ForkRequest(
        run_id=body.fork_run_id,
        step=body.fork_step,
        inherits_config=body.inherit_config is not False,
        inherits_tags=body.inherit_tags is True,
    )


def _expect(request: web.Request, opened: OpenedRun) -> None:
    """The run's rows and heartbeats are next: they need ask nobody."""
    run = opened.run
    request.app[RUNS].learn(run.tenant, run.id, run.project)
    request.app[HEARTBEATS].learn(run.tenant, run.id, run.status)


def _answer(request: web.Request, opened: OpenedRun) -> dict[str, Any]:
    run = opened.run
    return {
        "runId": run.id,
        "number": run.number,
        "displayId": run.display_id,
        "projectName": run.project,
        "organizationSlug": opened.organisation_slug,
        "url": run_url(request, opened.organisation_slug, run),
        "resumed": opened.is_resumed,
    }


async def _see_fork_step(call: Call[CreateBody], new: NewRun) -> None:
    """See that the parent got as far as the step that the run is forked at.

    A parent without metrics is forked at any step, and so is one whose metrics cannot be read now:
    a run is made whether ClickHouse is there or not.

    Raises:
        Invalid: the step is beyond the parent's last.
    """
    parent = await call.catalog.runs.fork_parent(call.tenant, new)
    reader = call.request.app.get(READER)
    if parent is None or reader is None:
        return
    assert new.fork is not None
    assert new.fork.step is not None
    until = time.monotonic() + FORK_WAIT_SECONDS
    while True:
        try:
            last = await reader.max_step(TenantId(parent.tenant), parent.project, RunId(parent.id))
        except RequestRefused:
            return
        if last is None or last <= 0 or new.fork.step <= last:
            return
        if time.monotonic() > until:
            break
        await asyncio.sleep(FORK_POLL_SECONDS)  # its last rows may be on their way still
    raise Invalid(
        f"forkStep ({plain_number(new.fork.step)}) exceeds the parent run's max step "
        f"({plain_number(last)})"
    )


def run_url(request: web.Request, organisation_slug: str, run: RunHead) -> str:
    """The address of a run's page, for people."""
    project = quote(run.project, safe="")
    return f"{_base_url(request)}/o/{organisation_slug}/projects/{project}/{sqid_of(run.id)}"


def _base_url(request: web.Request) -> str:
    """The configured address, or the one by which the client reached us."""
    settings = request.app[SETTINGS]
    if settings.public_url is not None:
        return settings.public_url.rstrip("/")
    try:
        return str(request.url.origin())
    except ValueError:  # a Host header that is none
        return f"http://{settings.host}:{settings.port}"
