"""How long to wait before the next try: capped, doubling, jittered, without a last try."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds to wait, as a pure function of how many tries have failed.

    The wait is drawn from the upper half of its span ("equal jitter"): replicas that failed
    together come back apart, and none comes back at once.

    Source: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    """

    first_seconds: float
    seconds_max: float
    random: Callable[[], float]
    """Uniform in [0, 1); injected, so that tests know the waits."""

    def seconds(self, failures: int) -> float:
        """The wait after that many failures in a row, counted from 1."""
        doublings = min(max(failures - 1, 0), 32)  # a float has room for more, a wait does not
        span = min(self.first_seconds * 2.0**doublings, self.seconds_max)
        return span * (0.5 + 0.5 * self.random())


TRANSIENT_SECONDS = (0.1, 10.0)
"""First and longest wait for what clears by itself: short enough that a backlog starts to drain as
soon as the server is back, long enough that it is not what keeps the server down."""

OPERATOR_SECONDS = (1.0, 15.0)
"""First and longest wait for what somebody has to mend: it is noticed within seconds."""

TASK_SECONDS = (0.1, 2.0)
"""First and longest wait before a task that died is started again."""
