"""Heartbeats: a training process asks whether it may go on, and so shows that it lives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import select

from catalog.clock import WallClock, wall_ms
from catalog.errors import NotFound, Unavailable
from catalog.run_records import RUN_ID_MAX
from catalog.statuses import Status
from catalog.tables import heartbeats, runs

if TYPE_CHECKING:
    from catalog.engine import Database

WRITE_INTERVAL_MS = 30_000
"""One write in 30 s for a run that beats every 4 s; those who judge silence wait 150 s."""


@dataclass(frozen=True, slots=True)
class Beat:
    """What a heartbeat learns, and whether it was noted."""

    status: Status
    failure: Unavailable | None = None
    """Why the beat could not be noted; the client is answered all the same."""


class Heartbeats:
    """The heartbeats of this catalogue. Stateless: the last note is read with the status."""

    def __init__(self, database: Database, clock: WallClock = wall_ms) -> None:
        self._database = database
        self._clock = clock

    async def beat(self, tenant: str, run_id: int) -> Beat:
        """Notes that the run lives, and gives its status.

        Raises:
            NotFound: the run. Unavailable: the status could not be read.
        """
        now_ms = self._clock()
        status, last_seen_at_ms = await self._look(tenant, run_id)
        if last_seen_at_ms is not None and now_ms - last_seen_at_ms < WRITE_INTERVAL_MS:
            return Beat(status)
        try:
            await self._note(run_id, now_ms)
        except Unavailable as failure:
            return Beat(status, failure)
        return Beat(status)

    async def _look(self, tenant: str, run_id: int) -> tuple[Status, int | None]:
        statement = (
            select(runs.c.status, heartbeats.c.last_seen_at_ms)
            .outerjoin(heartbeats, heartbeats.c.run_id == runs.c.id)
            .where(runs.c.organisation_id == tenant, runs.c.id == run_id)
        )
        row = None
        if 0 < run_id <= RUN_ID_MAX:
            async with self._database.read() as connection:
                row = (await connection.execute(statement)).first()
        if row is None:
            raise NotFound("Run not found")
        return Status(row.status), row.last_seen_at_ms

    async def _note(self, run_id: int, now_ms: int) -> None:
        statement = (
            self._database.insert(heartbeats)
            .values(run_id=run_id, last_seen_at_ms=now_ms)
            .on_conflict_do_update(
                index_elements=[heartbeats.c.run_id],
                set_={"last_seen_at_ms": now_ms},
                # Another process may have noted one in between; time does not run back.
                where=heartbeats.c.last_seen_at_ms <= now_ms - WRITE_INTERVAL_MS,
            )
        )
        async with self._database.write() as connection:
            await connection.execute(statement)
