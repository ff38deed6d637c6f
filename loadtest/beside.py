"""A thread that works beside a load, while it is entered."""

from __future__ import annotations

import threading
from typing import Self


class Beside:
    """Entered, it begins and runs `_work` on a thread; left, it waits for that to end.

    Args:
        name: of the thread.
        end_seconds_max: how long `_work` may go on after `_stop` is set; None: for ever.
    """

    def __init__(self, name: str, *, end_seconds_max: float | None = None) -> None:
        self._stop = threading.Event()
        self._end_seconds_max = end_seconds_max
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._begin()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Have the thread end, and do what comes last."""
        self._stop.set()
        self._thread.join(self._end_seconds_max)
        self._end()

    def _begin(self) -> None:
        """Before the thread starts."""

    def _work(self) -> None:
        """On the thread, until `_stop` is set."""
        raise NotImplementedError

    def _end(self) -> None:
        """After the thread has ended."""
