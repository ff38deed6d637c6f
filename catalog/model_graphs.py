"""Graphs of the models that a run trains, as their layers were called."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import func, select

from catalog.clock import WallClock, wall_ms
from catalog.documents import DOCUMENT_BYTES_MAX
from catalog.errors import Invalid, TooLarge
from catalog.run_records import get_head
from catalog.tables import model_graphs

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from catalog.engine import Database

GRAPHS_MAX = 100
"""Of one run: each model that it watches gives one."""


@dataclass(frozen=True, slots=True)
class ModelGraph:
    """A graph as JSON text, and when it first came."""

    graph: str
    created_at_ms: int


class ModelGraphs:
    """The graphs of this catalogue."""

    def __init__(self, database: Database, clock: WallClock = wall_ms) -> None:
        self._database = database
        self._clock = clock

    async def add(self, tenant: str, run_id: int, graph: str) -> None:
        """Adds a graph to a run; one that is there already is there once.

        Args:
            tenant: the organisation that asks.
            run_id: the run's.
            graph: JSON text, spelled alike for alike graphs.

        Raises:
            NotFound: the run. TooLarge: the graph. Invalid: the run has too many.
        """
        size = len(graph.encode())
        if size > DOCUMENT_BYTES_MAX:
            raise TooLarge(f"graph may have at most {DOCUMENT_BYTES_MAX} bytes, and has {size}")
        digest = hashlib.sha256(graph.encode()).hexdigest()
        columns = model_graphs.c
        statement = (
            self._database.insert(model_graphs)
            .values(run_id=run_id, digest=digest, graph=graph, created_at_ms=self._clock())
            .on_conflict_do_nothing()
        )
        others = select(func.count()).where(columns.run_id == run_id, columns.digest != digest)

        async def work(connection: AsyncConnection) -> None:
            await get_head(connection, tenant, run_id, locked=True)
            if (await connection.execute(others)).scalar_one() >= GRAPHS_MAX:
                raise Invalid(f"graph: a run may have at most {GRAPHS_MAX} model graphs")
            await connection.execute(statement)

        await self._database.transact(work)

    async def of_run(self, tenant: str, run_id: int) -> list[ModelGraph]:
        """A run's graphs in the order in which they came.

        Raises:
            NotFound: the run.
        """
        columns = model_graphs.c
        statement = (
            select(columns.graph, columns.created_at_ms)
            .where(columns.run_id == run_id)
            .order_by(columns.created_at_ms, columns.digest)
        )
        async with self._database.read() as connection:
            await get_head(connection, tenant, run_id)
            return [ModelGraph(*row) for row in await connection.execute(statement)]
