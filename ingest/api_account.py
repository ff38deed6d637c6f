"""Who a key belongs to, and whether the API is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from catalog.errors import Broken
from ingest.api_answers import json_response
from ingest.api_endpoints import giving, public
from ingest.api_replies import Health, Login, PyHealth, Validated, Version
from ingest.appkeys import HEARTBEATS, STATUS
from ingest.version import build
from ingest.version import version as release

if TYPE_CHECKING:
    from aiohttp import web

    from catalog import Organisation
    from ingest.api_calls import Caller


async def slug(caller: Caller) -> dict[str, Any]:
    """The login call: the organisation's slug."""
    return {"organization": {"slug": (await _organisation(caller)).slug}}


async def validate(caller: Caller) -> dict[str, Any]:
    """The key is valid; keys here belong to an organisation and to no user."""
    organisation = await _organisation(caller)
    return {
        "valid": True,
        "organization": {"id": organisation.id, "slug": organisation.slug},
        "user": {"id": None},
    }


async def health(_request: web.Request) -> web.Response:
    """The process answers; what it depends on is another question: `/health/ready`."""
    return json_response({"status": "ok"})


async def ready(request: web.Request) -> web.Response:
    """Whether rows can be made durable, and the state of each dependency; 503 where they cannot."""
    status, body = await request.app[STATUS].ready()
    return json_response(body, status=status)


async def py_health(request: web.Request) -> web.Response:
    """The process answers; and whether heartbeats could be noted of late."""
    failing = request.app[HEARTBEATS].is_away
    return json_response({"status": "ok", "heartbeatWrites": {"failing": failing}})


async def version(_request: web.Request) -> web.Response:
    """Which release this is."""
    return json_response({"service": "api", "version": release(), **build()})


ACCOUNT_ENDPOINTS = [
    giving("/api/slug", slug, Login, method="POST", scope=None),
    giving("/api/runs/auth/validate", validate, Validated, scope=None),
    public("/api/health", health, Health),
    public("/api/health/ready", ready),
    public("/api/version", version, Version),
    public("/healthz", py_health, PyHealth),
]


async def _organisation(caller: Caller) -> Organisation:
    organisation = await caller.catalog.organisations.find(caller.tenant)
    if organisation is None:
        raise Broken(f"no organisation {caller.tenant!r}, though there is a key of it")
    return organisation
