"""All endpoints of the run API, for the application to take in."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ingest.api_account import ACCOUNT_ENDPOINTS
from ingest.api_endpoints import public
from ingest.api_opening import OPENING_ENDPOINTS
from ingest.api_reading import LAST_ENDPOINTS, READING_ENDPOINTS
from ingest.api_series import SERIES_ENDPOINTS
from ingest.api_signals import SIGNAL_ENDPOINTS
from ingest.api_updates import UPDATE_ENDPOINTS
from ingest.openapi import described

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp import web

    from ingest.api_endpoints import Endpoint


@cache
def endpoints() -> Sequence[Endpoint]:
    """Every endpoint, in the order in which paths are looked at."""
    others = (
        *ACCOUNT_ENDPOINTS,
        *OPENING_ENDPOINTS,
        *UPDATE_ENDPOINTS,
        *SIGNAL_ENDPOINTS,
        *READING_ENDPOINTS,
        *SERIES_ENDPOINTS,
    )
    description = described((*others, *LAST_ENDPOINTS), path="/api/openapi.json")
    return (*others, public("/api/openapi.json", description), *LAST_ENDPOINTS)


def run_routes() -> Sequence[web.RouteDef]:
    """Every route. They need SETTINGS, AUTH, CATALOG, ADMISSION and more in the application."""
    return [endpoint.route() for endpoint in endpoints()]
