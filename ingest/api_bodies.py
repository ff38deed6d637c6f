"""The bodies of run API requests, as the wire has them. Unknown fields are ignored."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from catalog.statuses import Status  # noqa: TC001 - pydantic reads the annotations at run time
from schema.limits import STEP_ABS_MAX

TIME_MS_MAX = 8_640_000_000_000_000
"""The last moment of JavaScript's calendar, which the wire's times come from."""
LOG_NAMES_MAX = 100_000
"""Of one call; the SDK sends one or few."""


def _no_boolean(value: Any) -> Any:  # noqa: ANN401 - what JSON has there
    """Python counts True as 1, and run 1 is somebody's run."""
    if isinstance(value, bool):
        raise PydanticCustomError("invalid_type", "Expected number, received boolean")
    return value


def _not_empty(text: str) -> str:
    """By hand: pydantic's own bound refuses half a surrogate pair, which is stored as U+FFFD."""
    if not text:
        raise PydanticCustomError("string_too_short", "String should have at least 1 character")
    return text


Number = Annotated[int, BeforeValidator(_no_boolean)]
TimeMs = Annotated[int, Field(ge=0, le=TIME_MS_MAX), BeforeValidator(_no_boolean)]
Step = Annotated[
    float,
    Field(allow_inf_nan=False, ge=-STEP_ABS_MAX, le=STEP_ABS_MAX),
    BeforeValidator(_no_boolean),
]
NonEmpty = Annotated[
    str, AfterValidator(_not_empty), WithJsonSchema({"type": "string", "minLength": 1})
]
Tags = Annotated[list[str], Field(max_length=50)]
LogNames = Annotated[list[str], Field(max_length=LOG_NAMES_MAX, fail_fast=True)]
"""The first bad one is told: half a million of them made an answer of 46 MB."""


class Body(BaseModel):
    """Fields in snake_case here, in camelCase on the wire."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", frozen=True)


class CreateBody(Body):
    """`POST /api/runs/create`; documents are JSON text within the JSON."""

    run_name: str
    project_name: NonEmpty
    external_id: NonEmpty | None = None
    tags: Tags | None = None
    config: str | None = None
    system_metadata: str | None = None
    logger_settings: str | None = None
    created_at: TimeMs | None = None
    updated_at: TimeMs | None = None
    fork_run_id: Number | None = None
    fork_step: Step | None = None
    inherit_config: bool | None = None
    inherit_tags: bool | None = None


class ResumeBody(Body):
    """`POST /api/runs/resume`; exactly one of the three ids."""

    run_id: Number | None = None
    display_id: NonEmpty | None = None
    external_id: NonEmpty | None = None
    project_name: NonEmpty | None = None


class StatusBody(Body):
    """`POST /api/runs/status/update`; an absent `statusMetadata` differs from null."""

    run_id: Number
    status: Status
    status_metadata: str | None = None
    logger_settings: str | None = None
    status_updated: TimeMs | None = None


class LogNameBody(Body):
    """`POST /api/runs/logName/add`; the type is not a closed set: the SDK sends GRAPH."""

    run_id: Number
    log_type: str
    log_name: LogNames


class TagsBody(Body):
    """`POST /api/runs/tags/update`."""

    run_id: Number
    tags: Tags


class ConfigBody(Body):
    """`POST /api/runs/config/update`; the SDK sends null for an empty update."""

    run_id: Number
    config: str | None = None


class NotesBody(Body):
    """`POST /api/runs/notes/update`; null and an empty text clear them."""

    run_id: Number
    notes: str | None


class GraphNode(Body):
    """A layer; what else is said of it is kept as it came."""

    model_config = ConfigDict(extra="allow")

    type: str
    depth: Number
    order: Number | None = None
    label: str | None = None
    node_type: str | None = Field(None, alias="node_type")
    node_id: str | None = Field(None, alias="node_id")
    inst_id: str | None = Field(None, alias="inst_id")
    params: dict[str, list[Number]] | None = None
    args: list[Any] | None = None
    kwargs: dict[str, Any] | None = None
    edges: list[Annotated[list[Any], Field(min_length=2, max_length=2)]] | None = None


class Graph(Body):
    """A model's layers by their names; the SDK's format is `torch`."""

    format: str
    nodes: dict[str, GraphNode]


class GraphBody(Body):
    """`POST /api/runs/modelGraph/create`."""

    run_id: Number
    graph: Graph


class TriggerBody(Body):
    """`POST /api/runs/trigger`."""

    run_id: Number


class AlertPart(Body):
    """What was raised."""

    timestamp: TimeMs | None = None
    level: str
    title: str
    body: str
    email: bool | None = None
    url: str | None = None


class AlertBody(Body):
    """`POST /api/runs/alert`."""

    run_id: Number
    alert: AlertPart
