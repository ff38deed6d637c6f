"""Documents as filters see them: one text for each path of keys, joined by dots."""

from __future__ import annotations

import json
import re
from typing import Any

from catalog import json_depth

Flat = dict[str, str]

_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)


def flattened(text: str | None) -> Flat:
    """The document's values by their paths; none of what is no object.

    Objects are gone into, an array is one value, its parts joined by commas; null is no value.
    """
    try:
        found = None if text is None else json_depth.loads(text)
    except (ValueError, RecursionError):
        return {}
    flat: Flat = {}
    waiting: list[tuple[str, Any]] = [("", found)] if isinstance(found, dict) else []
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(f"{path}.{key}" if path else key, part) for key, part in value.items()]
        elif value is not None:
            flat[path] = as_text(value)
    return flat


def as_text(value: Any) -> str:  # noqa: ANN401 - JSON
    """A value as it is compared with others."""
    match value:
        case bool():
            return "true" if value else "false"
        case list():
            return ",".join(map(as_text, _leaves(value)))
        case dict():
            return json.dumps(value, sort_keys=True)
        case float() if value.is_integer() and abs(value) < 2**53:
            return str(int(value))
        case None:
            return ""
    return str(value)


def _leaves(parts: list[Any]) -> list[Any]:
    """The list without lists in it, an empty one being one null: by a loop, for deep ones."""
    leaves: list[Any] = []
    waiting: list[Any] = [parts]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list) and part:
            waiting += reversed(part)
        else:
            leaves.append(None if part == [] else part)
    return leaves


def as_number(text: str) -> float | None:
    """The number that a text is; None for hexadecimal ones and those with zeros before them."""
    return float(text) if _NUMBER.fullmatch(text) else None
