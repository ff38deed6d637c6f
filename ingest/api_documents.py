"""Stored documents as the run API gives them out: what any JSON parser reads."""

from __future__ import annotations

import asyncio
import json
import math
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from catalog import json_depth
from catalog.names import storable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

DEPTH_MAX = 200
"""Of a document within an answer. The answer's own depth comes on top, and 254 is the encoder's
end: one document too deep would take the whole list with it."""
_ENCODER_DEPTH_MAX = 254
_OPENING = ("[", "{")
_INT64_MIN, _UINT64_MAX = -(2**63), 2**64 - 1
_INTEGER_LENGTH_MAX = 20
"""Digits, or a sign and digits, of these."""

T = TypeVar("T")


def json_value(text: str | None) -> Any:  # noqa: ANN401 - JSON may be anything
    """The document's value; one that is nested too deeply is its text.

    What Python writes and JSON has not becomes what it has: bare NaN and infinities the strings
    "NaN", "Infinity" and "-Infinity", as the ingest endpoints take them; half a surrogate pair
    U+FFFD.
    """
    if text is None:
        return None
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            value = _of_python(text)
        except (ValueError, RecursionError):
            return text
    return text if _is_too_deep(text, value) else value


def _of_python(text: str) -> Any:  # noqa: ANN401 - JSON may be anything
    value = json_depth.loads(text, parse_constant=str, parse_float=_float, parse_int=_integer)
    return orjson.loads(storable(json.dumps(value, ensure_ascii=False)))


def _float(text: str) -> float | str:
    number = float(text)
    if math.isfinite(number):
        return number
    return "Infinity" if number > 0 else "-Infinity"


def _integer(text: str) -> float | str | int:
    """One that 64 bits do not hold is rounded, as it is in a document without NaN."""
    if len(text) > _INTEGER_LENGTH_MAX or not _INT64_MIN <= (number := int(text)) <= _UINT64_MAX:
        return _float(text)
    return number


def _is_too_deep(text: str, value: Any) -> bool:  # noqa: ANN401 - JSON may be anything
    if sum(map(text.count, _OPENING)) <= DEPTH_MAX:
        return False
    wrapped = value
    for _ in range(_ENCODER_DEPTH_MAX - DEPTH_MAX):
        wrapped = [wrapped]
    try:
        orjson.dumps(wrapped)
    except orjson.JSONEncodeError:
        return True
    return False


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The same items; after each one others get their turn: its document may take milliseconds."""
    for item in items:
        yield item
        await asyncio.sleep(0)
