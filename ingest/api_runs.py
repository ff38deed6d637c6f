"""All routes of the run API, for the application to take in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ingest.api_account import ACCOUNT_ROUTES
from ingest.api_opening import OPENING_ROUTES
from ingest.api_signals import SIGNAL_ROUTES
from ingest.api_updates import UPDATE_ROUTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp import web


def run_routes() -> Sequence[web.RouteDef]:
    """Every route. They need SETTINGS, AUTH, CATALOG and ADMISSION in the application."""
    return (*ACCOUNT_ROUTES, *OPENING_ROUTES, *UPDATE_ROUTES, *SIGNAL_ROUTES)


def add_run_routes(app: web.Application) -> None:
    """Adds them to an application."""
    app.add_routes(run_routes())
