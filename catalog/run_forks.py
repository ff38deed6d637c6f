"""Forks: a run that begins where another one was at some step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from catalog.documents import merged_shallow
from catalog.errors import Invalid, NotFound
from catalog.run_records import document_of, get_head
from catalog.tables import runs
from catalog.tags import inherited_tags, tags_from_text

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from catalog.run_records import RunHead

HOPS_MAX = 10
"""How far up the line of forks of forks a parent is looked for."""


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """What a client asks for."""

    run_id: int
    step: float | None
    inherits_config: bool = True
    inherits_tags: bool = False


@dataclass(frozen=True, slots=True)
class Fork:
    """What becomes of it: the run forked from, and what it hands down."""

    parent_run_id: int
    step: float
    config: str | None
    tags: list[str]


async def resolve_fork(
    connection: AsyncConnection,
    tenant: str,
    project: str,
    request: ForkRequest,
    *,
    config: str | None,
    tags: list[str],
) -> Fork:
    """What a run forked so begins with.

    Raises:
        Invalid: as `resolved_parent`.
        TooLarge: the configuration together with the parent's.
    """
    parent = await resolved_parent(connection, tenant, project, request)
    assert request.step is not None
    if request.inherits_config:
        inherited = await document_of(connection, parent.id, runs.c.config)
        config = merged_shallow("config", inherited, config)
    if request.inherits_tags:
        inherited = await document_of(connection, parent.id, runs.c.tags)
        tags = inherited_tags(tags_from_text(inherited or "[]"), tags)
    return Fork(parent_run_id=parent.id, step=request.step, config=config, tags=tags)


async def resolved_parent(
    connection: AsyncConnection, tenant: str, project: str, request: ForkRequest
) -> RunHead:
    """The run whose own rows hold the step, which may be an ancestor of the one named.

    Raises:
        Invalid: no step is given, or the parent is not in this organisation's project.
    """
    if request.step is None:
        raise Invalid("forkStep is required when forkRunId is provided")
    parent = await _parent(connection, tenant, project, request.run_id)
    for _ in range(HOPS_MAX):
        if parent.forked_from_run_id is None or parent.fork_step is None:
            break
        if request.step > parent.fork_step:
            break
        parent = await _parent(connection, tenant, project, parent.forked_from_run_id)
    return parent


async def _parent(connection: AsyncConnection, tenant: str, project: str, run_id: int) -> RunHead:
    message = "Fork parent run not found in this project"
    try:
        run = await get_head(connection, tenant, run_id)
    except NotFound as error:
        raise Invalid(message) from error
    if run.project != project:
        raise Invalid(message)
    return run
