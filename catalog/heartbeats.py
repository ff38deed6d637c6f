"""Signs of life of runs, many at a time: one statement reads them, one writes them.

A training process asks every few seconds whether it may go on, and so shows that it lives; rows
that arrive for a run show it too. Nobody waits for either to be written: `ingest` keeps what it
heard in memory, and hands it over every few seconds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import ARRAY, BigInteger, any_, bindparam, cast, func, literal, or_, select, true

from catalog.run_records import RUN_ID_MAX
from catalog.statuses import Status
from catalog.tables import arrivals, heartbeats, run_triggers, runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import ColumnElement, Select, Subquery, Table

    from catalog.engine import Database

RUNS_MAX = 10_000
"""Of one statement; the caller asks again for the rest."""

_SEEN = (heartbeats, "last_seen_at_ms")
_RECEIVED = (arrivals, "last_received_at_ms")


@dataclass(frozen=True, slots=True)
class RunState:
    """What a run's process has to be told."""

    run_id: int
    tenant: str
    status: Status
    is_cancel_asked: bool
    """Somebody asked from outside that it stops, and nobody has acted on it yet."""


class Heartbeats:
    """The signs of life that this catalogue keeps. Every method may raise Unavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def states(self, run_ids: Iterable[int]) -> list[RunState]:
        """The states of those runs that exist, of whatever organisation.

        Args:
            run_ids: any integers, at most `RUNS_MAX`.
        """
        return await self._ask(_select_states(), run_ids)

    async def notable(self, run_ids: Iterable[int]) -> list[RunState]:
        """Those of the runs that do not just go on: terminal ones, and ones asked to stop."""
        return await self._ask(
            _select_states().where(or_(runs.c.status != Status.RUNNING, _is_cancel_asked())),
            run_ids,
        )

    async def note_beats(self, seen_at_ms: Mapping[int, int]) -> None:
        """Notes when runs were heard of last. Time does not run back; an unknown run is skipped.

        Args:
            seen_at_ms: by run id, at most `RUNS_MAX`.
        Durability: they survive a power cut.
        """
        await self._note(*_SEEN, seen_at_ms)

    async def note_rows(self, received_at_ms: Mapping[int, int]) -> None:
        """The same for when rows of runs were received last."""
        await self._note(*_RECEIVED, received_at_ms)

    async def _ask(self, statement: Select[Any], run_ids: Iterable[int]) -> list[RunState]:
        numbers = [run_id for run_id in run_ids if 0 < run_id <= RUN_ID_MAX]
        assert len(numbers) <= RUNS_MAX
        if not numbers:
            return []
        statement = statement.where(self._is_one_of(numbers))
        async with self._database.read() as connection:
            rows = (await connection.execute(statement)).all()
        return [
            RunState(row.id, row.tenant, Status(row.status), bool(row.is_cancel_asked))
            for row in rows
        ]

    def _is_one_of(self, run_ids: Sequence[int]) -> ColumnElement[bool]:
        # One parameter, however many there are: thousands would be bound one by one.
        if self._database.is_sqlite:
            listed = func.json_each(json.dumps(run_ids)).table_valued("value")
            return runs.c.id.in_(select(listed.c.value))
        numbers = bindparam("run_ids", run_ids, type_=ARRAY(BigInteger))
        return runs.c.id == any_(numbers)

    async def _note(self, table: Table, column: str, at_ms: Mapping[int, int]) -> None:
        if not at_ms:
            return
        assert len(at_ms) <= RUNS_MAX
        told = self._told(at_ms)
        # In one order everywhere: two replicas that note the same runs wait and do not deadlock.
        rows = (
            select(runs.c.id, told.c.at_ms)
            .select_from(told)
            .join(runs, runs.c.id == told.c.run_id)
            .where(true())  # SQLite takes ON CONFLICT for a part of the join without one
            .order_by(runs.c.id)
        )
        insert = self._database.insert(table).from_select(["run_id", column], rows)
        statement = insert.on_conflict_do_update(
            index_elements=[table.c.run_id],
            set_={column: insert.excluded[column]},
            where=table.c[column] < insert.excluded[column],
        )
        await self._database.transact(lambda connection: connection.execute(statement))

    def _told(self, at_ms: Mapping[int, int]) -> Subquery:
        """The given pairs, as a table."""
        if self._database.is_sqlite:
            pairs = func.json_each(json.dumps(at_ms)).table_valued("key", "value")
            return select(
                cast(pairs.c.key, BigInteger).label("run_id"), pairs.c.value.label("at_ms")
            ).subquery("told")
        numbers = literal(list(at_ms), ARRAY(BigInteger))
        times = literal(list(at_ms.values()), ARRAY(BigInteger))
        pairs = func.unnest(numbers, times).table_valued("run_id", "at_ms").render_derived("pairs")
        return select(pairs.c.run_id, pairs.c.at_ms).subquery("told")


def _select_states() -> Select[Any]:
    """Id, organisation, status and whether a cancellation is asked, of all runs."""
    return select(
        runs.c.id,
        runs.c.organisation_id.label("tenant"),
        runs.c.status,
        _is_cancel_asked().label("is_cancel_asked"),
    )


def _is_cancel_asked() -> ColumnElement[bool]:
    return (
        select(run_triggers.c.id)
        .where(run_triggers.c.run_id == runs.c.id, run_triggers.c.consumed_at_ms.is_(None))
        .exists()
    )
