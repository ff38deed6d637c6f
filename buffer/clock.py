"""Time, as the buffer sees it: spans, stamps and waiting. Tests bring a clock of their own."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """What a clock gives. Spans come from ``monotonic`` alone; a stamp may jump."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        ...

    def wall_ns(self) -> int:
        """Nanoseconds since 1970, by the machine's clock."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Returns after at least so many seconds.

        Cancellation: leaves nothing behind.
        """
        ...


class SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        return time.monotonic()

    def wall_ns(self) -> int:
        """Nanoseconds since 1970, by the machine's clock."""
        return time.time_ns()

    async def sleep(self, seconds: float) -> None:
        """Returns after at least so many seconds."""
        await asyncio.sleep(seconds)
