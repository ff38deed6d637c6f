"""Runs that say they run and have fallen silent: found by what the catalogue knows, and failed.

| the run has         | its silence counts from the latest of                            | grace   |
|---------------------|------------------------------------------------------------------|---------|
| sent heartbeats     | heartbeat, arrival of rows, change of status                     | beat    |
| never sent one      | arrival of rows, change of status, `updated_at`                  | silent  |

The times of the last two columns of `charon_runs` may be the client's word; one that lies ahead of
now is no evidence. Whatever a client says of the past, no run is judged within the beat's grace of
its making or its last change of status by our own clock: a run that is imported, with times of
last year, may be RUNNING for a while. What ClickHouse knows of its rows is for the caller to ask.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, func, insert, or_, select

from catalog.clock import WallClock, wall_ms
from catalog.run_records import get_head
from catalog.run_status import StatusRequest, apply_status
from catalog.statuses import Source, Status
from catalog.tables import alerts, arrivals, heartbeats, projects, run_events, runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Select
    from sqlalchemy.ext.asyncio import AsyncConnection

    from catalog.engine import Database

SKEW_MS = 300_000
"""A client's time this far ahead of ours is taken for a wrong clock, not for a sign of life."""
QUIET_MS_MAX = 16_384 * 86_400_000
"""45 years since the run's last event are a clock gone wrong, as the reference has it."""
FAILED_AT_ONCE_MAX = 50
"""In one transaction: others that write wait for so long."""


@dataclass(frozen=True, slots=True)
class Grace:
    """How long a run may be silent, in ms."""

    beat_ms: int
    """One that has sent heartbeats."""
    silent_ms: int
    """One that never has."""


@dataclass(frozen=True, slots=True)
class SilentRun:
    """A run that nothing in the catalogue speaks for any more."""

    run_id: int
    tenant: str
    project: str
    has_beaten: bool
    heard_at_ms: int
    """The latest sign of life, by the table above."""

    def grace_ms(self, grace: Grace) -> int:
        """What it is allowed."""
        return grace.beat_ms if self.has_beaten else grace.silent_ms

    def is_silent(self, now_ms: int, grace: Grace) -> bool:
        """Whether it has been silent for longer than it may."""
        return now_ms - self.heard_at_ms > self.grace_ms(grace)


class StaleRuns:
    """Finds and fails silent runs. Every method may raise Unavailable."""

    def __init__(self, database: Database, clock: WallClock = wall_ms) -> None:
        self._database = database
        self._clock = clock

    async def silent(self, grace: Grace, *, after: int, limit: int) -> list[SilentRun]:
        """Runs that may be failed if no rows speak for them, in order of their ids.

        Args:
            grace: how long they may be silent.
            after: only ids above.
            limit: so many at most; fewer mean that there are no more.
        """
        now_ms = self._clock()
        statement = (
            _select_silent(now_ms, grace).where(runs.c.id > after).order_by(runs.c.id).limit(limit)
        )
        async with self._database.read() as connection:
            return [_silent(row, now_ms) for row in await connection.execute(statement)]

    async def fail(self, found: Sequence[SilentRun], grace: Grace) -> list[int]:
        """Marks those of the runs FAILED that are silent still, with an event and an alert each.

        Returns: the ids of the runs that were failed.
        """
        failed: list[int] = []
        for start in range(0, len(found), FAILED_AT_ONCE_MAX):
            part = found[start : start + FAILED_AT_ONCE_MAX]

            async def work(
                connection: AsyncConnection, part: Sequence[SilentRun] = part
            ) -> list[int]:
                return [run.run_id for run in part if await self._fail(connection, run, grace)]

            failed += await self._database.transact(work)
        return failed

    async def _fail(self, connection: AsyncConnection, found: SilentRun, grace: Grace) -> bool:
        now_ms = self._clock()
        head = await get_head(connection, found.tenant, found.run_id, locked=True)
        statement = _select_silent(now_ms, grace).where(runs.c.id == found.run_id)
        row = (await connection.execute(statement)).first()
        if row is None:  # it was heard of, or has ended, in between
            return False
        heard_at_ms = max(found.heard_at_ms, _silent(row, now_ms).heard_at_ms)
        grace_ms = found.grace_ms(grace)
        metadata = {
            "reason": "heartbeat-timeout" if found.has_beaten else "stale",
            "grace_seconds": _seconds(grace_ms),
            "stale_for_seconds": (now_ms - heard_at_ms) // 1_000,
            "last_update_time": _iso(heard_at_ms),
        }
        await apply_status(
            connection,
            head,
            StatusRequest(Status.FAILED, metadata=json.dumps(metadata)),
            Source.STALE_MONITOR,
            now_ms=now_ms,
        )
        await connection.execute(
            insert(alerts).values(
                run_id=head.id,
                level="RUN_FAILED",
                title=f"Run {head.name} ({head.display_id}) was marked FAILED",
                body=f"Nothing was heard of it since {_iso(heard_at_ms)}.",
                wants_mail=False,
                raised_at_ms=now_ms,
                created_at_ms=now_ms,
            )
        )
        return True


