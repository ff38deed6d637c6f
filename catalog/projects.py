"""Projects: a name in an organisation, the prefix of its runs' display ids, and their counter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import select, update

from catalog.display_ids import prefix_of
from catalog.tables import projects

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from catalog.engine import Database


@dataclass(frozen=True, slots=True)
class Project:
    """A project, found or made."""

    id: int
    name: str
    prefix: str


async def locked_project(
    database: Database,
    connection: AsyncConnection,
    tenant: str,
    name: str,
    *,
    created_at_ms: int,
    updated_at_ms: int,
) -> Project:
    """The organisation's project of that name, made where there is none; locked.

    The lock, held until the transaction ends, makes those who create runs in one project wait for
    each other. (In SQLite the transaction is alone anyway.)
    """
    columns = projects.c
    statement = (
        select(columns.id, columns.name, columns.prefix)
        .where(columns.organisation_id == tenant, columns.name == name)
        .with_for_update()
    )
    row = (await connection.execute(statement)).first()
    if row is None:
        new = database.insert(projects).values(
            organisation_id=tenant,
            name=name,
            prefix=prefix_of(name),
            run_number_last=0,
            created_at_ms=created_at_ms,
            updated_at_ms=updated_at_ms,
        )
        await connection.execute(new.on_conflict_do_nothing())
        row = (await connection.execute(statement)).one()
    return Project(id=row.id, name=row.name, prefix=row.prefix)


async def next_run_number(connection: AsyncConnection, project_id: int, now_ms: int) -> int:
    """Takes the project's next run number, counted from 1."""
    columns = projects.c
    statement = (
        update(projects)
        .where(columns.id == project_id)
        .values(run_number_last=columns.run_number_last + 1, updated_at_ms=now_ms)
        .returning(columns.run_number_last)
    )
    return int((await connection.execute(statement)).scalar_one())
