"""Clients of a test, in a thread of their own, and the audit of what they were promised."""

from __future__ import annotations

import asyncio
import itertools
import struct
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from loadtest.oracle import Outcomes, RequestNumber, Shape, Writer, audit, noted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from loadtest.throwaway import Server

    Ask = Callable[[str], list[list]]

SHAPE = Shape(lines=3, names=4)
FIRST_RUNS = itertools.count(1, 20)
"""Where the runs of the next load begin: no two loads share one in tables that tests share."""


class Load:
    """Writers, each with a run of its own and a synced note of what was acknowledged to it.

    `start` and `stop` may be called again and again; no request is sent twice.
    """

    def __init__(
        self,
        server: Server,
        folder: Path,
        *,
        writers: int = 4,
        shape: Shape = SHAPE,
        first_run: int | None = None,
    ) -> None:
        first_run = next(FIRST_RUNS) if first_run is None else first_run
        folder.mkdir(exist_ok=True, parents=True)
        self.outcomes = Outcomes()
        self.shape = shape
        self._server = server
        self.runs = range(first_run, first_run + writers)
        self._notes = {run: folder / f"acknowledged-{run}" for run in self.runs}
        self._next = 0
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    def start(self) -> None:
        """Writers that go on until `stop`."""
        begun = threading.Event()
        first, self._next = self._next, self._next + 1_000_000

        async def write() -> None:
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            begun.set()
            await self._write(range(first, first + 1_000_000), self._stop)

        self._thread = threading.Thread(target=asyncio.run, args=(write(),))
        self._thread.start()
        begun.wait()

    def stop(self) -> None:
        """Each writer ends with its request answered."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
            self._thread = None

    def send(self, requests: int) -> None:
        """So many requests of each writer; returns when all are answered."""
        first, self._next = self._next, self._next + requests
        asyncio.run(self._write(range(first, first + requests), None))

    def acknowledged(self, more: int, seconds_max: float = 30.0) -> None:
        """Wait until so many more requests are acknowledged."""
        wanted = len(self.outcomes.acknowledged) + more
        eventually(
            lambda: len(self.outcomes.acknowledged) >= wanted,
            seconds_max,
            f"{more} more acknowledged requests",
        )

    def audit(
        self,
        ask: Ask,
        *,
        tables: Iterable[str] = ("mlop_metrics", "mlop_metrics FINAL"),
        views: Iterable[str] = (),
        requests_min: int = 1,
    ) -> int:
        """Acknowledged = stored, row by row, each once; nothing else but what has no outcome.

        Args:
            tables: what is read.
            views: targets of views that copy each row; they too hold each once.

        Returns:
            The rows audited.
        """
        acknowledged = noted(path for path in self._notes.values() if path.exists())
        assert acknowledged == set(self.outcomes.acknowledged)
        assert len(acknowledged) >= requests_min
        assert not self.outcomes.refused, self.outcomes.refused[:5]
        rows = 0
        for table in (*tables, *views):
            result = audit(
                stored_rows(ask, table, self.runs),
                acknowledged,
                self.outcomes.unknown,
                self.shape,
            )
            assert result.is_clean, f"{table}: {result}"
            rows = result.expected
        return rows

    async def _write(self, numbers: Iterable[int], stop: asyncio.Event | None) -> None:
        stop = stop or asyncio.Event()
        server = self._server
        await asyncio.gather(
            *(
                Writer(server.url, server.key, run, note, self.shape, self.outcomes).write(
                    map(RequestNumber, numbers), stop
                )
                for run, note in self._notes.items()
            )
        )


def stored_rows(ask: Ask, table: str, runs: Iterable[int]) -> Counter:
    """Every row of some runs, with the number of its copies."""
    wanted = ", ".join(f"'{run}'" for run in runs)
    rows = ask(
        "SELECT runId, logName, step, toUnixTimestamp64Milli(time), "
        f"hex(reinterpretAsUInt64(value)) FROM {table} WHERE toString(runId) IN ({wanted})"
    )
    return Counter((int(r), n, float(s), int(t), _unhex(v)) for r, n, s, t, v in rows)


def _unhex(text: str) -> float:
    return struct.unpack(">d", int(text, 16).to_bytes(8))[0]


def eventually(condition: Callable[[], object], seconds_max: float, what: str) -> None:
    """Wait until the condition holds; fail saying what did not come about."""
    deadline = time.monotonic() + seconds_max
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds_max} s: {what}")
        time.sleep(0.05)
