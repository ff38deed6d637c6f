"""The questions of reconciliation, as SQL: which blocks are there, and which rows.

Both are bounded: one thread, 30 seconds, half a gigabyte, so that a look never weighs on a server
that is busy.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from schema.quoting import literal, qualified
from schema.streams import StreamKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schema.block import Layout
    from schema.ids import BlockNumber

LOOK_SETTINGS: Mapping[str, str | int] = MappingProxyType(
    {"max_threads": 1, "max_execution_time": 30, "max_memory_usage": 512 * 2**20}
)

ROWS_TEXT_MAX = 100_000
"""Characters of all rows in one question; a server takes 262,144 of a query."""

_LINE = ("tenantId", "projectName", "runId")
_SERIES = (*_LINE, "logGroup", "logName", "step")
_IDENTITY: Mapping[StreamKind, tuple[str, ...]] = MappingProxyType(
    {
        StreamKind.METRICS: _SERIES,
        StreamKind.LOGS: (*_LINE, "logType", "lineNumber"),
        StreamKind.DATA: _SERIES,
        StreamKind.FILES: _SERIES,
    }
)
"""With the time: what tells a row from others, as far as it takes to see that it is there."""


def blocks_query(
    database: str, layout: Layout, numbers: Sequence[BlockNumber], since_s: int | None
) -> str:
    """Rows of each of these blocks: ``(batch, rows)``, none for a block that is not there.

    Args:
        database: the tables' own.
        layout: of a table with a column ``batch``.
        numbers: at most some hundreds.
        since_s: look only into parts made since; a block that was inserted later is in one of
            those, merged or not. None: into all, which reads the whole column.
    """
    table = layout.stream.table
    chosen = ",".join(str(int(number)) for number in numbers)
    recent = ""
    if since_s is not None:
        recent = (
            " AND _part IN (SELECT name FROM system.parts WHERE active"  # noqa: S608 - quoted
            f" AND database = {literal(database)} AND table = {literal(table)}"
            f" AND modification_time >= fromUnixTimestamp({int(since_s)}))"
        )
    return (
        f"SELECT batch, count() AS rows FROM {qualified(database, table)} "  # noqa: S608 - quoted
        f"WHERE batch IN ({chosen}){recent} GROUP BY batch"
    )


def rows_query(database: str, layout: Layout, rows: Sequence[Mapping[str, object]]) -> str:
    """How many different ones of these rows the table has, whichever block they came in.

    Args:
        database: the tables' own.
        layout: the table.
        rows: as `schema.reading.rows_of` gives them.
    """
    names = _IDENTITY[layout.stream.kind]
    key = f"({', '.join(names)}, toUnixTimestamp64Milli(time))"
    values = ",".join(identity(layout.stream.kind, rows))
    return (
        f"SELECT uniqExact({key}) AS rows "  # noqa: S608 - quoted
        f"FROM {qualified(database, layout.stream.table)} WHERE {key} IN ({values})"
    )


def identity(kind: StreamKind, rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Each row's identity as a tuple of literals, every one once, within `ROWS_TEXT_MAX`."""
    found: dict[str, None] = {}
    size = 0
    for row in rows:
        values = [row[name] for name in _IDENTITY[kind]] + [row["time"]]
        text = f"({','.join(map(_literal, values))})"
        if text not in found and size + len(text) <= ROWS_TEXT_MAX:
            found[text] = None
            size += len(text)
    return list(found)


def _literal(value: object) -> str:
    return literal(value) if isinstance(value, str) else repr(value)
