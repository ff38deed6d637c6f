"""Runs of a project, found and sorted, a page at a time."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import Text, case, cast, func, literal, or_, select

from catalog.errors import Invalid
from catalog.flat_documents import flattened
from catalog.names import storable
from catalog.projects import slug_of_tenant
from catalog.run_filters import Candidate, compiled
from catalog.run_records import RunHead, head_of, select_heads
from catalog.tables import arrivals, projects, runs
from catalog.tags import tags_from_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Label, Row, Select

    from catalog.engine import Database
    from catalog.statuses import Status

CANDIDATES_MAX = 10_000
CANDIDATES_STEP = 500
TURN_ROWS = 20
"""In between others get their turn: documents of the largest kind take a millisecond each."""
CONFIG_CHARACTERS_MAX = 65_536
"""A longer configuration is left out of a list: 200 of the largest would be gigabytes."""

_SORTS = {
    "createdAt": runs.c.created_at_ms,
    "created_at": runs.c.created_at_ms,
    "updatedAt": runs.c.updated_at_ms,
    "updated_at": runs.c.updated_at_ms,
    "name": runs.c.name,
    "status": runs.c.status,
}


@dataclass(frozen=True, slots=True)
class RunSearch:
    """What is looked for; all of it must hold."""

    project: str
    text: str | None = None
    """In the name or the display id, whatever the case of its letters."""
    tags: Sequence[str] = ()
    """Any of them."""
    statuses: Sequence[Status] = ()
    filter: str | None = None
    """As `catalog.run_filters` reads it; of the first 10,000 runs that fit all else."""
    sort: str = "-createdAt"
    """A field; with `-` before it the largest first."""
    limit: int = 50
    offset: int = 0


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run in a page."""

    head: RunHead
    tags: list[str]
    config: str | None
    """None for one that is too long for a list, too."""


@dataclass(frozen=True, slots=True)
class RunPage:
    """Part of what was found, and how many there are."""

    runs: list[ListedRun]
    total: int
    organisation_slug: str


async def runs_of_numbers(database: Database, tenant: str, run_ids: Sequence[int]) -> RunPage:
    """Those of the runs that are the organisation's, in the order of their numbers.

    Raises:
        Unavailable: the database.
    """
    columns = runs.c
    found = select_heads(tenant).where(columns.id.in_(run_ids))
    statement = found.add_columns(columns.tags, _config()).order_by(columns.id)
    async with database.read() as connection:
        page = [
            ListedRun(head_of(row), tags_from_text(row.tags), row.config)
            for row in await connection.execute(statement)
        ]
        return RunPage(page, len(page), await slug_of_tenant(connection, tenant))


async def page_of_runs(database: Database, tenant: str, search: RunSearch) -> RunPage:
    """The runs that were looked for; none of a project that is not there.

    Raises:
        Invalid: there is no such sort, or the filter cannot be read. Unavailable: the database.
    """
    order = _order(search.sort)
    where = _conditions(search, is_sqlite=database.is_sqlite)
    columns = runs.c
    found = select_heads(tenant).where(*where)
    statement = (
        found.add_columns(columns.tags, _config())
        .order_by(*order)
        .limit(search.limit)
        .offset(search.offset)
    )
    count = select(func.count()).select_from(found.subquery())
    if search.filter is not None:
        return await _filtered(database, tenant, search, found.order_by(*order))
    async with database.read() as connection:
        page = [
            ListedRun(head_of(row), tags_from_text(row.tags), row.config)
            for row in await connection.execute(statement)
        ]
        total = (await connection.execute(count)).scalar_one()
        return RunPage(page, total, await slug_of_tenant(connection, tenant))


async def _filtered(
    database: Database, tenant: str, search: RunSearch, found: Select[Any]
) -> RunPage:
    """The page of those candidates that the filter fits, looked at a few at a time."""
    assert search.filter is not None
    fits = compiled(search.filter)
    columns = runs.c
    text = columns.system_metadata
    metadata = case((func.length(text) <= CONFIG_CHARACTERS_MAX, text)).label("metadata")
    statement = found.outerjoin(arrivals, arrivals.c.run_id == columns.id).add_columns(
        columns.tags, _config(), metadata, arrivals.c.last_received_at_ms
    )
    words = json.dumps(json.loads(search.filter))  # with no letter escaped that need not be
    reads_documents = "config." in words or "systemMetadata." in words
    page: list[ListedRun] = []
    total = 0
    async with database.read() as connection:
        for start in range(0, CANDIDATES_MAX, CANDIDATES_STEP):
            part = statement.limit(CANDIDATES_STEP).offset(start)
            rows = (await connection.execute(part)).all()
            for place, row in enumerate(rows):
                if place % TURN_ROWS == 0:
                    await asyncio.sleep(0)
                head, tags = head_of(row), tags_from_text(row.tags)
                if fits(_candidate(row, head, tags, reads_documents=reads_documents)):
                    if search.offset <= total < search.offset + search.limit:
                        page.append(ListedRun(head, tags, row.config))
                    total += 1
            if len(rows) < CANDIDATES_STEP:
                break
        return RunPage(page, total, await slug_of_tenant(connection, tenant))


def _candidate(
    row: Row[Any], head: RunHead, tags: list[str], *, reads_documents: bool
) -> Candidate:
    return Candidate(
        name=head.name,
        status=head.status,
        tags=tags,
        created_at_ms=head.created_at_ms,
        updated_at_ms=head.updated_at_ms,
        rows_received_at_ms=row.last_received_at_ms,
        config=flattened(row.config if reads_documents else None),
        system_metadata=flattened(row.metadata if reads_documents else None),
    )


def _config() -> Label[str | None]:
    column = runs.c.config
    return case((func.length(column) <= CONFIG_CHARACTERS_MAX, column)).label("config")


def _order(sort: str) -> list[ColumnElement[Any]]:
    column = _SORTS.get(sort.lstrip("+-") if sort[:1] in {"+", "-"} else sort)
    if column is None or sort[1:2] in {"+", "-"}:
        raise Invalid(f"sort must be one of {', '.join(sorted(_SORTS))}, with - or + before it")
    if sort.startswith("-"):
        return [column.desc(), runs.c.id.desc()]
    return [column.asc(), runs.c.id.asc()]


def _conditions(search: RunSearch, *, is_sqlite: bool) -> list[ColumnElement[bool]]:
    position = func.instr if is_sqlite else func.strpos

    def holds(text: ColumnElement[str], part: str) -> ColumnElement[bool]:
        return position(text, part) > 0

    columns = runs.c
    conditions: list[ColumnElement[bool]] = [projects.c.name == storable(search.project)]
    if search.text:
        text = storable(search.text).lower()
        shown = projects.c.prefix + literal("-") + cast(columns.number, Text)
        conditions.append(
            or_(holds(func.lower(columns.name), text), holds(func.lower(shown), text))
        )
    if search.tags:
        # As `tags_to_text` writes them: quotes within a tag have a backslash before them.
        words = [json.dumps(storable(tag)) for tag in search.tags]
        conditions.append(
            or_(*(holds(columns.tags, before + word) for word in words for before in ("[", ", ")))
        )
    if search.statuses:
        conditions.append(columns.status.in_(search.statuses))
    return conditions
