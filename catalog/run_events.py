"""The history of a run's status: who changed it, when, from what to what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import insert, select

from catalog.tables import run_events

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from catalog.statuses import Source, Status

LISTED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One change; `metadata` is JSON text."""

    id: int
    run_id: int
    from_status: str | None
    to_status: str
    source: str
    metadata: str | None
    actor_id: str | None
    api_key_id: str | None
    created_at_ms: int


async def record_event(
    connection: AsyncConnection,
    run_id: int,
    from_status: Status | None,
    to_status: Status,
    source: Source,
    *,
    now_ms: int,
    metadata: str | None = None,
    actor_id: str | None = None,
    api_key_id: str | None = None,
) -> None:
    """Adds an event, in the transaction that changes the status."""
    await connection.execute(
        insert(run_events).values(
            run_id=run_id,
            from_status=from_status,
            to_status=to_status,
            source=source,
            metadata=metadata,
            actor_id=actor_id,
            api_key_id=api_key_id,
            created_at_ms=now_ms,
        )
    )


async def events_of(connection: AsyncConnection, run_id: int) -> list[RunEvent]:
    """The events of a run as they happened; the first 10,000.

    In the order of their ids, which are given while the run is locked. Their times are those of
    several servers' clocks.
    """
    columns = run_events.c
    statement = (
        select(run_events).where(columns.run_id == run_id).order_by(columns.id).limit(LISTED_MAX)
    )
    return [
        RunEvent(
            id=row.id,
            run_id=row.run_id,
            from_status=row.from_status,
            to_status=row.to_status,
            source=row.source,
            metadata=row.metadata,
            actor_id=row.actor_id,
            api_key_id=row.api_key_id,
            created_at_ms=row.created_at_ms,
        )
        for row in await connection.execute(statement)
    ]
