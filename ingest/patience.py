"""A client's deadline, in which the time that this process stood still does not count.

A machine that is suspended, stopped or short of CPU finds its timers due before it has read what
arrived meanwhile, since the loop looks at timers first. Whoever had sent all in time would be told
408, and one whose bytes are not read has its connection reset besides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

LATE_SECONDS = 0.1
"""A timer this late was held up by us."""


class Patience:
    """Calls back when it is over; later by as much as that would be late.

    Args:
        loop: that runs now.
        seconds: for the client.
        give_up: called once.
        due: when it is over, by the loop's clock; default: so many seconds from now.

    Attributes:
        due: as it is now. It is moved by at most `seconds` in all: slow clients of a server that is
            always late must end too.
    """

    __slots__ = ("_give_up", "_handle", "_loop", "_spare_seconds", "due")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        seconds: float,
        give_up: Callable[[], None],
        *,
        due: float | None = None,
    ) -> None:
        self._loop = loop
        self._spare_seconds = seconds
        self._give_up = give_up
        self.due = loop.time() + seconds if due is None else due
        self._handle = loop.call_at(self.due, self._fire)

    def cancel(self) -> None:
        """It has arrived."""
        self._handle.cancel()

    def _fire(self) -> None:
        now = self._loop.time()
        late = now - self.due
        if late < LATE_SECONDS or self._spare_seconds <= 0:
            self._give_up()
        else:
            more = min(late, self._spare_seconds)
            self._spare_seconds -= more
            self.due = now + more
            self._handle = self._loop.call_at(self.due, self._fire)
