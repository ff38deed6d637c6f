"""Reading what was logged: points, statistics, names and console lines.

Rows are looked for under the project that is asked for, in the key's organisation; of a run that
is not there, there are none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from catalog.errors import Invalid, NotFound
from catalog.iso_times import iso_time
from ingest.api_documents import in_turns, json_value
from ingest.api_endpoints import asked
from ingest.api_opening import plain_number, run_url
from ingest.api_queries import (
    CompareQuery,
    LeaderboardQuery,
    LogsQuery,
    MetricNamesQuery,
    MetricsQuery,
    StatisticsQuery,
)
from ingest.api_series_replies import (
    Comparison,
    Leaderboard,
    LogLines,
    MetricNames,
    MetricPoints,
    Statistics,
)
from ingest.appkeys import READER
from ingest.stored_rows import Series, logs, metric_names, points, ranks, statistics

if TYPE_CHECKING:
    from ingest.api_calls import Asked, Caller
    from ingest.reader import Reader

_FLAGS = {"nan": "NaN", "inf": "Inf", "-inf": "-Inf"}


async def list_points(call: Asked[MetricsQuery]) -> dict[str, Any]:
    """A run's points by name and step; of more than `limit` of a name, every n-th and the last."""
    query = call.query
    series = Series(
        call.tenant,
        query.project_name,
        [query.run_id],
        log_name=query.log_name,
        log_group=query.log_group,
        step_min=query.step_min,
        step_max=query.step_max,
    )
    found, limit = await points(_reader(call), series, query.limit)
    return {
        "limit": limit,
        "metrics": [
            {
                "logName": row["logName"],
                "logGroup": row["logGroup"],
                **_value(row["value"]),
                "time": row["time"],
                "step": plain_number(float(row["step"])),
            }
            for row in found
        ],
    }


async def list_metric_names(call: Asked[MetricNamesQuery]) -> dict[str, Any]:
    """Names of a project's metrics, of all its runs or of some, in order."""
    query = call.query
    names = await metric_names(
        _reader(call),
        call.tenant,
        query.project_name,
        query.run_ids,
        search=query.search,
        limit=query.limit,
    )
    return {"projectName": query.project_name, "metricNames": names}


async def run_statistics(call: Asked[StatisticsQuery]) -> dict[str, Any]:
    """Count, bounds, mean and last value of a run's metrics, over finite values."""
    query = call.query
    found = await call.catalog.runs.listed(call.tenant, [query.run_id])
    if not found.runs or found.runs[0].head.project != query.project_name:
        raise NotFound("Run not found")
    run = found.runs[0].head
    series = Series(
        call.tenant,
        query.project_name,
        [query.run_id],
        log_name=query.log_name,
        log_group=query.log_group,
    )
    return {
        "runId": run.id,
        "runName": run.name,
        "projectName": run.project,
        "url": run_url(call.request, found.organisation_slug, run),
        "metrics": [
            {
                "logName": row["logName"],
                "logGroup": row["logGroup"],
                **_bounds(row),
                "stddev": row["stddev"] if row["count"] else None,
                "last": {
                    "step": plain_number(float(row["lastStep"])),
                    "value": row["last"] if row["count"] else None,
                },
            }
            for row in await statistics(_reader(call), series)
        ],
    }


async def compare(call: Asked[CompareQuery]) -> dict[str, Any]:
    """One metric's statistics of several runs; runs that are not there are left out."""
    query = call.query
    found = await call.catalog.runs.listed(call.tenant, query.run_ids)
    runs = {run.head.id: run for run in found.runs if run.head.project == query.project_name}
    if not runs:
        raise Invalid("No valid run IDs provided")
    series = Series(call.tenant, query.project_name, sorted(runs), log_name=query.log_name)
    rows = {int(row["runId"]): row for row in await statistics(_reader(call), series)}
    told = [
        {
            "runId": run_id,
            "runName": runs[run_id].head.name,
            "url": run_url(call.request, found.organisation_slug, runs[run_id].head),
            "status": runs[run_id].head.status,
            "config": json_value(runs[run_id].config),
            "stats": _stats(rows.get(run_id)),
        }
        async for run_id in in_turns(dict.fromkeys(query.run_ids))
        if run_id in runs
    ]
    return {
        "projectName": query.project_name,
        "logName": query.log_name,
        "comparisonUrl": told[0]["url"].rpartition("/")[0],
        "runs": told,
    }


async def leaderboard(call: Asked[LeaderboardQuery]) -> dict[str, Any]:
    """A project's runs in the order of one metric; those without a finite value are left out."""
    query = call.query
    series = Series(call.tenant, query.project_name, log_name=query.log_name)
    ranked, total = await ranks(
        _reader(call),
        series,
        query.aggregation,
        is_descending=query.direction == "DESC",
        limit=query.limit,
        offset=query.offset,
    )
    found = await call.catalog.runs.listed(call.tenant, [run_id for run_id, _ in ranked])
    runs = {run.head.id: run for run in found.runs}
    return {
        "projectName": query.project_name,
        "logName": query.log_name,
        "aggregation": query.aggregation,
        "direction": query.direction,
        "runs": [
            {
                "rank": rank,
                "runId": run_id,
                "runName": runs[run_id].head.name,
                "status": runs[run_id].head.status,
                "url": run_url(call.request, found.organisation_slug, runs[run_id].head),
                "value": value,
                "config": json_value(runs[run_id].config),
                "tags": runs[run_id].tags,
                "createdAt": iso_time(runs[run_id].head.created_at_ms),
            }
            async for rank, (run_id, value) in in_turns(enumerate(ranked, query.offset + 1))
            if run_id in runs  # rows of one that the catalogue does not have
        ],
        "total": total,
    }


async def list_logs(call: Asked[LogsQuery]) -> dict[str, Any]:
    """A run's console lines by their number, and how many there are."""
    query = call.query
    series = Series(call.tenant, query.project_name, [query.run_id])
    lines, total = await logs(
        _reader(call), series, query.log_type, limit=query.limit, offset=query.offset
    )
    return {"logs": lines, "total": total}


SERIES_ENDPOINTS = [
    asked("/api/runs/metrics", MetricsQuery, list_points, MetricPoints),
    asked("/api/runs/metric-names", MetricNamesQuery, list_metric_names, MetricNames),
    asked("/api/runs/statistics", StatisticsQuery, run_statistics, Statistics),
    asked("/api/runs/compare", CompareQuery, compare, Comparison),
    asked("/api/runs/leaderboard", LeaderboardQuery, leaderboard, Leaderboard),
    asked("/api/runs/logs", LogsQuery, list_logs, LogLines),
]


def _reader(caller: Caller) -> Reader:
    return caller.request.app[READER]


def _value(value: float | str) -> dict[str, Any]:
    """A number that JSON holds, and the word for one that it does not."""
    if isinstance(value, str):
        return {"value": 0, "valueFlag": _FLAGS[value]}
    return {"value": value, "valueFlag": ""}


def _bounds(row: dict[str, Any]) -> dict[str, Any]:
    names = ("min", "max", "mean")
    return {"count": row["count"]} | {name: row[name] if row["count"] else None for name in names}


def _stats(row: dict[str, Any] | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return _bounds(row) | {"final": row["last"] if row["count"] else None}
