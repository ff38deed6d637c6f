"""What the run API reads of stored rows: series, logs, names and statistics of one tenant.

A point of a series is the row of its step that was written last: the one of the largest time, and
of equal times the one that sorts last. So a step that was logged again shows its latest value, and
a row that was sent twice counts once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from catalog.errors import TooLarge
from ingest.answers import RequestRefused
from schema.streams import LOGS, METRICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingest.reader import Reader

ROWS_MAX = 50_000
BYTES_MAX = 64 * 2**20
STATISTICS_MAX = 100

_BOUNDS = f"SETTINGS max_result_rows = {ROWS_MAX}, max_result_bytes = {BYTES_MAX}"
_TOO_MANY = 396
"""ClickHouse's code for a result above these."""

_PROJECT = "tenantId = {tenant:String} AND projectName = {project:String}"
_RUNS = "runId IN {runs:Array(UInt64)}"
_AGGREGATES = {
    "MIN": "minIf(value, isFinite(value))",
    "MAX": "maxIf(value, isFinite(value))",
    "AVG": "avgIf(value, isFinite(value))",
    "LAST": "argMaxIf(value, step, isFinite(value))",
    "VARIANCE": "varPopIf(value, isFinite(value))",
}
_POINTS = (
    "SELECT runId, logName, logGroup, step, "  # noqa: S608 - ours
    "argMax(rows.value, (rows.time, reinterpretAsUInt64(rows.value))) AS value, "
    "max(rows.time) AS time "
    f"FROM {METRICS.table} AS rows WHERE {{where}} GROUP BY runId, logName, logGroup, step"
)


@dataclass(frozen=True, slots=True)
class Series:
    """Which points: of a project, or some of its runs; of a name, a group; from step to step."""

    tenant: str
    project: str
    run_ids: Sequence[int] | None = None
    log_name: str | None = None
    log_group: str | None = None
    step_min: int | None = None
    step_max: int | None = None

    def points(self) -> str:
        """The query of the points, for one around it."""
        return _POINTS.format(where=self.where())

    def where(self) -> str:
        """What a row's columns must be."""
        where = [_PROJECT]
        if self.run_ids is not None:
            where.append(_RUNS)
        if self.log_name is not None:
            where.append("logName = {name:String}")
        if self.log_group is not None:
            where.append("logGroup = {group:String}")
        if self.step_min is not None:
            where.append("step >= {from:Int64}")
        if self.step_max is not None:
            where.append("step <= {to:Int64}")
        return " AND ".join(where)

    def parameters(self) -> dict[str, str]:
        """The values in it."""
        given = {
            "tenant": self.tenant,
            "project": self.project,
            "runs": None if self.run_ids is None else str(list(self.run_ids)),
            "name": self.log_name,
            "group": self.log_group,
            "from": self.step_min,
            "to": self.step_max,
        }
        return {name: str(value) for name, value in given.items() if value is not None}


