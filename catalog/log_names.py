"""The registry of the names that a run logs under, for those who list them; rows need none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import select

from catalog.errors import TooLong
from catalog.names import storable
from catalog.run_records import get_head
from catalog.tables import log_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection

    from catalog.engine import Database

LOG_NAME_BYTES_MAX = 2_500
"""Of UTF-8. Postgres has 2,704 bytes for an entry of the index that keeps a run's names apart."""
LOG_TYPE_LENGTH_MAX = 64
ROWS_MAX = 2_000
"""Of one statement: 10 ms of preparing it, between which others get their turn."""


LISTED_MAX = 1_000
"""Of one run's names, in its details. Source: the wire's."""


@dataclass(frozen=True, slots=True)
class LogName:
    """A name as it is registered."""

    name: str
    type: str
    group: str


def group_of(log_name: str) -> str:
    """All before the last slash; empty where there is none."""
    return log_name.rpartition("/")[0]


class LogNames:
    """The registry of this catalogue."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, tenant: str, run_id: int, log_type: str, names: Sequence[str]) -> None:
        """Registers names of a run; a name that is there keeps its first type. Any type is taken.

        Raises:
            NotFound: the run. TooLong: a name or the type. Unavailable: the database.
        """
        if len(log_type) > LOG_TYPE_LENGTH_MAX:
            raise TooLong(
                f"logType may have at most {LOG_TYPE_LENGTH_MAX} characters, and has "
                f"{len(log_type)}"
            )
        kept = sorted({_checked(name) for name in names})
        statement = self._database.insert(log_names).on_conflict_do_nothing()
        rows = [
            {
                "run_id": run_id,
                "log_name": name,
                "log_group": group_of(name),
                "log_type": storable(log_type),
            }
            for name in kept
        ]

        async def work(connection: AsyncConnection) -> None:
            await get_head(connection, tenant, run_id)
            # In the order of names, so that two ranks wait for each other and never both.
            for start in range(0, len(rows), ROWS_MAX):
                await connection.execute(statement, rows[start : start + ROWS_MAX])

        await self._database.transact(work)


async def names_of(connection: AsyncConnection, run_id: int) -> list[LogName]:
    """A run's names, the first of them in order."""
    columns = log_names.c
    statement = (
        select(columns.log_name, columns.log_type, columns.log_group)
        .where(columns.run_id == run_id)
        .order_by(columns.log_name)
        .limit(LISTED_MAX)
    )
    return [LogName(*row) for row in await connection.execute(statement)]


def _checked(name: str) -> str:
    name = storable(name)
    if len(name) * 4 > LOG_NAME_BYTES_MAX and len(name.encode()) > LOG_NAME_BYTES_MAX:
        raise TooLong(
            f"logName may have at most {LOG_NAME_BYTES_MAX} bytes of UTF-8, and has "
            f"{len(name.encode())}"
        )
    return name
