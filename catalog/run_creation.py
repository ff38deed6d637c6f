"""Making a run, or resuming the one of its external id; in the caller's transaction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert, select, update

from catalog.documents import checked_text, merged_deep, parse
from catalog.errors import Broken
from catalog.names import checked_name
from catalog.projects import locked_project, next_run_number
from catalog.run_events import record_event
from catalog.run_forks import ForkRequest, resolve_fork
from catalog.run_records import RunHead, document_of, get_head, head_of, select_heads
from catalog.run_status import reopen
from catalog.statuses import Source, Status
from catalog.tables import organisations, runs
from catalog.tags import checked_tags, tags_to_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection

    from catalog.engine import Database
    from catalog.projects import Project


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


async def open_run(
    database: Database, connection: AsyncConnection, tenant: str, new: NewRun, *, now_ms: int
) -> OpenedRun:
    """Makes the run, or resumes the one of that external id. The project's lock makes racers wait.

    Raises:
        Refused: the fork, or a merged configuration.
    """
    slug = await slug_of_tenant(connection, tenant)
    project = await locked_project(
        database,
        connection,
        tenant,
        new.project,
        created_at_ms=now_ms if new.created_at_ms is None else new.created_at_ms,
        updated_at_ms=now_ms if new.updated_at_ms is None else new.updated_at_ms,
    )
    existing = await _of_external_id(connection, tenant, project, new.external_id)
    if existing is None:
        run_id = await _insert(connection, tenant, project, new, now_ms=now_ms)
    else:
        run_id = existing.id
        await reopen(connection, existing, now_ms=now_ms, api_key_id=new.api_key_id)
        await _merge_config(connection, existing, new.config)
    run = await get_head(connection, tenant, run_id)
    return OpenedRun(run, slug, is_resumed=existing is not None)


async def _of_external_id(
    connection: AsyncConnection, tenant: str, project: Project, external_id: str | None
) -> RunHead | None:
    if external_id is None:
        return None
    statement = (
        select_heads(tenant)
        .where(runs.c.project_id == project.id, runs.c.external_id == external_id)
        .with_for_update(of=runs)
    )
    row = (await connection.execute(statement)).first()
    return None if row is None else head_of(row)


async def _merge_config(connection: AsyncConnection, run: RunHead, config: str | None) -> None:
    patch: Any = None if config is None else parse("config", config)
    if isinstance(patch, dict) and patch:
        stored = await document_of(connection, run.id, runs.c.config)
        merged = merged_deep("config", stored, patch)
        await connection.execute(update(runs).where(runs.c.id == run.id).values(config=merged))


async def _insert(
    connection: AsyncConnection, tenant: str, project: Project, new: NewRun, *, now_ms: int
) -> int:
    values: dict[str, Any] = {"config": new.config, "tags": tags_to_text(new.tags)}
    if new.fork is not None:
        fork = await resolve_fork(
            connection, tenant, project.name, new.fork, config=new.config, tags=list(new.tags)
        )
        values = {
            "config": fork.config,
            "tags": tags_to_text(fork.tags),
            "forked_from_run_id": fork.parent_run_id,
            "fork_step": fork.step,
        }
    number = await next_run_number(connection, project.id, now_ms)
    statement = insert(runs).values(
        organisation_id=tenant,
        project_id=project.id,
        number=number,
        name=new.name,
        external_id=new.external_id,
        status=Status.RUNNING,
        system_metadata=new.system_metadata,
        logger_settings=new.logger_settings,
        api_key_id=new.api_key_id,
        created_at_ms=now_ms if new.created_at_ms is None else new.created_at_ms,
        updated_at_ms=now_ms if new.updated_at_ms is None else new.updated_at_ms,
        **values,
    )
    run_id = int((await connection.execute(statement.returning(runs.c.id))).scalar_one())
    await record_event(
        connection,
        run_id,
        None,
        Status.RUNNING,
        Source.API,
        now_ms=now_ms,
        api_key_id=new.api_key_id,
    )
    return run_id
