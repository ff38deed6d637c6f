"""Runs as they are read, always within one organisation.

A run's documents may be megabytes, so a head is what most calls read; documents are read by those
who need them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import Row, Select, select

from catalog.display_ids import display_id
from catalog.errors import NotFound
from catalog.statuses import Status
from catalog.tables import projects, runs
from catalog.tags import tags_from_text

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement
    from sqlalchemy.ext.asyncio import AsyncConnection

RUN_ID_MAX = 2**63 - 1
"""The largest number that the column holds."""


@dataclass(frozen=True, slots=True)
class RunHead:
    """A run without its documents."""

    id: int
    tenant: str
    project: str
    prefix: str
    number: int
    name: str
    external_id: str | None
    status: Status
    status_updated_at_ms: int | None
    forked_from_run_id: int | None
    fork_step: float | None
    created_at_ms: int
    updated_at_ms: int

    @property
    def display_id(self) -> str:
        """Prefix and number, as people name it."""
        return display_id(self.prefix, self.number)


@dataclass(frozen=True, slots=True)
class Run(RunHead):
    """A run whole; documents are JSON text."""

    tags: list[str]
    notes: str | None
    config: str | None
    system_metadata: str | None
    logger_settings: str | None
    status_metadata: str | None


async def find_run(connection: AsyncConnection, tenant: str, run_id: int) -> Run | None:
    """The organisation's run of that number, whole; None for another organisation's."""
    if not 0 < run_id <= RUN_ID_MAX:
        return None
    columns = runs.c
    statement = select_heads(tenant).where(columns.id == run_id)
    row = (
        await connection.execute(
            statement.add_columns(
                columns.tags,
                columns.notes,
                columns.config,
                columns.system_metadata,
                columns.logger_settings,
                columns.status_metadata,
            )
        )
    ).first()
    if row is None:
        return None
    return Run(
        **_head_values(row),
        tags=tags_from_text(row.tags),
        notes=row.notes,
        config=row.config,
        system_metadata=row.system_metadata,
        logger_settings=row.logger_settings,
        status_metadata=row.status_metadata,
    )


async def get_head(
    connection: AsyncConnection, tenant: str, run_id: int, *, locked: bool = False
) -> RunHead:
    """The head of the organisation's run of that number.

    Args:
        connection: in a transaction.
        tenant: the organisation that asks.
        run_id: any integer; one that no run can have is simply not found.
        locked: no other transaction changes the run until this one ends; what refers to it (names,
            alerts, events) can be added all the same.

    Raises:
        NotFound: there is none, or it is another organisation's.
    """
    row = None
    if 0 < run_id <= RUN_ID_MAX:
        statement = select_heads(tenant).where(runs.c.id == run_id)
        if locked:
            statement = statement.with_for_update(of=runs, key_share=True)
        row = (await connection.execute(statement)).first()
    if row is None:
        raise NotFound("Run not found")
    return head_of(row)


async def document_of(
    connection: AsyncConnection, run_id: int, column: ColumnElement[str | None]
) -> str | None:
    """One document of a run that was found before."""
    return (await connection.execute(select(column).where(runs.c.id == run_id))).scalar_one()


def select_heads(tenant: str) -> Select[Any]:
    """The heads of all runs of an organisation."""
    columns = runs.c
    return (
        select(
            columns.id,
            columns.organisation_id,
            projects.c.name.label("project"),
            projects.c.prefix,
            columns.number,
            columns.name,
            columns.external_id,
            columns.status,
            columns.status_updated_at_ms,
            columns.forked_from_run_id,
            columns.fork_step,
            columns.created_at_ms,
            columns.updated_at_ms,
        )
        .join(projects, projects.c.id == columns.project_id)
        .where(columns.organisation_id == tenant)
    )


def head_of(row: Row[Any]) -> RunHead:
    """A row of `select_heads`."""
    return RunHead(**_head_values(row))


def _head_values(row: Row[Any]) -> dict[str, Any]:
    return {
        "id": row.id,
        "tenant": row.organisation_id,
        "project": row.project,
        "prefix": row.prefix,
        "number": row.number,
        "name": row.name,
        "external_id": row.external_id,
        "status": Status(row.status),
        "status_updated_at_ms": row.status_updated_at_ms,
        "forked_from_run_id": row.forked_from_run_id,
        "fork_step": row.fork_step,
        "created_at_ms": row.created_at_ms,
        "updated_at_ms": row.updated_at_ms,
    }
