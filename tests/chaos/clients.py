"""Clients behind a tiny balancer: round robin, one retry on the next replica, as nginx would."""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import TYPE_CHECKING, Self

import aiohttp
import orjson

from loadtest.oracle import RequestNumber, audit, body_of
from tests.chaos.load import FIRST_RUNS, SHAPE, eventually, stored_rows

if TYPE_CHECKING:
    from loadtest.throwaway import Server
    from tests.chaos.load import Ask


class Balanced:
    """Numbered requests to several servers, in a thread; each is tried twice at most."""

    def __init__(self, servers: list[Server], *, clients: int) -> None:
        self._targets = [(server.url, server.key) for server in servers]
        first = next(FIRST_RUNS)
        self._runs = range(first, first + clients)
        self._turns = itertools.count()
        self.acknowledged: list[tuple[int, RequestNumber]] = []
        self.failed: list[tuple[int, RequestNumber, str]] = []
        self.retried = 0

    def __enter__(self) -> Self:
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def answered(self, more: int) -> None:
        """Wait until so many more requests were acknowledged."""
        wanted = len(self.acknowledged) + more
        eventually(lambda: len(self.acknowledged) >= wanted, 30, f"{more} more answers")

    def audit(self, ask: Ask) -> None:
        """Acknowledged = one row to every reader; what was tried twice may be twice raw."""
        for table in ("mlop_metrics", "mlop_metrics FINAL"):
            if table == "mlop_metrics" and self.retried:
                continue
            stored = stored_rows(ask, table, self._runs)
            result = audit(stored, self.acknowledged, [one[:2] for one in self.failed], SHAPE)
            assert result.is_clean, f"{table}: {result}"

    async def _run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=30)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            await asyncio.gather(*(self._client(session, run) for run in self._runs))

    async def _client(self, session: aiohttp.ClientSession, run: int) -> None:
        for number in map(RequestNumber, itertools.count()):
            if self._is_over.is_set():
                return
            turn = next(self._turns)
            why = await self._try(session, turn, run, number)
            if why is not None:
                self.retried += 1
                why = await self._try(session, turn + 1, run, number)
            if why is None:
                self.acknowledged.append((run, number))
            else:
                self.failed.append((run, number, why))
            await asyncio.sleep(0.01)

    async def _try(
        self, session: aiohttp.ClientSession, turn: int, run: int, number: RequestNumber
    ) -> str | None:
        url, key = self._targets[turn % len(self._targets)]
        headers = {
            "Authorization": f"Bearer {key}",
            "X-Run-Id": str(run),
            "X-Project-Name": "balanced",
        }
        try:
            async with session.post(
                f"{url}/ingest/metrics", data=body_of(run, number, SHAPE), headers=headers
            ) as response:
                answer = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return f"{type(error).__name__}: {error}"
        if response.status == 200 and orjson.loads(answer)["accepted"] == SHAPE.rows:
            return None
        return f"{response.status} {answer[:200]!r}"
