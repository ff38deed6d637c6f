"""A clock that moves only when it is told to."""

from __future__ import annotations

import asyncio
import heapq


class FakeClock:
    """Time stands until `advance`; sleepers wake in the order of their times."""

    def __init__(self, wall_ns: int = 1_700_000_000_000_000_000) -> None:
        self._now = 1_000.0
        self._wall_ns = wall_ns
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def monotonic(self) -> float:
        return self._now

    def wall_ns(self) -> int:
        return self._wall_ns

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (self._now + seconds, self._count, future))
        await future

    def jump_wall(self, seconds: float) -> None:
        """Somebody sets the machine's clock: spans are not touched."""
        self._wall_ns += int(seconds * 1e9)

    def advance(self, seconds: float) -> None:
        """Lets time pass and wakes whose time has come; they run at the caller's next await."""
        self._now += seconds
        self._wall_ns += int(seconds * 1e9)
        while self._sleepers and self._sleepers[0][0] <= self._now:
            _, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)

    @property
    def sleepers(self) -> int:
        """How many wait."""
        return sum(not future.done() for _, _, future in self._sleepers)
