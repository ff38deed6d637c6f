"""Names that people and programs give: their length, and letters that no database holds."""

from __future__ import annotations

import re

from catalog.errors import Invalid, TooLong

NAME_LENGTH_MAX = 255
"""Characters of a name of a run, project, organisation or key. Source: the reference's columns."""

_UNSTORABLE = re.compile(
    "[\x00\ud800-\udfff]"
)  # Postgres' text holds no NUL; UTF-8 holds no lone surrogate


def storable(text: str) -> str:
    """The text with U+FFFD where a letter is that no database would take."""
    return _UNSTORABLE.sub("\ufffd", text)


def checked_name(field: str, name: str, *, length_max: int = NAME_LENGTH_MAX) -> str:
    """The name as it is stored.

    Raises:
        Invalid: it is empty. TooLong: it is longer than `length_max`; the message names field and
        limit.
    """
    if not name.strip():
        raise Invalid(f"{field} must not be empty")
    if len(name) > length_max:
        raise TooLong(f"{field} may have at most {length_max} characters, and has {len(name)}")
    return storable(name)
