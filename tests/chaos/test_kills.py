"""Goal: kill -9 and SIGSTOP of anything, at any instant, lose no acknowledged row and double none.

Method: writers go on while a seeded chance picks a process (a worker, the engine, the supervisor
alone, everything) and what is done to it; whatever has ended is started again as a service manager
would. Then every row of every acknowledged request is compared with the table.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
import urllib.error
from typing import TYPE_CHECKING

import pytest

from loadtest.throwaway import wait_for_end
from tests.chaos.house import VIEW, ask, drained, make_view, metric
from tests.chaos.load import Load, eventually, stored_rows

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from loadtest.throwaway import Server

pytestmark = pytest.mark.slow

SECONDS = 10.0
"""In the normal suite."""


class Killer:
    """Does one thing after the other to one server, as its chance has it."""

    def __init__(self, server: Server, chance: random.Random) -> None:
        self._server = server
        self._chance = chance
        self.done: list[str] = []
        self.generations = 0.0
        """Raised by processes that have ended since, as far as they were asked."""

    def strike(self) -> None:
        """One fault, and what brings the server back."""
        kinds = (
            self.kill_worker,
            self.kill_worker,
            self.kill_engine,
            self.kill_engine,
            self.kill_supervisor,
            self.kill_everything,
            self.freeze_worker,
            self.freeze_engine,
            self.freeze_supervisor,
        )
        kind = self._chance.choice(kinds)
        self.done.append(kind.__name__)
        with contextlib.suppress(IndexError, ValueError, ProcessLookupError):
            kind()  # what is to be struck may be just starting

    def kill_worker(self) -> None:
        os.kill(self._chance.choice(self._server.worker_pids()), signal.SIGKILL)

    def kill_engine(self) -> None:
        os.kill(self._server.engine_pid(), signal.SIGKILL)

    def kill_supervisor(self) -> None:
        orphans = self._server.worker_pids()
        self._server.kill_supervisor()
        if self._chance.random() < 0.5:  # else at once, while its children are still about
            for pid in orphans:
                wait_for_end(pid)
        self._server.start(is_ready=False)

    def kill_everything(self) -> None:
        self._server.kill_tree()
        self._server.start(is_ready=False)

    def freeze_worker(self) -> None:
        self._freeze(self._chance.choice(self._server.worker_pids()))

    def freeze_engine(self) -> None:
        self._freeze(self._server.engine_pid())

    def freeze_supervisor(self) -> None:
        self._freeze(self._server.process.pid)

    def _freeze(self, pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self._chance.uniform(0.2, 2.5))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def asked(server: Server) -> Callable[[str], list[list]]:
    """The server's own engine, past everything."""
    return lambda query: ask(server.clickhouse_url, query, server.clickhouse_password)


def test_random_kills_and_freezes_lose_nothing_and_double_nothing(
    make_server: Callable[..., Server],
    tmp_path: Path,
    chance: random.Random,
    minutes: float,
) -> None:
    server = make_server(workers=2)
    make_view(asked(server))
    load = Load(server, tmp_path / "notes", writers=4)
    killer = Killer(server, chance)
    load.start()
    try:
        until = time.monotonic() + (minutes * 60 or SECONDS)
        while time.monotonic() < until:
            time.sleep(chance.uniform(0.1, 1.5))
            killer.strike()
    finally:
        load.stop()
    what = ", ".join(killer.done)
    eventually(lambda: _answers(server), 60, f"an engine that answers after {what}")
    drained(server, 60)
    rows = load.audit(asked(server), requests_min=20)
    _audit_view(server, load, rows)
    print(f"{rows} rows through {len(killer.done)} strikes: {what}")


def _audit_view(server: Server, load: Load, rows: int) -> None:
    """The view may have a row twice, where a block was sent under a new generation; never less."""
    copies = stored_rows(asked(server), VIEW, load.runs)
    assert len(copies) >= rows
    doubled = sum(count > 1 for count in copies.values())
    if doubled:
        assert metric(server, "delivery_generations_total"), f"{doubled} rows twice in the view"


def test_a_worker_that_hangs_is_replaced_and_its_requests_lose_nothing(
    make_server: Callable[..., Server], tmp_path: Path, minutes: float
) -> None:
    if not minutes:
        pytest.skip("ten seconds of silence: part of `make chaos`")
    server = make_server(workers=2)
    load = Load(server, tmp_path / "notes")
    load.start()
    load.acknowledged(40)
    frozen = server.worker_pids()[0]
    os.kill(frozen, signal.SIGSTOP)
    wait_for_end(frozen, 20)
    eventually(lambda: len(server.worker_pids()) == 2, 20, "another worker")
    load.stop()
    drained(server)
    load.audit(asked(server))


def _answers(server: Server) -> bool:
    try:
        return server.count_rows("mlop_metrics") >= 0
    except (urllib.error.URLError, OSError):
        return False
