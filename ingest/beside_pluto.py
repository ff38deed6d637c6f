"""What a server with the role `ingest` has instead of a catalogue of runs.

It takes rows in the place of the ingest server of an existing Pluto. Runs are made and changed at
that Pluto's own services; which project a run belongs to, only the request says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from ingest.answers import Code, RequestRefused

if TYPE_CHECKING:
    from collections.abc import Sequence


class NoRuns:
    """A RunStore that knows no run: the header decides."""

    async def project_of(self, _tenant: str, _run_id: int) -> None:
        """None, at once."""


def absent_routes() -> Sequence[web.RouteDef]:
    """In the place of the run API: a word on why it is not there."""
    return (web.route("*", "/api/{rest:.*}", _absent),)


async def _absent(_request: web.Request) -> web.StreamResponse:
    raise RequestRefused(
        Code.NOT_FOUND,
        "this server has the role ingest and no run API: PLUTO_URL_API and PLUTO_URL_PY must "
        "point at Pluto's own services",
    )
