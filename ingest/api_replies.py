"""The JSON that the run API answers with, for those who read of it in `/api/openapi.json`.

Handlers give plain objects, which are not validated again on their way out; tests hold them against
these models.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from catalog.statuses import Source, Status  # noqa: TC001 - pydantic reads the annotations


class Reply(BaseModel):
    """Fields in snake_case here, in camelCase on the wire; nothing else."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)


class Success(Reply):
    """Done."""

    success: Literal[True]


class AlertKept(Reply):
    """Done, in the words of the py service."""

    status: Literal["success"]


class Beat(Reply):
    """The run's status; on CANCELLED the client ends its process."""

    status: Status
    triggers: None


class Slug(Reply):
    """An organisation by its part of a URL."""

    slug: str


class Login(Reply):
    """Whom a key belongs to."""

    organization: Slug


class OrganizationReply(Reply):
    """An organisation."""

    id: str
    slug: str


class User(Reply):
    """Keys here belong to an organisation and to no user."""

    id: str | None


class Validated(Reply):
    """The key is valid."""

    valid: Literal[True]
    organization: OrganizationReply
    user: User


class Resumed(Reply):
    """A run that may be logged to."""

    run_id: int
    number: int
    display_id: str
    project_name: str
    organization_slug: str
    url: str
    resumed: bool


class Created(Resumed):
    """The same, made or resumed; the parent is the run whose own rows hold the step."""

    forked_from_run_id: int | None
    fork_step: float | None


class Event(Reply):
    """A change of a run's status."""

    id: str
    run_id: int
    from_status: Status | None
    to_status: Status
    source: Source
    metadata: Any
    actor_id: str | None
    api_key_id: str | None
    created_at: str


class History(Reply):
    """Changes of a run's status, oldest first."""

    run_id: int
    events: list[Event]


class ProjectReply(Reply):
    """A project."""

    id: int
    name: str
    created_at: str
    updated_at: str
    run_count: int


class Projects(Reply):
    """Projects, newest first, at most 1,000."""

    projects: list[ProjectReply]


class LogNameReply(Reply):
    """A registered name."""

    log_name: str
    log_type: str
    log_group: str


class Details(Reply):
    """A run whole. Documents are parsed, or null; one that is no strict JSON is its text."""

    id: int
    name: str
    number: int
    display_id: str
    status: Status
    tags: list[str]
    config: Any
    system_metadata: Any
    logger_settings: Any
    status_metadata: Any
    created_at: str
    updated_at: str
    status_updated: str | None
    project_name: str
    external_id: str | None
    forked_from_run_id: int | None
    fork_step: float | None
    notes: str | None
    url: str
    log_names: list[LogNameReply] = Field(max_length=1_000)


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


class RunNumber(Reply):
    """A run by its number."""

    run_id: int


class Health(Reply):
    """The process answers."""

    status: Literal["ok"]


class HeartbeatWrites(Reply):
    """Whether heartbeats could not be noted of late."""

    failing: bool


class PyHealth(Health):
    """The same, in the words of the py service."""

    heartbeat_writes: HeartbeatWrites


class Version(Reply):
    """The release that runs, and what it was built of."""

    service: str
    version: str
    git_commit: str | None
    git_branch: str | None
    build_time: str | None


class ApiError(BaseModel):
    """A refusal in the api service's words."""

    error: str | dict[str, Any] = Field(description="a text, or zod's issues after a wrong field")
    code: str | None = None
    message: str | None = None


class PyError(BaseModel):
    """A refusal in the py service's words."""

    detail: str | list[dict[str, Any]]
    code: str | None = None
