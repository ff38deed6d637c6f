"""What is asked of a run from outside: today, that it stops.

A request is a row. The run's process hears of it with its next heartbeat: only then is the run
cancelled, so that its status never says that something stopped which goes on. The row is used up
by that, by the run's own end, and by a resume after the end.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import insert, select, update

from catalog.clock import WallClock, wall_ms
from catalog.errors import Conflict, NotFound, TooLong
from catalog.names import storable
from catalog.run_records import get_head
from catalog.run_status import StatusRequest, apply_status
from catalog.statuses import Source, Status
from catalog.tables import run_triggers, runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Row
    from sqlalchemy.ext.asyncio import AsyncConnection

    from catalog.engine import Database

CANCEL = "CANCEL"
TEXT_LENGTH_MAX = 1_000
"""Characters of a reason."""
ACTOR_LENGTH_MAX = 255


@dataclass(frozen=True, slots=True)
class Trigger:
    """One request."""

    id: int
    run_id: int
    kind: str
    reason: str | None
    actor: str | None
    created_at_ms: int
    consumed_at_ms: int | None


class Triggers:
    """The requests of this catalogue. Every method may raise Unavailable."""

    def __init__(self, database: Database, clock: WallClock = wall_ms) -> None:
        self._database = database
        self._clock = clock

    async def ask_cancel(
        self, tenant: str, run_id: int, *, reason: str | None, actor: str | None
    ) -> Trigger:
        """Asks that the run stops; asked again, gives the request that waits already.

        Raises:
            NotFound: the run. Conflict: it does not run. TooLong: the reason or the actor.
        Durability: the request survives a power cut.
        """
        _check(reason, actor)

        async def work(connection: AsyncConnection) -> Trigger:
            run = await get_head(connection, tenant, run_id, locked=True)
            if run.status is not Status.RUNNING:
                raise Conflict(
                    f"run {run.id} ({run.display_id}) is {run.status}: only a run that is RUNNING "
                    "can be cancelled"
                )
            waiting = await _waiting(connection, run_id)
            if waiting:
                return waiting[0]
            values = {
                "run_id": run_id,
                "kind": CANCEL,
                "reason": None if reason is None else storable(reason),
                "actor": None if actor is None else storable(actor),
                "created_at_ms": self._clock(),
            }
            statement = insert(run_triggers).values(**values).returning(run_triggers)
            return _trigger((await connection.execute(statement)).one())

        return await self._database.transact(work)

    async def carry_out(self, run_id: int) -> Status:
        """Does what is asked of a run that was just heard of, once, whoever else tries.

        A run that has ended by itself meanwhile keeps the status that it has.

        Returns: the run's status now.

        Raises:
            NotFound: the run.
        """

        async def work(connection: AsyncConnection) -> Status:
            tenant = select(runs.c.organisation_id).where(runs.c.id == run_id)
            owner = (await connection.execute(tenant)).scalar_one_or_none()
            if owner is None:
                raise NotFound("Run not found")
            run = await get_head(connection, owner, run_id, locked=True)
            now_ms = self._clock()
            waiting = await _waiting(connection, run_id)
            if not waiting:
                return run.status
            await connection.execute(
                update(run_triggers)
                .where(run_triggers.c.id.in_([trigger.id for trigger in waiting]))
                .values(consumed_at_ms=now_ms)
            )
            if run.status is not Status.RUNNING:
                return run.status
            first = waiting[0]
            metadata = {"reason": first.reason, "actor": first.actor, "trigger": first.kind}
            await apply_status(
                connection,
                run,
                StatusRequest(Status.CANCELLED, metadata=json.dumps(metadata)),
                Source.API,
                now_ms=now_ms,
                actor_id=first.actor,
            )
            return Status.CANCELLED

        return await self._database.transact(work)

    async def of_run(self, run_id: int) -> list[Trigger]:
        """All that was ever asked of a run, oldest first."""
        statement = (
            select(run_triggers)
            .where(run_triggers.c.run_id == run_id)
            .order_by(run_triggers.c.id)
            .limit(1_000)
        )
        async with self._database.read() as connection:
            return [_trigger(row) for row in await connection.execute(statement)]


async def _waiting(connection: AsyncConnection, run_id: int) -> list[Trigger]:
    statement = (
        select(run_triggers)
        .where(run_triggers.c.run_id == run_id, run_triggers.c.consumed_at_ms.is_(None))
        .order_by(run_triggers.c.id)
    )
    return [_trigger(row) for row in await connection.execute(statement)]


def _trigger(row: Row[tuple[object, ...]]) -> Trigger:
    return Trigger(
        id=row.id,
        run_id=row.run_id,
        kind=row.kind,
        reason=row.reason,
        actor=row.actor,
        created_at_ms=row.created_at_ms,
        consumed_at_ms=row.consumed_at_ms,
    )


def _check(reason: str | None, actor: str | None) -> None:
    bounds: Sequence[tuple[str, str | None, int]] = (
        ("reason", reason, TEXT_LENGTH_MAX),
        ("actor", actor, ACTOR_LENGTH_MAX),
    )
    for field, text, length_max in bounds:
        if text is not None and len(text) > length_max:
            raise TooLong(f"{field} may have at most {length_max:,} characters")
