"""Goal: kill -9 of anything, under load, loses no acknowledged row and doubles none.

Method: writers post numbered requests and note each acknowledged one in a synced file; processes
are killed in the middle; after a restart every row of every acknowledged request is recomputed and
compared with the table, raw and FINAL. All tests kill one server, each with runs of its own.
"""

from __future__ import annotations

import itertools
import os
import signal
import urllib.error
from typing import TYPE_CHECKING

import pytest

from loadtest.oracle import Shape
from loadtest.throwaway import Server, wait_for_end
from tests.chaos.house import drained
from tests.chaos.load import Load
from tests.e2e.conftest import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SHAPE = Shape(lines=5, names=8)
WRITERS = 6
RUNS = itertools.count(1, WRITERS)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two workers; each test leaves it running."""
    one = Server(tmp_path_factory.mktemp("crash") / "data", workers=2)
    one.start()
    yield one
    assert one.stop() == 0


@pytest.fixture
def load(server: Server, tmp_path: Path) -> Iterator[Load]:
    """Writers whose runs are nobody else's."""
    one = Load(server, tmp_path / "notes", writers=WRITERS, shape=SHAPE, first_run=next(RUNS))
    yield one
    one.stop()


def audit(server: Server, load: Load) -> None:
    """Acknowledged = stored, row by row, each once; and nothing that was not sent."""
    eventually(lambda: _answers(server), 60, "an engine that answers")
    drained(server)
    load.audit(server.sql, requests_min=50)


def test_killing_everything_three_times_in_a_row_loses_nothing(server: Server, load: Load) -> None:
    for _ in range(3):
        load.start()
        load.acknowledged(60)
        server.kill_tree()
        load.stop()
        server.start(is_ready=False)
        audit(server, load)


def test_killing_the_supervisor_alone_three_times_leaves_no_orphan_and_loses_nothing(
    server: Server, load: Load
) -> None:
    for _ in range(3):
        load.start()
        load.acknowledged(60)
        orphans = [*server.worker_pids(), server.engine_pid()]
        server.kill_supervisor()
        for pid in orphans:
            wait_for_end(pid)
        load.stop()
        server.start(is_ready=False)
        audit(server, load)


def test_a_killed_engine_fails_no_request_and_gets_everything_after_its_restart(
    server: Server, load: Load
) -> None:
    eventually(lambda: len(server.worker_pids()) == 2, 30, "two workers")
    load.start()
    for _ in range(2):
        load.acknowledged(60)
        engine = server.engine_pid()
        os.kill(engine, signal.SIGKILL)
        load.acknowledged(200)
        eventually(lambda engine=engine: _engine(server) not in {None, engine}, 30, "another")
        eventually(lambda: _answers(server), 30, "an engine that answers")
    load.stop()
    assert not load.outcomes.unknown
    audit(server, load)


def test_a_killed_worker_is_replaced_and_loses_nothing(server: Server, load: Load) -> None:
    load.start()
    for _ in range(3):
        load.acknowledged(60)
        before = server.worker_pids()
        os.kill(before[0], signal.SIGKILL)
        eventually(lambda before=before: _is_replaced(server, before[0]), 30, "another worker")
        load.acknowledged(60)
    load.stop()
    audit(server, load)


def _is_replaced(server: Server, pid: int) -> bool:
    pids = server.worker_pids()
    return pid not in pids and len(pids) == server.workers


def _answers(server: Server) -> bool:
    try:
        return server.count_rows("mlop_metrics") >= 0
    except (OSError, urllib.error.URLError, ValueError):
        return False


def _engine(server: Server) -> int | None:
    try:
        return server.engine_pid()
    except ValueError:
        return None
