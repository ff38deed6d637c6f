"""The JSON of what is read: runs in lists, series, statistics, console lines. See `api_replies`."""

from __future__ import annotations

from typing import Any, Literal

from catalog.statuses import Status  # noqa: TC001 - pydantic reads the annotations
from ingest.api_replies import Reply


class ListedRun(Reply):
    """A run in a list; a configuration of more than 65,536 characters is null."""

    id: int
    name: str
    number: int
    display_id: str
    project_name: str
    status: Status
    tags: list[str]
    config: Any
    url: str
    created_at: str
    updated_at: str


class RunList(Reply):
    """A page of runs, and the number of all."""

    runs: list[ListedRun]
    total: int


class MetricPoint(Reply):
    """A point; one that is not finite has the value 0 and a flag."""

    log_name: str
    log_group: str
    value: float
    value_flag: Literal["", "NaN", "Inf", "-Inf"]
    time: str
    step: float


class MetricPoints(Reply):
    """Points by name, then by step; of a name at most `limit`, and the last one."""

    limit: int
    metrics: list[MetricPoint]


class MetricNames(Reply):
    """Names in order."""

    project_name: str
    metric_names: list[str]


class LastValue(Reply):
    """The largest step of any value, and the finite value of the largest step that has one."""

    step: float
    value: float | None


class MetricStatistics(Reply):
    """Of finite values; null where there is none."""

    log_name: str
    log_group: str
    count: int
    min: float | None
    max: float | None
    mean: float | None
    stddev: float | None
    last: LastValue


class Statistics(Reply):
    """A run's metrics by name, the first hundred."""

    run_id: int
    run_name: str
    project_name: str
    url: str
    metrics: list[MetricStatistics]


class ComparedStats(Reply):
    """Of finite values; null where there is none."""

    count: int
    min: float | None
    max: float | None
    mean: float | None
    final: float | None


class ComparedRun(Reply):
    """A run beside others."""

    run_id: int
    run_name: str
    url: str
    status: Status
    config: Any
    stats: ComparedStats | None


class Comparison(Reply):
    """One metric of several runs, in the order in which they were asked for."""

    project_name: str
    log_name: str
    comparison_url: str
    runs: list[ComparedRun]


class RankedRun(Reply):
    """A run by its rank, counted from 1."""

    rank: int
    run_id: int
    run_name: str
    status: Status
    url: str
    value: float
    config: Any
    tags: list[str]
    created_at: str


class Leaderboard(Reply):
    """A page of a project's runs in the order of one metric, and the number of all."""

    project_name: str
    log_name: str
    aggregation: str
    direction: Literal["ASC", "DESC"]
    runs: list[RankedRun]
    total: int


class LogLine(Reply):
    """A console line."""

    time: str
    log_type: str
    line_number: int
    message: str
    step: float


class LogLines(Reply):
    """Lines by their number, and how many there are."""

    logs: list[LogLine]
    total: int
