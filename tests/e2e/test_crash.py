"""Goal: kill -9 of anything, under load, loses no acknowledged row and doubles none.

Method: writers post numbered requests and note each acknowledged one in a synced file; processes
are killed in the middle; after a restart every row of every acknowledged request is recomputed and
compared with the table, raw and FINAL.
"""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import urllib.error
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from loadtest.oracle import Outcomes, Shape, Writer, audit, noted
from loadtest.throwaway import wait_for_end
from tests.chaos.house import drained
from tests.e2e.conftest import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from loadtest.throwaway import Server

SHAPE = Shape(lines=5, names=8)
WRITERS = 6


class Load:
    """Writers that go on until they are told to stop; each has a run and a note of its own."""

    def __init__(self, server: Server, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.outcomes = Outcomes()
        self._notes = [folder / f"acknowledged-{run}" for run in range(1, WRITERS + 1)]
        self._server = server
        self._stop = asyncio.Event()
        self._next = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._stop.clear()
        first = self._next
        self._next += 100_000
        self._tasks = [
            asyncio.create_task(
                Writer(
                    *(self._server.url, self._server.key, run, note, SHAPE, self.outcomes)
                ).write(range(first, first + 100_000), self._stop)
            )
            for run, note in enumerate(self._notes, start=1)
        ]

    async def acknowledged(self, more: int) -> None:
        """Wait until that many more requests are acknowledged."""
        wanted = len(self.outcomes.acknowledged) + more
        async with asyncio.timeout(30):
            while len(self.outcomes.acknowledged) < wanted:
                await asyncio.sleep(0.01)

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._tasks)

    def audit(self) -> None:
        """Acknowledged = stored, row by row, each once; and nothing that was not sent."""
        acknowledged = noted(self._notes)
        assert acknowledged == set(self.outcomes.acknowledged)
        assert len(acknowledged) > 50
        assert not self.outcomes.refused
        expected = len(acknowledged) * SHAPE.rows
        eventually(
            lambda: self._server.count_rows("mlop_metrics") >= expected, 30, f"{expected} rows"
        )
        # Rows of requests without an answer may still be on their way.
        drained(self._server)
        for final in ("", " FINAL"):
            result = audit(
                stored_rows(self._server, final), acknowledged, self.outcomes.unknown, SHAPE
            )
            assert result.is_clean, str(result)


def stored_rows(server: Server, final: str) -> Counter:
    rows = server.sql(
        "SELECT runId, logName, step, toUnixTimestamp64Milli(time), "
        "hex(reinterpretAsUInt64(value)) "
        f"FROM mlop_metrics{final}"
    )
    return Counter((int(r), n, float(s), int(t), unhex(v)) for r, n, s, t, v in rows)


def unhex(text: str) -> float:
    return struct.unpack(">d", int(text, 16).to_bytes(8))[0]


@pytest.mark.slow
async def test_killing_everything_three_times_in_a_row_loses_nothing(
    make_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = make_server(workers=2)
    load = Load(server, tmp_path / "notes")
    for _ in range(3):
        load.start()
        await load.acknowledged(60)
        await asyncio.to_thread(server.kill_tree)
        await load.stop()
        await asyncio.to_thread(server.start)
        await asyncio.to_thread(load.audit)


@pytest.mark.slow
async def test_killing_the_supervisor_alone_three_times_leaves_no_orphan_and_loses_nothing(
    make_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = make_server(workers=2)
    load = Load(server, tmp_path / "notes")
    for _ in range(3):
        load.start()
        await load.acknowledged(60)
        orphans = [*server.worker_pids(), server.engine_pid()]
        await asyncio.to_thread(server.kill_supervisor)
        for pid in orphans:
            await asyncio.to_thread(wait_for_end, pid)
        await load.stop()
        await asyncio.to_thread(server.start)
        await asyncio.to_thread(load.audit)


@pytest.mark.slow
async def test_a_killed_engine_fails_no_request_and_gets_everything_after_its_restart(
    make_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = make_server()
    load = Load(server, tmp_path / "notes")
    load.start()
    for _ in range(2):
        await load.acknowledged(60)
        engine = server.engine_pid()
        os.kill(engine, signal.SIGKILL)
        await load.acknowledged(200)
        await asyncio.to_thread(_other_engine, server, engine)
    await load.stop()
    assert not load.outcomes.unknown
    await asyncio.to_thread(load.audit)


@pytest.mark.slow
async def test_a_killed_worker_is_replaced_and_loses_nothing(
    make_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = make_server(workers=2)
    load = Load(server, tmp_path / "notes")
    load.start()
    for _ in range(3):
        await load.acknowledged(60)
        before = server.worker_pids()
        os.kill(before[0], signal.SIGKILL)
        await load.acknowledged(60)
    await load.stop()
    await asyncio.to_thread(load.audit)


def _other_engine(server: Server, former: int) -> None:
    eventually(lambda: _engine(server) not in {None, former}, 30, "another engine")
    eventually(lambda: _answers(server), 30, "an engine that answers")


def _answers(server: Server) -> bool:
    try:
        return server.count_rows("mlop_metrics") >= 0
    except urllib.error.URLError:
        return False


def _engine(server: Server) -> int | None:
    try:
        return server.engine_pid()
    except ValueError:
        return None
