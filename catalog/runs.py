"""Runs: what a client does with them, each call one transaction.

Two writers of one run or project wait for each other: SQLite's write lock, or row locks in
Postgres. So display ids count without doubles, an external id names one run however many ranks ask
at once, and merges lose nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlalchemy import select, update

from catalog.clock import WallClock, wall_ms
from catalog.display_ids import parse_display_id
from catalog.documents import merged_deep, parse_object
from catalog.errors import Conflict, NotFound, TooLong
from catalog.names import storable
from catalog.projects import Project, listed_projects, slug_of_tenant
from catalog.run_creation import NewRun, OpenedRun, of_external_id, open_run
from catalog.run_details import RunDetails, details_of
from catalog.run_events import RunEvent, events_of
from catalog.run_forks import resolved_parent
from catalog.run_pages import RunPage, RunSearch, page_of_runs, runs_of_numbers
from catalog.run_records import (
    RUN_ID_MAX,
    Run,
    RunHead,
    document_of,
    find_run,
    get_head,
    head_of,
    select_heads,
)
from catalog.run_status import StatusRequest, apply_status, reopen
from catalog.statuses import Source
from catalog.tables import projects, runs
from catalog.tags import checked_tags, tags_to_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Select
    from sqlalchemy.ext.asyncio import AsyncConnection

    from catalog.engine import Database

NOTES_LENGTH_MAX = 1_000
"""Characters. Source: the wire's."""


