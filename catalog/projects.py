"""Projects: a name in an organisation, the prefix of its runs' display ids, and their counter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, select, update

from catalog.display_ids import prefix_of
from catalog.errors import Broken
from catalog.tables import organisations, projects, runs

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from catalog.engine import Database

LISTED_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Project:
    """A project as it is listed."""

    id: int
    name: str
    created_at_ms: int
    updated_at_ms: int
    run_count: int


@dataclass(frozen=True, slots=True)
class NumberedProject:
    """A project, found or made, with the number of the run that is made in it next."""

    id: int
    name: str
    prefix: str
    run_number: int
    """Counted from 1."""
    organisation_slug: str


async def slug_of_tenant(connection: AsyncConnection, tenant: str) -> str:
    """The organisation's slug.

    Raises:
        Broken: a key names an organisation that is not there.
    """
    statement = select(organisations.c.slug).where(organisations.c.id == tenant)
    slug = (await connection.execute(statement)).scalar_one_or_none()
    if slug is None:
        raise Broken(f"no organisation {tenant!r}, though there is a key of it")
    return str(slug)


async def numbered_project(
    database: Database,
    connection: AsyncConnection,
    tenant: str,
    name: str,
    *,
    now_ms: int,
    created_at_ms: int,
    updated_at_ms: int,
) -> NumberedProject:
    """The organisation's project of that name, made where there is none, with its next number.

    Taking the number locks the project until the transaction ends: those who create runs in it
    wait for each other, so that numbers have no gaps. One statement where the project is there.

    Args:
        database: of the connection.
        connection: in a transaction.
        tenant: the organisation.
        name: the project's.
        now_ms: when a project that is there was last updated.
        created_at_ms: of a new project.
        updated_at_ms: of a new project.
    """
    found = await _next_number(connection, tenant, name, now_ms)
    if found is not None:
        return found
    slug = await slug_of_tenant(connection, tenant)
    new = database.insert(projects).values(
        organisation_id=tenant,
        name=name,
        prefix=prefix_of(name),
        run_number_last=1,
        created_at_ms=created_at_ms,
        updated_at_ms=updated_at_ms,
    )
    made = new.on_conflict_do_nothing().returning(projects.c.id, projects.c.prefix)
    row = (await connection.execute(made)).first()
    if row is not None:
        return NumberedProject(row.id, name, row.prefix, 1, slug)
    found = await _next_number(connection, tenant, name, now_ms)
    assert found is not None, "somebody made it at the same time, and projects are never deleted"
    return found


async def give_number_back(connection: AsyncConnection, project: NumberedProject) -> None:
    """The run is not made after all; the project is locked still, so nobody took the next one."""
    columns = projects.c
    await connection.execute(
        update(projects)
        .where(columns.id == project.id)
        .values(run_number_last=columns.run_number_last - 1)
    )


async def listed_projects(connection: AsyncConnection, tenant: str) -> list[Project]:
    """The organisation's projects, newest first, with the number of runs in each."""
    columns = projects.c
    count = select(func.count()).where(runs.c.project_id == columns.id).scalar_subquery()
    statement = (
        select(
            columns.id,
            columns.name,
            columns.created_at_ms,
            columns.updated_at_ms,
            count.label("run_count"),
        )
        .where(columns.organisation_id == tenant)
        .order_by(columns.created_at_ms.desc(), columns.id.desc())
        .limit(LISTED_MAX)
    )
    return [Project(**row._mapping) for row in await connection.execute(statement)]  # noqa: SLF001


async def _next_number(
    connection: AsyncConnection, tenant: str, name: str, now_ms: int
) -> NumberedProject | None:
    columns = projects.c
    slug = (
        select(organisations.c.slug)
        .where(organisations.c.id == columns.organisation_id)
        .scalar_subquery()
    )
    statement = (
        update(projects)
        .where(columns.organisation_id == tenant, columns.name == name)
        .values(run_number_last=columns.run_number_last + 1, updated_at_ms=now_ms)
        .returning(columns.id, columns.name, columns.prefix, columns.run_number_last, slug)
    )
    row = (await connection.execute(statement)).first()
    return None if row is None else NumberedProject(*row)
