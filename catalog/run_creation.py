"""Making a run, or resuming the one of its external id; in the caller's transaction."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, update

from catalog.documents import checked_text, merged_deep, parse
from catalog.names import checked_name
from catalog.projects import give_number_back, numbered_project, slug_of_tenant
from catalog.run_events import record_event
from catalog.run_forks import ForkRequest, resolve_fork
from catalog.run_records import RunHead, document_of, head_of, select_heads
from catalog.run_status import reopen
from catalog.statuses import Source, Status
from catalog.tables import projects, runs
from catalog.tags import checked_tags, tags_to_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection

    from catalog.engine import Database
    from catalog.projects import NumberedProject


@dataclass(frozen=True, slots=True)
class NewRun:
    """What a client asks for; documents as JSON text."""

    name: str
    project: str
    external_id: str | None = None
    tags: Sequence[str] = field(default=())
    config: str | None = None
    system_metadata: str | None = None
    logger_settings: str | None = None
    created_at_ms: int | None = None
    updated_at_ms: int | None = None
    fork: ForkRequest | None = None
    api_key_id: str | None = None

    def checked(self) -> NewRun:
        """The same with its names and documents as they are stored.

        Raises:
            Refused: one of them cannot be.
        """
        return NewRun(
            name=checked_name("runName", self.name),
            project=checked_name("projectName", self.project),
            external_id=None
            if self.external_id is None
            else checked_name("externalId", self.external_id),
            tags=checked_tags(self.tags),
            config=checked_text("config", self.config),
            system_metadata=checked_text("systemMetadata", self.system_metadata),
            logger_settings=checked_text("loggerSettings", self.logger_settings),
            created_at_ms=self.created_at_ms,
            updated_at_ms=self.updated_at_ms,
            fork=self.fork,
            api_key_id=self.api_key_id,
        )


@dataclass(frozen=True, slots=True)
class OpenedRun:
    """A run that a client may log to now."""

    run: RunHead
    organisation_slug: str
    is_resumed: bool


async def open_run(
    database: Database, connection: AsyncConnection, tenant: str, new: NewRun, *, now_ms: int
) -> OpenedRun:
    """Makes the run, or resumes the one of that external id. The project's lock makes racers wait.

    Raises:
        Refused: the fork, or a merged configuration.
    """
    resumed = await _resumed(connection, tenant, new, now_ms=now_ms)
    if resumed is not None:
        return resumed
    project = await numbered_project(
        database,
        connection,
        tenant,
        new.project,
        now_ms=now_ms,
        created_at_ms=now_ms if new.created_at_ms is None else new.created_at_ms,
        updated_at_ms=now_ms if new.updated_at_ms is None else new.updated_at_ms,
    )
    # Whoever held the project's lock before may have made it.
    resumed = await _resumed(connection, tenant, new, now_ms=now_ms)
    if resumed is not None:
        await give_number_back(connection, project)
        return resumed
    run = await _insert(connection, tenant, project, new, now_ms=now_ms)
    return OpenedRun(run, project.organisation_slug, is_resumed=False)


async def of_external_id(
    connection: AsyncConnection, tenant: str, new: NewRun, *, locked: bool = False
) -> RunHead | None:
    """The run that has the new one's external id already, in the same project."""
    if new.external_id is None:
        return None
    statement = select_heads(tenant).where(
        projects.c.name == new.project, runs.c.external_id == new.external_id
    )
    if locked:
        statement = statement.with_for_update(of=runs, key_share=True)
    row = (await connection.execute(statement)).first()
    return None if row is None else head_of(row)


async def _resumed(
    connection: AsyncConnection, tenant: str, new: NewRun, *, now_ms: int
) -> OpenedRun | None:
    found = await of_external_id(connection, tenant, new, locked=True)
    if found is None:
        return None
    run = await reopen(connection, found, now_ms=now_ms, api_key_id=new.api_key_id)
    await _merge_config(connection, found, new.config)
    return OpenedRun(run, await slug_of_tenant(connection, tenant), is_resumed=True)


async def _merge_config(connection: AsyncConnection, run: RunHead, config: str | None) -> None:
    patch: Any = None if config is None else parse("config", config)
    if isinstance(patch, dict) and patch:
        stored = await document_of(connection, run.id, runs.c.config)
        merged = merged_deep("config", stored, patch)
        await connection.execute(update(runs).where(runs.c.id == run.id).values(config=merged))


async def _insert(
    connection: AsyncConnection, tenant: str, project: NumberedProject, new: NewRun, *, now_ms: int
) -> RunHead:
    fork = None
    if new.fork is not None:
        fork = await resolve_fork(
            connection, tenant, project.name, new.fork, config=new.config, tags=list(new.tags)
        )
    run = RunHead(
        id=0,  # the database gives it
        tenant=tenant,
        project=project.name,
        prefix=project.prefix,
        number=project.run_number,
        name=new.name,
        external_id=new.external_id,
        status=Status.RUNNING,
        status_updated_at_ms=None,
        forked_from_run_id=None if fork is None else fork.parent_run_id,
        fork_step=None if fork is None else fork.step,
        created_at_ms=now_ms if new.created_at_ms is None else new.created_at_ms,
        updated_at_ms=now_ms if new.updated_at_ms is None else new.updated_at_ms,
    )
    statement = insert(runs).values(
        organisation_id=tenant,
        project_id=project.id,
        number=run.number,
        name=run.name,
        external_id=run.external_id,
        status=run.status,
        tags=tags_to_text(new.tags if fork is None else fork.tags),
        config=new.config if fork is None else fork.config,
        system_metadata=new.system_metadata,
        logger_settings=new.logger_settings,
        forked_from_run_id=run.forked_from_run_id,
        fork_step=run.fork_step,
        api_key_id=new.api_key_id,
        created_at_ms=run.created_at_ms,
        updated_at_ms=run.updated_at_ms,
    )
    run_id = int((await connection.execute(statement.returning(runs.c.id))).scalar_one())
    await record_event(
        connection,
        run_id,
        None,
        run.status,
        Source.API,
        now_ms=now_ms,
        api_key_id=new.api_key_id,
    )
    return replace(run, id=run_id)
