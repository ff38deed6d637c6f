"""Who a key belongs to, and whether the API is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from catalog.errors import Broken
from ingest.api_answers import API, json_response
from ingest.api_calls import with_key
from ingest.version import build
from ingest.version import version as release

if TYPE_CHECKING:
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
    """The process answers. What it depends on is another question: `/health/ready`."""
    return json_response({"status": "ok"})


async def version(_request: web.Request) -> web.Response:
    """Which release this is."""
    return json_response({"service": "api", "version": release(), **build()})


ACCOUNT_ROUTES = [
    web.post("/api/slug", with_key(API, slug, scope=None)),
    web.get("/api/runs/auth/validate", with_key(API, validate, scope=None)),
    web.get("/api/health", health),
    web.get("/api/version", version),
]


async def _organisation(caller: Caller) -> Organisation:
    organisation = await caller.catalog.organisations.find(caller.tenant)
    if organisation is None:
        raise Broken(f"no organisation {caller.tenant!r}, though there is a key of it")
    return organisation
