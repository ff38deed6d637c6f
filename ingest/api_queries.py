"""The queries of run API requests, as the wire has them. Unknown names are ignored."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from catalog.statuses import Status
from ingest.api_bodies import Body


def _words(text: object) -> object:
    """A comma list; blanks around a word are none of it."""
    if not isinstance(text, str):
        return text
    return [word for word in (part.strip() for part in text.split(",")) if word]


def _upper(text: object) -> object:
    return text.upper() if isinstance(text, str) else text


Words = Annotated[list[str], BeforeValidator(_words), Field(max_length=100)]
Statuses = Annotated[list[Status], BeforeValidator(_words), Field(max_length=100)]
Text = Annotated[str, Field(min_length=1)]


RUN_ID_MAX = 2**63 - 1
RunId = Annotated[int, Field(ge=0, le=RUN_ID_MAX)]
RunIds = Annotated[list[RunId], BeforeValidator(_words), Field(max_length=100)]


class RunQuery(Body):
    """One run."""

    run_id: int


class DetailsQuery(Body):
    """`GET /api/runs/details/…`."""

    project_name: Text | None = None


class ListQuery(Body):
    """`GET /api/runs/list`."""

    project_name: Text | None = Field(None, description="required")
    search: Text | None = Field(None, description="in the name or the display id")
    tags: Words = Field([], description="comma list: any of them")
    status: Statuses = Field([], description="comma list: any of them")
    limit: int = Field(50, ge=1, le=200)
    offset: int = Field(0, ge=0, le=100_000)
    sort: str = Field("-createdAt", description="createdAt, updatedAt, name or status; - before it")
    filter: Text | None = Field(None, description="RunFilterGrammar as JSON")
    heartbeat_after: Text | None = Field(None, description="when rows came last, or later")
    heartbeat_before: Text | None = Field(None, description="when rows came last, or earlier")
    field_filters: Text | None = Field(None, description="FieldFilterTerm[]; not taken yet")
    konduktor_job_prefix: Text | None = Field(None, description="not taken yet")


class MetricsQuery(Body):
    """`GET /api/runs/metrics`."""

    run_id: RunId
    project_name: Text
    log_name: Text | None = None
    log_group: Text | None = None
    limit: int = Field(2_000, ge=1, le=10_000, description="of each name")
    step_min: int | None = Field(None, ge=0, le=2**53)
    step_max: int | None = Field(None, ge=0, le=2**53)


class MetricNamesQuery(Body):
    """`GET /api/runs/metric-names`."""

    project_name: Text
    search: Text | None = Field(None, description="in the name, whatever the case")
    run_ids: RunIds = Field([], description="comma list")
    limit: int = Field(500, ge=1, le=500)


class StatisticsQuery(Body):
    """`GET /api/runs/statistics`. An empty group is the top level: names without a slash."""

    taken_empty: ClassVar = frozenset({"logGroup"})

    run_id: RunId
    project_name: Text
    log_name: Text | None = None
    log_group: str | None = None


class CompareQuery(Body):
    """`GET /api/runs/compare`."""

    run_ids: Annotated[RunIds, Field(min_length=1, description="comma list")]
    project_name: Text
    log_name: Text


class LeaderboardQuery(Body):
    """`GET /api/runs/leaderboard`."""

    project_name: Text
    log_name: Text
    aggregation: Literal["MIN", "MAX", "AVG", "LAST", "VARIANCE"] = "LAST"
    direction: Literal["ASC", "DESC"] = "ASC"
    limit: int = Field(20, ge=1, le=100)
    offset: int = Field(0, ge=0, le=2**31)


class LogsQuery(Body):
    """`GET /api/runs/logs`."""

    run_id: RunId
    project_name: Text
    log_type: Annotated[
        Literal["INFO", "ERROR", "WARNING", "DEBUG", "PRINT"] | None, BeforeValidator(_upper)
    ] = None
    limit: int = Field(1_000, ge=1, le=10_000)
    offset: int = Field(0, ge=0, le=2**31)
