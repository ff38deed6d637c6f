"""Clients that send and retry as the SDK's upload process does, and note what they were promised.

Five tries with 1, 2, 4 and 8 s between them, after 401, 408, 429, any 5xx and any failure of the
network; another 4xx ends it at once. `Retry-After` is not read. After the fifth try a request has
failed, and a cluster that is run well has none.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import aiohttp
import orjson

from loadtest.oracle import RequestNumber, Shape, audit, body_of
from tests.chaos.load import eventually, stored_rows

if TYPE_CHECKING:
    from tests.chaos.load import Ask

SHAPE = Shape(lines=3, names=4)
WAITS = (1.0, 2.0, 4.0, 8.0)
TIMEOUT_SECONDS = 30.0
RETRIED = frozenset({401, 408, 429})


@dataclass
class Record:
    """What happened to all requests of all clients."""

    acknowledged: list[tuple[int, RequestNumber]] = field(default_factory=list)
    retried: list[tuple[int, RequestNumber, str]] = field(default_factory=list)
    """Each try that was not the last, with why it had to be repeated."""
    failed: list[tuple[int, RequestNumber, str]] = field(default_factory=list)
    seconds_max: float = 0.0
    """The longest wait for a single answer of 200."""


class Clients:
    """So many clients in a thread, each with a run of its own and one request at a time."""

    def __init__(self, url: str, key: str, *, count: int, pause_seconds: float) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {key}", "X-Project-Name": "cluster"}
        self.runs = range(1, count + 1)
        self._pause_seconds = pause_seconds
        self.record = Record()

    def __enter__(self) -> Self:
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Each ends with its request answered or failed."""
        self._is_over.set()
        self._thread.join()

    def answered(self, more: int, seconds_max: float = 40.0) -> None:
        """Wait until so many more requests were acknowledged."""
        wanted = len(self.record.acknowledged) + more
        eventually(
            lambda: len(self.record.acknowledged) >= wanted,
            seconds_max,
            f"{more} more answers ({self.record.retried[-3:]})",
        )

    def audit(self, ask: Ask, *, sent_twice: int) -> int:
        """Acknowledged = stored once, row by row; the rows that were compared.

        Args:
            ask: reads from ClickHouse.
            sent_twice: requests that may have reached a second replica. Their rows may be there
                twice until a merge, and once for who reads with FINAL.
        """
        unknown = [one[:2] for one in self.record.failed]
        result = audit(
            stored_rows(ask, "mlop_metrics FINAL", self.runs),
            self.record.acknowledged,
            unknown,
            SHAPE,
        )
        assert result.is_clean, f"FINAL: {result}"
        raw = audit(
            stored_rows(ask, "mlop_metrics", self.runs), self.record.acknowledged, unknown, SHAPE
        )
        assert not raw.missing, raw
        assert not raw.wrong, raw
        assert not raw.foreign, raw
        assert len(raw.doubled) <= sent_twice * SHAPE.rows, f"{sent_twice} sent twice: {raw}"
        return result.expected

    async def _run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            await asyncio.gather(*(self._client(session, run) for run in self.runs))

    async def _client(self, session: aiohttp.ClientSession, run: int) -> None:
        for number in map(RequestNumber, itertools.count()):
            if self._is_over.is_set():
                return
            await self._deliver(session, run, number)
            await asyncio.sleep(self._pause_seconds)

    async def _deliver(
        self, session: aiohttp.ClientSession, run: int, number: RequestNumber
    ) -> None:
        for wait in (*WAITS, None):
            begun = time.monotonic()
            why, is_final = await self._try(session, run, number)
            if why is None:
                self.record.seconds_max = max(self.record.seconds_max, time.monotonic() - begun)
                self.record.acknowledged.append((run, number))
                return
            if is_final or wait is None:
                self.record.failed.append((run, number, why))
                return
            self.record.retried.append((run, number, why))
            await asyncio.sleep(wait)

    async def _try(
        self, session: aiohttp.ClientSession, run: int, number: RequestNumber
    ) -> tuple[str | None, bool]:
        """Why it has to be tried again, None where it need not; and whether it must not."""
        try:
            async with session.post(
                f"{self._url}/ingest/metrics",
                data=body_of(run, number, SHAPE),
                headers=self._headers | {"X-Run-Id": str(run)},
            ) as response:
                answer = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return f"{type(error).__name__}: {error}", False
        if response.status == 200 and orjson.loads(answer)["accepted"] == SHAPE.rows:
            return None, False
        is_final = response.status < 500 and response.status not in RETRIED
        return f"{response.status} {answer[:200]!r}", is_final
