"""Goal: stops, starts and changes of size are boring: nothing lost, nothing doubled, few noticed.

Method: real servers under load, SIGTERM, other numbers of workers, a second server on its data;
the clients' own records say what they were promised.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from loadtest.throwaway import COMMAND
from tests.chaos.clients import Balanced
from tests.chaos.house import drained, engine_settings, leftovers, pending
from tests.chaos.load import Load, eventually
from tests.chaos.test_kills import asked

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from loadtest.throwaway import Server
    from tests.chaos.house import House

pytestmark = pytest.mark.slow

STOPS = 2
STOPS_LONG = 50
"""As many without a server's start in between: `tests/buffer/test_writeahead.py`."""


def test_sigterm_under_load_answers_what_is_under_way_and_loses_nothing(
    make_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = make_server(workers=2, grace_seconds="5")
    load = Load(server, tmp_path / "notes", writers=6)
    load.start()
    load.acknowledged(60)
    begun = time.monotonic()
    assert server.stop() == 0
    seconds = time.monotonic() - begun
    load.stop()
    assert seconds < 5 + 5, f"stopping took {seconds:.1f} s"
    assert not leftovers(server.data_dir / "log")
    # A request that met a closed port is not one that got no answer.
    server.start()
    drained(server)
    load.audit(asked(server), requests_min=60)


def test_a_clean_stop_with_clickhouse_away_keeps_every_row(
    house: House, tmp_path: Path, minutes: float
) -> None:
    # F30: a clean stop lost or corrupted the queue on disk.
    server = house.server
    load = Load(server, tmp_path / "notes", writers=2)
    for _ in range(STOPS_LONG if minutes else STOPS):
        house.proxy.down()
        load.send(5)
        assert pending(server) > 0
        assert server.stop() == 0
        server.start(is_ready=False)
        house.proxy.up()
        drained(server)
    assert not load.outcomes.unknown
    load.audit(house.backend.ask, requests_min=10 * STOPS)


def test_a_rolling_restart_of_two_replicas_fails_no_request(
    make_server: Callable[..., Server], house: House
) -> None:
    # F17: the listener closed before the balancer noticed.
    backend = house.backend
    told = engine_settings(f"http://127.0.0.1:{backend.port}")
    servers = [
        make_server(name, is_ready=False, drain_delay_seconds="0.5", **told)
        for name in ("one", "two")
    ]
    with Balanced(servers, clients=4) as clients:
        clients.answered(50)
        for server in servers:
            server.stop()
            clients.answered(20)
            server.start(is_ready=False)
            clients.answered(20)
    assert not clients.failed, clients.failed[:3]
    for server in servers:
        drained(server)
    clients.audit(backend.ask)


def test_workers_restarted_in_turn_behind_one_port_fail_no_request(
    make_server: Callable[..., Server], minutes: float
) -> None:
    if not minutes:
        pytest.skip("part of `make chaos`")
    server = make_server(workers=2)
    with Balanced([server], clients=4) as clients:
        clients.answered(50)
        for pid in server.worker_pids():
            os.kill(pid, signal.SIGTERM)
            eventually(lambda pid=pid: _is_replaced(server, pid), 20, "another worker")
            clients.answered(50)
    assert not clients.failed, clients.failed[:3]
    drained(server)
    clients.audit(asked(server))


def test_three_workers_then_one_then_two_drain_every_shard(
    make_house: Callable[..., House], tmp_path: Path
) -> None:
    house = make_house(workers=3, grace_seconds="0.1")
    server = house.server
    house.proxy.down()
    loads = []
    for workers in (3, 1, 2):
        if server.process.poll() is not None:
            server.workers = workers
            server.start(is_ready=False)
        # As many connections as it takes for the kernel to give each worker some.
        load = Load(server, tmp_path / f"notes-{workers}", writers=12)
        load.send(2)
        if workers == 3:
            assert len(_shards(server)) == 3
        if workers == 2:
            house.proxy.up()
            drained(server, 60)
            eventually(lambda: len(_shards(server)) == 2, 30, "orphans drained and removed")
        else:
            assert pending(server) > 0
            assert server.stop() == 0
        assert not load.outcomes.unknown
        loads.append(load)
    for load in loads:
        load.audit(house.backend.ask, requests_min=24)


def test_a_second_server_on_the_same_data_is_refused_with_the_firsts_pid(house: House) -> None:
    # F33: `test_kills` has the other half, starts at once after kill -9.
    server = house.server
    second = subprocess.run(
        [*COMMAND, "serve", "--port", "0", "--data-dir", str(server.data_dir)],
        capture_output=True,
        text=True,
        env=server._environment(),
        timeout=30,
        check=False,
    )
    assert second.returncode != 0
    assert str(server.process.pid) in re.findall(r"\d+", second.stdout + second.stderr)


def _is_replaced(server: Server, pid: int) -> bool:
    pids = server.worker_pids()
    return pid not in pids and len(pids) == server.workers and server.is_ok()


def _shards(server: Server) -> list[Path]:
    return [path for path in (server.data_dir / "log").iterdir() if path.is_dir()]
