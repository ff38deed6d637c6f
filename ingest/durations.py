"""Lengths of time as people write them on a command line: `90s`, `30m`, `24h`, `7d`."""

from __future__ import annotations

import re

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]{1,9})([smhd])", re.ASCII)
DURATION_MS_MAX = 36_500 * _UNITS_MS["d"]


def duration_ms(text: str) -> int:
    """In milliseconds.

    Raises:
        ValueError: it is none, or longer than a hundred years; says what one looks like.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is no length of time; write a number and s, m, h or d: 24h")
    length = int(match[1]) * _UNITS_MS[match[2]]
    if length > DURATION_MS_MAX:
        raise ValueError(f"{text!r} is more than a hundred years")
    return length


def lifetime_ms(text: str) -> int:
    """The same of how long something is to live: not at all would be a mistake.

    Raises:
        ValueError: as `duration_ms`; or it is nothing.
    """
    length = duration_ms(text)
    if length == 0:
        raise ValueError(f"{text!r} is no time at all: it would have ended before its first use")
    return length
