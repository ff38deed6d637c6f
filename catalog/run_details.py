"""A run with all that belongs to it, for those who look at one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from catalog.errors import NotFound
from catalog.log_names import LogName, names_of
from catalog.projects import slug_of_tenant
from catalog.run_records import Run, find_run

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from catalog.run_records import RunHead


@dataclass(frozen=True, slots=True)
class RunDetails:
    """The run, its registered names (the first thousand by name), and its organisation's slug."""

    run: Run
    log_names: list[LogName]
    organisation_slug: str


async def details_of(connection: AsyncConnection, head: RunHead) -> RunDetails:
    """Of a run that was found in this transaction."""
    run = await find_run(connection, head.tenant, head.id)
    if run is None:
        raise NotFound("Run not found")
    return RunDetails(
        run, await names_of(connection, run.id), await slug_of_tenant(connection, run.tenant)
    )
