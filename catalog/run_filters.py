"""The filter of a list of runs: boolean operators over conditions on fields, as a predicate.

A filter is compiled once and asked of each candidate. Nothing in it is handed to the database, and
no pattern of a client's is run: those may take for ever.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from catalog import json_depth
from catalog.errors import Invalid
from catalog.flat_documents import as_number, as_text
from catalog.statuses import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from catalog.flat_documents import Flat

BOOLEAN_OPERATORS = ("$and", "$or", "$not")
LEAF_OPERATORS = ("$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$regex")
_CREATED = ("created_at", "createdAt")
_UPDATED = ("updated_at", "updatedAt")
_HEARTBEAT = ("heartbeat_at", "heartbeatAt")
_NAME = ("name", "displayName", "display_name")
_STATUS = ("state", "status")
FIELDS = (*_STATUS, *_HEARTBEAT, *_CREATED, *_UPDATED, *_NAME, "tags")
_DOCUMENTS = ("config.", "systemMetadata.")
_SUMMARIES = ("summaryMetrics.", "summary_metrics.")
FIELD_PREFIXES = (*_DOCUMENTS, *_SUMMARIES)

DEPTH_MAX = 50
CONDITIONS_MAX = 200

_ALIASES = {
    "running": Status.RUNNING,
    "finished": Status.COMPLETED,
    "completed": Status.COMPLETED,
    "failed": Status.FAILED,
    "crashed": Status.FAILED,
    "killed": Status.TERMINATED,
    "terminated": Status.TERMINATED,
    "preempted": Status.CANCELLED,
    "cancelled": Status.CANCELLED,
    "canceled": Status.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """What conditions are asked of."""

    name: str
    status: Status
    tags: list[str]
    created_at_ms: int
    updated_at_ms: int
    rows_received_at_ms: int | None
    """When rows came last; conditions on the heartbeat go by it."""
    config: Flat
    system_metadata: Flat


if TYPE_CHECKING:
    Predicate = Callable[[Candidate], bool]


def compiled(text: str) -> Predicate:
    """The filter as a predicate.

    Raises:
        Invalid: it cannot be read, or knows no such operator or field.
    """
    try:
        return _Compiler().node(json_depth.loads(text), 0)
    except (ValueError, RecursionError) as error:  # what was just read may be too deep to write
        raise Invalid("filter must be valid JSON") from error


class _Compiler:
    """Counts conditions while it builds."""

    def __init__(self) -> None:
        self._conditions = 0

    def node(self, found: Any, depth: int) -> Predicate:  # noqa: ANN401 - JSON
        if not isinstance(found, dict):
            raise Invalid("filter must be an object")
        if depth > DEPTH_MAX:
            raise Invalid(f"filter may be nested {DEPTH_MAX} deep at most")
        parts = [self._part(key, value, depth) for key, value in found.items()]
        return lambda run: all(part(run) for part in parts)

    def _part(self, key: str, value: Any, depth: int) -> Predicate:  # noqa: ANN401 - JSON
        self._conditions += 1
        if self._conditions > CONDITIONS_MAX:
            raise Invalid(f"filter may hold {CONDITIONS_MAX} conditions at most")
        if key == "$not":
            inner = self.node(value, depth + 1)
            return lambda run: not inner(run)
        if key in {"$and", "$or"}:
            if not isinstance(value, list):
                raise Invalid(f"{key} expects an array")
            parts = [self.node(part, depth + 1) for part in value]
            if not parts:
                return lambda _run: False
            if key == "$and":
                return lambda run: all(part(run) for part in parts)
            return lambda run: any(part(run) for part in parts)
        if key.startswith("$"):
            raise Invalid(f"unknown boolean operator: {key[:100]}")
        return _condition(key, value)


def _condition(field: str, value: Any) -> Predicate:  # noqa: ANN401 - JSON
    operands = value if isinstance(value, dict) else {"$eq": value}
    for operator in operands:
        if operator not in LEAF_OPERATORS:
            raise Invalid(f"unknown leaf operator: {operator[:100]}")
    if field in _STATUS:
        return _of_status(field, operands)
    if field in _TIMES:
        return _of_time(field, operands)
    if field in _NAME:
        return _of_name(field, operands)
    if field == "tags":
        return _of_tags(operands)
    return _of_document(field, operands)


def _supported(field: str, operands: Mapping[str, Any], known: tuple[str, ...]) -> None:
    if not any(operator in known for operator in operands):
        raise Invalid(f"unsupported operator for {field[:100]}: {', '.join(operands)}")


def _first(
    field: str, operands: Mapping[str, Any], known: tuple[str, ...]
) -> tuple[str, list[Any]]:
    """The first of the known operators that is there, with its operands."""
    _supported(field, operands, known)
    operator = next(operator for operator in known if operator in operands)
    operand = operands[operator]
    return operator, operand if isinstance(operand, list) else [operand]


def _of_status(field: str, operands: Mapping[str, Any]) -> Predicate:
    operator, names = _first(field, operands, ("$in", "$nin", "$ne", "$eq"))
    wanted = {_status(name) for name in names}
    if operator in {"$nin", "$ne"}:
        return lambda run: run.status not in wanted
    return lambda run: run.status in wanted


def _status(name: Any) -> Status:  # noqa: ANN401 - JSON
    status = _ALIASES.get(name.lower()) if isinstance(name, str) else None
    if status is None:
        raise Invalid(f"unknown run state: {str(name)[:100]}")
    return status


def _of_time(field: str, operands: Mapping[str, Any]) -> Predicate:
    of = _TIMES[field]
    if field in _HEARTBEAT:  # both ends belong to it, however they are written
        ends = {"$gt": "$gte", "$lt": "$lte"}
        operands = {ends.get(operator, operator): bound for operator, bound in operands.items()}
        _supported(field, operands, ("$gte", "$lte"))
    _supported(field, operands, ("$eq", "$gt", "$gte", "$lt", "$lte"))
    tests = [
        (_COMPARED[operator], _time_ms(field, operand))
        for operator, operand in operands.items()
        if operator in _COMPARED
    ]

    def holds(run: Candidate) -> bool:
        time_ms = of(run)
        return time_ms is not None and all(test(time_ms, bound) for test, bound in tests)

    return holds


def _time_ms(field: str, text: Any) -> float:  # noqa: ANN401 - JSON
    try:
        time = datetime.fromisoformat(text)
    except (TypeError, ValueError) as error:
        raise Invalid(f"{field} must be compared with a date as ISO-8601 has it") from error
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1_000


def _of_name(field: str, operands: Mapping[str, Any]) -> Predicate:
    operator, names = _first(field, operands, ("$eq", "$ne", "$regex"))
    wanted = as_text(names[0]) if names else ""
    if operator == "$regex":  # as the reference has it: a part of the name, and no pattern
        part = wanted.lower()
        return lambda run: part in run.name.lower()
    if operator == "$eq":
        return lambda run: run.name == wanted
    return lambda run: run.name != wanted


def _of_tags(operands: Mapping[str, Any]) -> Predicate:
    _, names = _first("tags", operands, ("$in", "$eq"))
    wanted = {as_text(name) for name in names}
    return lambda run: not wanted.isdisjoint(run.tags)


def _of_document(field: str, operands: Mapping[str, Any]) -> Predicate:
    if field.startswith(_SUMMARIES):
        raise Invalid(f"filtering on {field[:100]} is not taken yet: see /api/runs/leaderboard")
    prefix = next((one for one in _DOCUMENTS if field.startswith(one)), None)
    if prefix is None or field == prefix:
        raise Invalid(f"unknown filter field: {field[:100]}")
    if "$regex" in operands:
        raise Invalid(f"unsupported operator for {field[:100]}: $regex")
    key = field.removeprefix(prefix)
    tests = [_value_test(operator, operand) for operator, operand in operands.items()]

    def holds(run: Candidate) -> bool:
        flat = run.config if prefix == "config." else run.system_metadata
        return all(test(flat.get(key)) for test in tests)

    return holds


def _value_test(operator: str, operand: Any) -> Callable[[str | None], bool]:  # noqa: ANN401 - JSON
    """A test of a value's text; None where the run has no such key."""
    if operator in {"$in", "$nin"}:
        wanted = {as_text(one) for one in (operand if isinstance(operand, list) else [operand])}
        if operator == "$in":
            return lambda text: text is not None and text in wanted
        return lambda text: text is None or text not in wanted
    number = as_number(as_text(operand))
    if operator in {"$eq", "$ne"}:
        is_equal = operator == "$eq"
        if number is not None:
            return lambda text: (text is not None and as_number(text) == number) == is_equal
        word = as_text(operand)
        return lambda text: (text == word) == is_equal
    compare = _COMPARED[operator]
    bound = math.nan if number is None else number

    def compares(text: str | None) -> bool:
        value = None if text is None else as_number(text)
        return value is not None and compare(value, bound)

    return compares


_TIMES: dict[str, Callable[[Candidate], int | None]] = {
    **dict.fromkeys(_CREATED, lambda run: run.created_at_ms),
    **dict.fromkeys(_UPDATED, lambda run: run.updated_at_ms),
    **dict.fromkeys(_HEARTBEAT, lambda run: run.rows_received_at_ms),
}
_COMPARED: dict[str, Callable[[float, float], bool]] = {
    "$eq": lambda value, bound: value == bound,
    "$gt": lambda value, bound: value > bound,
    "$gte": lambda value, bound: value >= bound,
    "$lt": lambda value, bound: value < bound,
    "$lte": lambda value, bound: value <= bound,
}
