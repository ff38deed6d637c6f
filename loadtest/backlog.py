"""How far delivery is behind, while a run goes on."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadtest.beside import Beside

if TYPE_CHECKING:
    from loadtest.throwaway import Server

LOOK_SECONDS = 0.5
USUAL_SECONDS = 2.0
"""A batch waits for a second, and its insert takes its time: so much is always under way."""
GROWTH = 1.5


@dataclass(frozen=True, slots=True)
class Backlog:
    """Rows acknowledged and not yet in ClickHouse, in seconds of the run's own rate."""

    half_way_seconds: float
    at_the_end_seconds: float

    @property
    def is_growing(self) -> bool:
        """Whether delivery did not keep up: the figures would not last."""
        return (
            self.at_the_end_seconds > USUAL_SECONDS
            and self.at_the_end_seconds > GROWTH * self.half_way_seconds
        )


class Looking(Beside):
    """Counts the rows of ``mlop_metrics`` twice a second while it is entered."""

    def __init__(self, server: Server) -> None:
        super().__init__("backlog")
        self._server = server
        self._seen: list[tuple[float, int]] = []

    @property
    def delivered(self) -> int:
        """Rows that came while it was entered."""
        return self._seen[-1][1] - self._seen[0][1]

    def backlog(self, acknowledged: int) -> Backlog:
        """Judged by the rows that were acknowledged while it was entered, at an even rate."""
        (began, rows), (ended, _) = self._seen[0], self._seen[-1]
        rate = max(1.0, acknowledged / (ended - began))
        half = began + (ended - began) / 2
        near = min(self._seen, key=lambda look: abs(look[0] - half))

        def behind(look: tuple[float, int]) -> float:
            return max(0.0, (look[0] - began) - (look[1] - rows) / rate)

        return Backlog(round(behind(near), 2), round(behind(self._seen[-1]), 2))

    def _begin(self) -> None:
        self._look()

    def _work(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            self._look()

    def _end(self) -> None:
        self._look()

    def _look(self) -> None:
        self._seen.append((time.monotonic(), self._server.count_rows("mlop_metrics")))