class Runs:
    """The runs of this catalogue. Every method may raise Unavailable, and NotFound."""

    def __init__(self, database: Database, clock: WallClock = wall_ms) -> None:
        self._database = database
        self._clock = clock

    async def create(self, tenant: str, new: NewRun) -> OpenedRun:
        """Makes a run, or resumes the one in that project that has the external id.

        Raises:
            Refused: a name, document, tag or fork that cannot be taken.
        Durability: the run survives a power cut, and its id is never given again.
        """
        new = new.checked()
        now_ms = self._clock()
        return await self._database.transact(
            lambda connection: open_run(self._database, connection, tenant, new, now_ms=now_ms)
        )

    async def fork_parent(self, tenant: str, new: NewRun) -> RunHead | None:
        """The run whose own rows hold the step that a new run is forked at.

        Returns: None where no fork would be made: none is asked for, or the external id is there.

        Raises:
            Invalid: no step is given, or the parent is not in this organisation's project.
        """
        fork = new.fork
        if fork is None:
            return None
        new = replace(
            new,
            project=storable(new.project),
            external_id=None if new.external_id is None else storable(new.external_id),
        )
        async with self._database.read() as connection:
            if await of_external_id(connection, tenant, new) is not None:
                return None
            return await resolved_parent(connection, tenant, new.project, fork)

    async def resume(self, tenant: str, run_id: int, *, api_key_id: str | None = None) -> OpenedRun:
        """Lets a run run again."""
        if not 0 < run_id <= RUN_ID_MAX:
            raise NotFound("Run not found")
        return await self._resume(
            tenant, select_heads(tenant).where(runs.c.id == run_id), api_key_id
        )

    async def resume_by_display_id(
        self, tenant: str, text: str, project: str | None, *, api_key_id: str | None = None
    ) -> OpenedRun:
        """Lets the run of that display id run again.

        Raises:
            Invalid: the text is no display id. Conflict: several projects have it.
        """
        return await self._resume(tenant, _of_display_id(tenant, text, project), api_key_id)

    async def resume_by_external_id(
        self, tenant: str, external_id: str, project: str, *, api_key_id: str | None = None
    ) -> OpenedRun:
        """Lets the project's run of that external id run again."""
        statement = select_heads(tenant).where(
            projects.c.name == storable(project), runs.c.external_id == storable(external_id)
        )
        return await self._resume(tenant, statement, api_key_id)

    async def update_status(
        self,
        tenant: str,
        run_id: int,
        request: StatusRequest,
        source: Source = Source.API,
        *,
        api_key_id: str | None = None,
    ) -> bool:
        """Applies the rule of `catalog.statuses`.

        Returns: whether anything was written; a milder final status is ignored.

        Raises:
            NotJson, NotAnObject, TooLarge: one of the documents.
        """

        async def work(connection: AsyncConnection) -> bool:
            run = await get_head(connection, tenant, run_id, locked=True)
            # Its time is taken under the lock: of two changes the later one has the later time.
            return await apply_status(
                connection, run, request, source, now_ms=self._clock(), api_key_id=api_key_id
            )

        return await self._database.transact(work)

    async def set_tags(self, tenant: str, run_id: int, tags: Sequence[str]) -> None:
        """Replaces the run's tags.

        Raises:
            Invalid, TooLong: they cannot be stored; nothing is changed.
        """
        await self._set(tenant, run_id, tags=tags_to_text(checked_tags(tags)))

    async def set_notes(self, tenant: str, run_id: int, notes: str | None) -> None:
        """Replaces the run's notes; None and an empty text clear them.

        Raises:
            TooLong: they are.
        """
        if notes is not None and len(notes) > NOTES_LENGTH_MAX:
            raise TooLong(
                f"notes may have at most {NOTES_LENGTH_MAX} characters, and has {len(notes)}"
            )
        await self._set(tenant, run_id, notes=storable(notes) if notes else None)

    async def merge_config(self, tenant: str, run_id: int, config: str | None) -> None:
        """Merges a JSON object into the run's configuration; `null` and None leave it as it is.

        Raises:
            NotJson, NotAnObject, TooLarge: the text, or what the merge would give.
        """
        patch = None if config is None else parse_object("config", config)
        now_ms = self._clock()

        async def work(connection: AsyncConnection) -> None:
            await get_head(connection, tenant, run_id, locked=True)
            if patch is not None:
                stored = await document_of(connection, run_id, runs.c.config)
                merged = merged_deep("config", stored, patch)
                await connection.execute(
                    update(runs)
                    .where(runs.c.id == run_id)
                    .values(config=merged, updated_at_ms=now_ms)
                )

        await self._database.transact(work)

    async def find(self, tenant: str, run_id: int) -> Run | None:
        """The organisation's run of that number, with its documents."""
        async with self._database.read() as connection:
            return await find_run(connection, tenant, run_id)

    async def project_of(self, tenant: str, run_id: int) -> str | None:
        """The name of the project that the organisation's run is in."""
        if not 0 < run_id <= RUN_ID_MAX:
            return None
        statement = (
            select(projects.c.name)
            .join(runs, runs.c.project_id == projects.c.id)
            .where(runs.c.organisation_id == tenant, runs.c.id == run_id)
        )
        async with self._database.read() as connection:
            name = (await connection.execute(statement)).scalar_one_or_none()
        return None if name is None else str(name)

    async def history(self, tenant: str, run_id: int) -> list[RunEvent]:
        """The changes of the run's status, oldest first."""
        async with self._database.read() as connection:
            await get_head(connection, tenant, run_id)
            return await events_of(connection, run_id)

    async def details(self, tenant: str, run_id: int) -> RunDetails:
        """The organisation's run of that number with all that belongs to it."""
        async with self._database.read() as connection:
            return await details_of(connection, await get_head(connection, tenant, run_id))

    async def details_by_display_id(
        self, tenant: str, text: str, project: str | None
    ) -> RunDetails:
        """The same of the run of that display id.

        Raises:
            Invalid: the text is no display id. Conflict: several projects have it.
        """
        statement = _of_display_id(tenant, text, project)
        async with self._database.read() as connection:
            return await details_of(connection, await _the_one(connection, statement))

    async def listed(self, tenant: str, run_ids: Sequence[int]) -> RunPage:
        """Those of the runs that are the organisation's, in the order of their numbers."""
        return await runs_of_numbers(self._database, tenant, run_ids)

    async def page(self, tenant: str, search: RunSearch) -> RunPage:
        """Runs of one project, found and sorted.

        Raises:
            Invalid: there is no such sort.
        """
        return await page_of_runs(self._database, tenant, search)

    async def projects(self, tenant: str) -> list[Project]:
        """The organisation's projects, newest first."""
        async with self._database.read() as connection:
            return await listed_projects(connection, tenant)

    async def _set(self, tenant: str, run_id: int, **values: str | None) -> None:
        """One statement: whole columns need no lock before."""
        if not 0 < run_id <= RUN_ID_MAX:
            raise NotFound("Run not found")
        statement = (
            update(runs)
            .where(runs.c.organisation_id == tenant, runs.c.id == run_id)
            .values(**values, updated_at_ms=self._clock())
        )

        async def work(connection: AsyncConnection) -> None:
            if (await connection.execute(statement)).rowcount == 0:
                raise NotFound("Run not found")

        await self._database.transact(work)

    async def _resume(
        self, tenant: str, statement: Select[tuple[object, ...]], api_key_id: str | None
    ) -> OpenedRun:
        async def work(connection: AsyncConnection) -> OpenedRun:
            run = await _the_one(connection, statement.with_for_update(of=runs, key_share=True))
            run = await reopen(connection, run, now_ms=self._clock(), api_key_id=api_key_id)
            return OpenedRun(run, await slug_of_tenant(connection, tenant), is_resumed=True)

        return await self._database.transact(work)


def _of_display_id(tenant: str, text: str, project: str | None) -> Select[tuple[object, ...]]:
    prefix, number = parse_display_id(text)
    statement = select_heads(tenant).where(projects.c.prefix == prefix, runs.c.number == number)
    return statement if project is None else statement.where(projects.c.name == storable(project))


async def _the_one(connection: AsyncConnection, statement: Select[tuple[object, ...]]) -> RunHead:
    found = [head_of(row) for row in await connection.execute(statement.limit(100))]
    if not found:
        raise NotFound("Run not found")
    if len(found) > 1:
        names = ", ".join(sorted(run.project for run in found))
        raise Conflict(
            f"{found[0].display_id} is a run in several projects ({names}); "
            "name one with projectName"
        )
    return found[0]
