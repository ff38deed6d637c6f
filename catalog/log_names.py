"""The registry of the names that a run logs under, for those who list them; rows need none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from catalog.errors import TooLong
from catalog.names import storable
from catalog.run_records import get_head
from catalog.tables import log_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from catalog.engine import Database

LOG_NAME_LENGTH_MAX = 4_096
LOG_TYPE_LENGTH_MAX = 64
ROWS_MAX = 2_000
"""Of one statement: 10 ms of preparing it, between which others get their turn."""


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
        _check_length("logType", log_type, LOG_TYPE_LENGTH_MAX)
        for name in names:
            _check_length("logName", name, LOG_NAME_LENGTH_MAX)
        kept = list(dict.fromkeys(storable(name) for name in names))
        statement = self._database.insert(log_names).on_conflict_do_nothing()
        async with self._database.write() as connection:
            await get_head(connection, tenant, run_id)
            for start in range(0, len(kept), ROWS_MAX):
                rows = [
                    {
                        "run_id": run_id,
                        "log_name": name,
                        "log_group": group_of(name),
                        "log_type": storable(log_type),
                    }
                    for name in kept[start : start + ROWS_MAX]
                ]
                await connection.execute(statement, rows)


def _check_length(field: str, text: str, length_max: int) -> None:
    if len(text) > length_max:
        raise TooLong(f"{field} may have at most {length_max} characters, and has {len(text)}")
