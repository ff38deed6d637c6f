"""The words of the filters that `GET /api/runs/list` takes."""

from __future__ import annotations

from typing import Any

from catalog.run_filters import BOOLEAN_OPERATORS, FIELD_PREFIXES, FIELDS, LEAF_OPERATORS

FIELD_OPERATORS = (
    "contains",
    "does not contain",
    "equals",
    "is",
    "is not",
    "starts with",
    "ends with",
    "regex",
    "is greater than",
    ">",
    "is less than",
    "<",
    "is greater than or equal to",
    ">=",
    "is less than or equal to",
    "<=",
    "is between",
    "is not between",
    "is before",
    "is on or before",
    "is after",
    "is on or after",
    "is any of",
    "is none of",
    "exists",
    "not exists",
)


def _words(words: tuple[str, ...]) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string", "enum": list(words)}}


GRAMMAR: dict[str, Any] = {
    "type": "object",
    "description": "Of `filter`: boolean operators over leaves `{field: {operator: value}}`.",
    "properties": {
        "booleanOperators": _words(BOOLEAN_OPERATORS),
        "leafOperators": _words(LEAF_OPERATORS),
        "fields": _words(FIELDS),
        "fieldPrefixes": _words(FIELD_PREFIXES),
    },
}
"""As the SDK's contract test compares it, word for word."""

FIELD_FILTER_TERM: dict[str, Any] = {
    "type": "object",
    "description": "One condition of `fieldFilters`; all of them must hold.",
    "required": ["source", "key", "dataType", "operator", "values"],
    "properties": {
        "source": {"type": "string", "enum": ["config", "systemMetadata"]},
        "key": {"type": "string"},
        "dataType": {"type": "string", "enum": ["text", "number", "date", "option"]},
        "operator": {"type": "string", "enum": list(FIELD_OPERATORS)},
        "values": {"type": "array", "items": {}},
    },
}
