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
    """A run whole. Documents are parsed, or null.

    NaN and infinities in them are strings; one of more than 200 levels is its text.
    """

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