def _select_silent(now_ms: int, grace: Grace) -> Select[Any]:
    beat_ms, silent_ms = now_ms - grace.beat_ms, now_ms - grace.silent_ms
    seen, received = heartbeats.c.last_seen_at_ms, arrivals.c.last_received_at_ms
    last_event = (
        select(func.max(run_events.c.created_at_ms))
        .where(run_events.c.run_id == runs.c.id)
        .scalar_subquery()
    )
    status_updated, updated = runs.c.status_updated_at_ms, runs.c.updated_at_ms
    fell_silent = or_(
        and_(
            seen < beat_ms, _is_before(received, beat_ms), _is_past(status_updated, beat_ms, now_ms)
        ),
        and_(
            seen.is_(None),
            _is_before(received, silent_ms),
            _is_past(status_updated, silent_ms, now_ms),
            _is_past(updated, silent_ms, now_ms),
        ),
    )
    return (
        select(
            runs.c.id,
            runs.c.organisation_id,
            projects.c.name.label("project"),
            seen.label("seen"),
            received.label("received"),
            status_updated.label("status_updated"),
            updated.label("updated"),
            last_event.label("last_event"),
        )
        .join(projects, projects.c.id == runs.c.project_id)
        .outerjoin(heartbeats, heartbeats.c.run_id == runs.c.id)
        .outerjoin(arrivals, arrivals.c.run_id == runs.c.id)
        .where(
            runs.c.status == Status.RUNNING,
            fell_silent,
            last_event.between(now_ms - QUIET_MS_MAX, beat_ms - 1),
        )
    )


def _is_before(column: ColumnElement[Any], time_ms: int) -> ColumnElement[bool]:
    return or_(column.is_(None), column < time_ms)


def _is_past(column: ColumnElement[Any], time_ms: int, now_ms: int) -> ColumnElement[bool]:
    return or_(column.is_(None), column < time_ms, column > now_ms + SKEW_MS)


def _silent(row: Any, now_ms: int) -> SilentRun:  # noqa: ANN401 - a row of `_select_silent`
    has_beaten = row.seen is not None
    told = [row.status_updated] if has_beaten else [row.status_updated, row.updated]
    ours = [row.seen, row.received]
    heard = [time_ms for time_ms in told if time_ms is not None and time_ms <= now_ms + SKEW_MS]
    heard += [time_ms for time_ms in ours if time_ms is not None]
    return SilentRun(
        run_id=row.id,
        tenant=row.organisation_id,
        project=row.project,
        has_beaten=has_beaten,
        heard_at_ms=max(heard, default=row.last_event or 0),
    )


def _seconds(time_ms: int) -> int | float:
    return time_ms // 1_000 if time_ms % 1_000 == 0 else time_ms / 1_000


def _iso(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms / 1_000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
