"""The queries of run API requests, as the wire has them. Unknown names are ignored."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ingest.api_bodies import Body


class RunQuery(Body):
    """One run."""

    run_id: int


class DetailsQuery(Body):
    """`GET /api/runs/details/…`."""

    project_name: Annotated[str, Field(min_length=1)] | None = None
