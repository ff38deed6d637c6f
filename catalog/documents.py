"""JSON documents (configurations, metadata) that arrive as text, and are stored as text.

Python writes NaN and infinities bare into JSON; such text is taken, kept and given out as it came.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

from catalog import json_depth
from catalog.errors import Refused, TooLarge
from catalog.json_values import holds_more
from catalog.names import storable

DOCUMENT_BYTES_MAX = 16 * 2**20
DOCUMENT_VALUES_MAX = 100_000
"""Parsing is one call, which holds the process up. It takes as long as there are values, and as
much memory: this many take 0.05 s and 20 MB, and without a bound 16 MiB of empty lists took 4 s."""


class NotJson(Refused):
    """The text is no JSON. `field` is the document's name on the wire."""

    def __init__(self, field: str) -> None:
        super().__init__(f"Invalid {field} JSON")
        self.field = field


class NotAnObject(Refused):
    """Valid JSON, but no object where one is needed."""

    def __init__(self, field: str) -> None:
        super().__init__(f"Invalid {field} JSON: expected an object")
        self.field = field


def checked_text(field: str, text: str | None) -> str | None:
    """The text to store; None for no text and for `null`.

    Raises:
        NotJson: it cannot be read. TooLarge: it is above a limit of documents.
    """
    if text is None:
        return None
    _check_size(field, text)
    try:
        is_null = orjson.loads(text) is None
    except (orjson.JSONDecodeError, UnicodeEncodeError):
        is_null = parse(field, text) is None
    return None if is_null else storable(text)


def parse(field: str, text: str) -> Any:  # noqa: ANN401 - JSON may be anything
    """What the text says. Integers of any size and bare NaN are kept; slower than orjson.

    Raises:
        NotJson: it cannot be read, or is nested too deeply.
    """
    try:
        return json_depth.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotJson(field) from error


def parse_object(field: str, text: str) -> dict[str, Any] | None:
    """The object that the text holds; None for `null`.

    Raises:
        NotJson: it cannot be read. NotAnObject: it is neither. TooLarge: above a limit.
    """
    _check_size(field, text)
    value = parse(field, text)
    if value is not None and not isinstance(value, dict):
        raise NotAnObject(field)
    return value


def merged_deep(field: str, stored: str | None, patch: dict[str, Any]) -> str:
    """The stored document with the patch in it: objects merge by key, all else is replaced.

    Raises:
        TooLarge: the outcome is above a limit. NotJson: it is nested too deeply.
    """
    base = _stored_object(field, stored)
    pairs = [(base, patch)]
    while pairs:
        into, new = pairs.pop()
        for key, value in new.items():
            old = into.get(key)
            if isinstance(old, dict) and isinstance(value, dict):
                pairs.append((old, value))
            else:
                into[key] = value
    return _dumped(field, base)


def merged_shallow(field: str, inherited: str | None, own: str | None) -> str | None:
    """One document of two: the keys of both, the own ones winning; or the one that there is.

    Raises:
        TooLarge: the outcome is above a limit.
    """
    if inherited is None or own is None:
        return own if inherited is None else inherited
    parent, child = parse(field, inherited), parse(field, own)
    if not isinstance(parent, dict) or not isinstance(child, dict):
        return own
    return _dumped(field, parent | child)


def _stored_object(field: str, stored: str | None) -> dict[str, Any]:
    value = None if stored is None else parse(field, stored)
    return value if isinstance(value, dict) else {}


def _dumped(field: str, value: dict[str, Any]) -> str:
    try:
        text = json.dumps(value, separators=(",", ":"))  # ASCII, so that any database takes it
    except RecursionError as error:
        raise NotJson(field) from error
    _check_size(field, text)
    return text


def _check_size(field: str, text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > DOCUMENT_BYTES_MAX:
        raise TooLarge(f"{field} may have at most {DOCUMENT_BYTES_MAX} bytes, and has {len(data)}")
    if holds_more(data, DOCUMENT_VALUES_MAX):
        raise TooLarge(f"{field} may hold at most {DOCUMENT_VALUES_MAX} values, and holds more")