async def points(reader: Reader, series: Series, limit: int) -> tuple[list[dict[str, Any]], int]:
    """Points by name and step; of a name with more than a limit, every n-th and the last.

    Returns: the points, and the limit: a smaller one than was asked for, where so many names of so
    many points would be too much for one answer.

    Raises:
        TooLarge: they are too much all the same. RequestRefused: they cannot be read now.
    """
    counting = (
        "SELECT uniqExact(logName, logGroup) AS names "  # noqa: S608 - ours
        f"FROM {METRICS.table} WHERE {series.where()}"
    )
    counted = await _rows(reader, counting, **series.parameters())
    limit = max(1, min(limit, ROWS_MAX // max(1, int(counted[0]["names"])) - 1))
    query = (
        "SELECT logName, logGroup, step, value, time FROM ("  # noqa: S608 - ours
        "SELECT *, row_number() OVER names AS place, "
        "count() OVER (PARTITION BY runId, logName, logGroup) AS places "
        f"FROM ({series.points()}) "
        "WINDOW names AS (PARTITION BY runId, logName, logGroup ORDER BY step)) "
        "WHERE places <= {limit:UInt32} OR place = places "
        "OR place % intDiv(places + {limit:UInt32} - 1, {limit:UInt32}) = 1 "
        f"ORDER BY logName, step {_BOUNDS}"
    )
    return await _rows(reader, query, **series.parameters(), limit=str(limit)), limit


async def statistics(reader: Reader, series: Series) -> list[dict[str, Any]]:
    """Of each run and name, over finite values; by name, the first hundred of a run.

    Raises:
        TooLarge, RequestRefused: as above.
    """
    query = (
        "SELECT runId, logName, logGroup, countIf(isFinite(value)) AS count, "  # noqa: S608 - ours
        "minIf(value, isFinite(value)) AS min, maxIf(value, isFinite(value)) AS max, "
        "avgIf(value, isFinite(value)) AS mean, stddevPopIf(value, isFinite(value)) AS stddev, "
        "argMaxIf(value, step, isFinite(value)) AS last, max(step) AS lastStep "
        f"FROM ({series.points()}) GROUP BY runId, logName, logGroup "
        f"ORDER BY runId, logName LIMIT {STATISTICS_MAX} BY runId {_BOUNDS}"
    )
    return await _rows(reader, query, **series.parameters())


async def metric_names(
    reader: Reader,
    tenant: str,
    project: str,
    run_ids: Sequence[int],
    *,
    search: str | None,
    limit: int,
) -> list[str]:
    """Names of a project's metrics, in order; of all its runs where none is given.

    Raises:
        RequestRefused: as above.
    """
    series = Series(tenant, project, run_ids or None)
    where, parameters = series.where(), series.parameters() | {"limit": str(limit)}
    if search:
        where += " AND positionCaseInsensitiveUTF8(logName, {search:String}) > 0"
        parameters["search"] = search
    query = (
        f"SELECT DISTINCT logName FROM {METRICS.table} WHERE {where} "  # noqa: S608 - ours
        "ORDER BY logName LIMIT {limit:UInt32}"
    )
    return [str(row["logName"]) for row in await _rows(reader, query, **parameters)]


async def ranks(
    reader: Reader,
    series: Series,
    aggregation: str,
    *,
    is_descending: bool,
    limit: int,
    offset: int,
) -> tuple[list[tuple[int, float]], int]:
    """Runs with their aggregate of one metric, in its order; and how many there are.

    Raises:
        RequestRefused: as above.
    """
    runs = (
        f"SELECT runId, {_AGGREGATES[aggregation]} AS aggregate FROM ({series.points()}) "  # noqa: S608 - ours
        "GROUP BY runId HAVING countIf(isFinite(value)) > 0"
    )
    counted = await _rows(reader, f"SELECT count() AS total FROM ({runs})", **series.parameters())  # noqa: S608
    query = (
        f"{runs} ORDER BY aggregate {'DESC' if is_descending else 'ASC'}, runId "
        "LIMIT {limit:UInt32} OFFSET {offset:UInt32}"
    )
    rows = await _rows(reader, query, **series.parameters(), limit=str(limit), offset=str(offset))
    return [(int(row["runId"]), row["aggregate"]) for row in rows], int(counted[0]["total"])


async def logs(
    reader: Reader,
    series: Series,
    log_type: str | None,
    *,
    limit: int,
    offset: int,
) -> tuple[list[dict[str, Any]], int]:
    """Console lines by their number, then by time; and how many there are.

    Raises:
        TooLarge, RequestRefused: as above.
    """
    where = series.where() + (" AND logType = {type:String}" if log_type else "")
    parameters = series.parameters() | ({"type": log_type} if log_type else {})
    table = f"{LOGS.table} FINAL WHERE {where}"
    count = await _rows(reader, f"SELECT count() AS total FROM {table}", **parameters)  # noqa: S608
    query = (
        f"SELECT time, logType, lineNumber, message, step FROM {table} "  # noqa: S608 - ours
        "ORDER BY lineNumber, time, logType LIMIT {limit:UInt32} OFFSET {offset:UInt32} "
        f"{_BOUNDS}"
    )
    lines = await _rows(reader, query, **parameters, limit=str(limit), offset=str(offset))
    return lines, int(count[0]["total"])


async def _rows(reader: Reader, query: str, **parameters: str) -> list[dict[str, Any]]:
    try:
        return await reader.rows(query, **parameters)
    except RequestRefused as refusal:
        if getattr(refusal.__cause__, "code", None) == _TOO_MANY:
            raise TooLarge(
                f"the answer would be above {ROWS_MAX:,} rows or {BYTES_MAX // 2**20} MiB: give "
                "logName, a range of steps, or a smaller limit"
            ) from refusal
        raise
