"""Runs as an administrator looks at them: of any organisation, listed, or found by what one has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from catalog.display_ids import display_id, parse_display_id
from catalog.errors import Conflict, Invalid, NotFound
from catalog.run_records import RUN_ID_MAX
from catalog.statuses import Status
from catalog.tables import arrivals, heartbeats, organisations, projects, runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Select

    from catalog.engine import Database


@dataclass(frozen=True, slots=True)
class RunLine:
    """A run in a list."""

    id: int
    display_id: str
    tenant: str
    organisation_slug: str
    project: str
    name: str
    external_id: str | None
    status: Status
    status_updated_at_ms: int | None
    created_at_ms: int
    heartbeat_at_ms: int | None
    rows_received_at_ms: int | None


class RunLists:
    """Looks over all runs of a catalogue. Every method may raise Unavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def newest(
        self,
        *,
        tenant: str | None = None,
        project: str | None = None,
        statuses: Sequence[Status] = (),
        limit: int = 50,
    ) -> list[RunLine]:
        """The runs that all of the filters fit, newest first."""
        statement = _select_lines(tenant, project)
        if statuses:
            statement = statement.where(runs.c.status.in_(statuses))
        return await self._lines(statement.limit(limit))

    async def find(
        self, text: str, *, tenant: str | None = None, project: str | None = None
    ) -> RunLine:
        """The one run that is meant by its number, its display id or its external id.

        Raises:
            NotFound: there is none. Conflict: there are several, which the message tells.
        """
        statement = _select_lines(tenant, project)
        found: list[RunLine] = []
        if text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= RUN_ID_MAX:
            found = await self._lines(statement.where(runs.c.id == int(text)))
        if not found:
            try:
                prefix, number = parse_display_id(text)
            except Invalid:
                pass
            else:
                found = await self._lines(
                    statement.where(projects.c.prefix == prefix, runs.c.number == number).limit(10)
                )
        if not found:
            found = await self._lines(statement.where(runs.c.external_id == text).limit(10))
        if not found:
            raise NotFound(
                f"there is no run {text!r}{_where(tenant, project)}: `charon runs ls` shows what "
                "there is"
            )
        if len(found) > 1:
            several = ", ".join(
                f"{run.id} (project {run.project!r} of {run.organisation_slug})" for run in found
            )
            raise Conflict(f"{text!r} is several runs: {several}; name one by its number")
        return found[0]

    async def _lines(self, statement: Select[Any]) -> list[RunLine]:
        async with self._database.read() as connection:
            rows = (await connection.execute(statement)).all()
        return [
            RunLine(
                id=row.id,
                display_id=display_id(row.prefix, row.number),
                tenant=row.organisation_id,
                organisation_slug=row.slug,
                project=row.project,
                name=row.name,
                external_id=row.external_id,
                status=Status(row.status),
                status_updated_at_ms=row.status_updated_at_ms,
                created_at_ms=row.created_at_ms,
                heartbeat_at_ms=row.last_seen_at_ms,
                rows_received_at_ms=row.last_received_at_ms,
            )
            for row in rows
        ]


def _select_lines(tenant: str | None, project: str | None) -> Select[Any]:
    columns = runs.c
    statement = (
        select(
            columns.id,
            columns.organisation_id,
            organisations.c.slug,
            projects.c.name.label("project"),
            projects.c.prefix,
            columns.number,
            columns.name,
            columns.external_id,
            columns.status,
            columns.status_updated_at_ms,
            columns.created_at_ms,
            heartbeats.c.last_seen_at_ms,
            arrivals.c.last_received_at_ms,
        )
        .join(projects, projects.c.id == columns.project_id)
        .join(organisations, organisations.c.id == columns.organisation_id)
        .outerjoin(heartbeats, heartbeats.c.run_id == columns.id)
        .outerjoin(arrivals, arrivals.c.run_id == columns.id)
        .order_by(columns.id.desc())
    )
    if tenant is not None:
        statement = statement.where(columns.organisation_id == tenant)
    if project is not None:
        statement = statement.where(projects.c.name == project)
    return statement


def _where(tenant: str | None, project: str | None) -> str:
    text = "" if project is None else f" in project {project!r}"
    return text if tenant is None else f"{text} of that organisation"
