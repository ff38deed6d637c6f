"""Changing a run's status, in the caller's transaction."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import update

from catalog.documents import checked_text, merged_deep, parse_object
from catalog.run_events import record_event
from catalog.run_records import document_of
from catalog.statuses import Source, Status, transition
from catalog.tables import run_triggers, runs

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from catalog.run_records import RunHead


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """What a client says of a run's status."""

    status: Status
    metadata: str | None = None
    """JSON text; None clears what is stored, if `has_metadata`."""
    has_metadata: bool = False
    logger_settings: str | None = None
    """JSON text of an object; merged into what is stored."""
    status_updated_at_ms: int | None = None


async def apply_status(
    connection: AsyncConnection,
    run: RunHead,
    request: StatusRequest,
    source: Source,
    *,
    now_ms: int,
    actor_id: str | None = None,
    api_key_id: str | None = None,
) -> bool:
    """Writes the status that the rule allows, and its event. The run must be locked.

    Returns: whether anything was written; False where a milder final status was ignored.

    Raises:
        NotJson, NotAnObject, TooLarge: one of the documents.
    """
    metadata = checked_text("statusMetadata", request.metadata)
    patch = request.logger_settings and parse_object("loggerSettings", request.logger_settings)
    outcome = transition(run.status, request.status, source)
    if not outcome.is_applied:
        return False
    values: dict[str, Any] = {"status": request.status, "updated_at_ms": now_ms}
    if request.status_updated_at_ms is not None:
        values["status_updated_at_ms"] = request.status_updated_at_ms
    elif outcome.stamps:
        values["status_updated_at_ms"] = now_ms
    if request.has_metadata:
        values["status_metadata"] = metadata
    if patch:
        stored = await document_of(connection, run.id, runs.c.logger_settings)
        values["logger_settings"] = merged_deep("loggerSettings", stored, patch)
    await connection.execute(update(runs).where(runs.c.id == run.id).values(**values))
    if outcome.is_change:
        await record_event(
            connection,
            run.id,
            run.status,
            request.status,
            source,
            now_ms=now_ms,
            metadata=metadata,
            actor_id=actor_id,
            api_key_id=api_key_id,
        )
    return True


async def reopen(
    connection: AsyncConnection, run: RunHead, *, now_ms: int, api_key_id: str | None
) -> RunHead:
    """A resumed run runs again; of one that runs only the time is noted. The run must be locked.

    That time is a sign of life: a process that takes up the run of one that was just killed is not
    taken for dead before its first heartbeat.

    What was asked of the run before it ended is void: a cancellation that came too late does not
    stop its next life. One that waits for a run that still runs stands, whoever joins it.

    Returns: the run as it is now.
    """
    if run.status is not Status.RUNNING:
        await connection.execute(
            update(run_triggers)
            .where(run_triggers.c.run_id == run.id, run_triggers.c.consumed_at_ms.is_(None))
            .values(consumed_at_ms=now_ms)
        )
    await apply_status(
        connection,
        run,
        StatusRequest(Status.RUNNING),
        Source.RESUME,
        now_ms=now_ms,
        api_key_id=api_key_id,
    )
    return replace(run, status=Status.RUNNING, status_updated_at_ms=now_ms, updated_at_ms=now_ms)
