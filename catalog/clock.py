"""The catalogue's clock: integer milliseconds since 1970, UTC, as the wire has them."""

from __future__ import annotations

import time
from collections.abc import Callable

WallClock = Callable[[], int]
"""Gives now in ms; a test hands in its own."""


def wall_ms() -> int:
    """Now, in whole milliseconds since 1970 UTC."""
    return time.time_ns() // 1_000_000
