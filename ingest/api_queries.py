"""The queries of run API requests, as the wire has them. Unknown names are ignored."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from catalog.statuses import Status
from ingest.api_bodies import Body


def _words(text: object) -> object:
    """A comma list; blanks around a word are none of it."""
    if not isinstance(text, str):
        return text
    return [word for word in (part.strip() for part in text.split(",")) if word]


Words = Annotated[list[str], BeforeValidator(_words), Field(max_length=100)]
Statuses = Annotated[list[Status], BeforeValidator(_words), Field(max_length=100)]
Text = Annotated[str, Field(min_length=1)]


class RunQuery(Body):
    """One run."""

    run_id: int


class DetailsQuery(Body):
    """`GET /api/runs/details/…`."""

    project_name: Text | None = None


class ListQuery(Body):
    """`GET /api/runs/list`."""

    project_name: Text | None = Field(None, description="required")
    search: Text | None = Field(None, description="in the name or the display id")
    tags: Words = Field([], description="comma list: any of them")
    status: Statuses = Field([], description="comma list: any of them")
    limit: int = Field(50, ge=1, le=200)
    offset: int = Field(0, ge=0, le=100_000)
    sort: str = Field("-createdAt", description="createdAt, updatedAt, name or status; - before it")
    filter: Text | None = Field(None, description="RunFilterGrammar as JSON; not taken yet")
    field_filters: Text | None = Field(None, description="FieldFilterTerm[]; not taken yet")
