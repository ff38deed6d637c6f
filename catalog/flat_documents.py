"""Documents as filters see them: one text for each path of keys, joined by dots."""

from __future__ import annotations

import json
import re
from typing import Any

Flat = dict[str, str]

_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)


def flattened(text: str | None) -> Flat:
    """The document's values by their paths; none of what is no object.

    Objects are gone into, an array is one value, its parts joined by commas; null is no value.
    """
    try:
        found = None if text is None else json.loads(text)
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
    text = str(value)
    match value:
        case bool():
            text = "true" if value else "false"
        case list():
            text = ",".join(as_text(part) for part in value)
        case dict():
            text = json.dumps(value, sort_keys=True)
        case float() if value.is_integer() and abs(value) < 2**53:
            text = str(int(value))
        case None:
            text = ""
    return text


def as_number(text: str) -> float | None:
    """The number that a text is; None for hexadecimal ones and those with zeros before them."""
    return float(text) if _NUMBER.fullmatch(text) else None
