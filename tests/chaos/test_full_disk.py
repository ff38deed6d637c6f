"""Goal: a full disk refuses, politely and for a while; it damages nothing and mends by itself.

Method: the data directory is a small tmpfs of the test's own, filled first by a file and then by
the log itself; where mounting is refused, a limit on the size of the worker's files stands in.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from loadtest.oracle import Shape
from tests.chaos.house import drained, engine_settings, get, leftovers, pending
from tests.chaos.load import FIRST_RUNS, eventually
from tests.chaos.posting import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from loadtest.throwaway import Server
    from tests.chaos.house import Backend
    from tests.chaos.proxy import Proxy

pytestmark = pytest.mark.slow

SHAPE = Shape(lines=100, names=10)
"""About 11 kB of log a request: more than the files may hold in the second test."""
DISK_MIB = 3
HELD_SECONDS = 1.0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A mounted tmpfs."""
    place = tmp_path / "disk"
    place.mkdir()
    options = f"size={DISK_MIB}m,mode=700"
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"mounting is refused: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(path: Path) -> None:
    """Take all space there is."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        for size in (1 << 20, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    os.write(descriptor, bytes(size))
    os.close(descriptor)


def settings(proxy: Proxy) -> dict[str, str]:
    return engine_settings(proxy.url) | {
        "disk_free_bytes_min": "0",
        "segment_bytes_max": str(256 << 10),
        "room_seconds_max": str(HELD_SECONDS),
        "grace_seconds": "0.5",
    }


def is_refused_politely(ledger: Ledger) -> None:
    """A request is held for a while, then told when to come again."""
    # A few may still find room: what a journal gives back, say.
    answers = (ledger.post() for _ in range(20))
    answer = next(answer for answer in answers if answer.status != 200)
    assert answer.status == 503, answer
    assert int(answer.headers["Retry-After"]) > 0
    assert 0.7 * HELD_SECONDS <= answer.seconds < 5 + HELD_SECONDS


def test_a_full_disk_refuses_and_mends_by_itself(
    make_server: Callable[..., Server],
    backend: Backend,
    proxy: Proxy,
    small_disk: Path,
    minutes: float,
) -> None:
    server = make_server(
        is_ready=False, data_dir=small_disk / "data", name="full", **settings(proxy)
    )
    ledger = Ledger(server, next(FIRST_RUNS), SHAPE)
    proxy.down()
    for _ in range(3):
        assert ledger.post().status == 200

    # Somebody else's file takes the space, and goes away again.
    fill(small_disk / "filler")
    eventually(lambda: ledger.post().status == 503, 20, "a refusal")
    is_refused_politely(ledger)
    eventually(lambda: get(server.url, "/health/ready")[0] == 503, 5, "not ready")
    assert get(server.url, "/health")[0] == 200
    assert get(server.url, "/metrics")[0] == 200
    (small_disk / "filler").unlink()
    eventually(lambda: get(server.url, "/health/ready")[0] == 200, 10, "ready again")
    for _ in range(3):
        assert ledger.post().status == 200

    # The log itself takes it, and a start finds no byte free.
    while ledger.post().status == 200:
        assert len(ledger.acknowledged) < 10_000
    is_refused_politely(ledger)
    assert server.stop() == 0
    assert not leftovers(server.data_dir / "log")
    assert pending(server) > 0
    if minutes:  # the catalogue is not had then, which a worker waits for before it serves
        fill(small_disk / "filler")
    proxy.up()
    # Delivery needs checkpoints, which a full disk still takes; delivered log makes room, and
    # what else a start writes is written then.
    server.start(is_ready=False)
    drained(server, 60)
    eventually(lambda: ledger.post().status == 200, 20, "room again")
    drained(server)
    assert server.stop() == 0
    assert not leftovers(server.data_dir / "log")
    rows = ledger.audit(backend.ask)
    print(f"{rows} rows, {ledger.refused} requests refused")


def test_files_that_may_not_grow_refuse_and_mend_by_themselves(
    make_server: Callable[..., Server], backend: Backend, proxy: Proxy, minutes: float
) -> None:
    if not minutes and os.geteuid() == 0:
        pytest.skip("part of `make chaos`, and for those who may not mount a small disk")
    server = make_server(is_ready=False, **settings(proxy))
    ledger = Ledger(server, next(FIRST_RUNS), SHAPE)
    assert ledger.post().status == 200
    (worker,) = server.worker_pids()
    former = resource.prlimit(worker, resource.RLIMIT_FSIZE)
    # A checkpoint of 8 KiB can be written, a segment with one of these requests cannot.
    resource.prlimit(worker, resource.RLIMIT_FSIZE, (8 << 10, former[1]))
    eventually(lambda: ledger.post().status == 503, 10, "a refusal")
    is_refused_politely(ledger)
    drained(server)
    assert get(server.url, "/health")[0] == 200
    resource.prlimit(worker, resource.RLIMIT_FSIZE, former)
    eventually(lambda: ledger.post().status == 200, 10, "room again")
    begun = time.monotonic()
    assert ledger.post().status == 200
    assert time.monotonic() - begun < 1
    drained(server)
    assert server.stop() == 0
    assert not leftovers(server.data_dir / "log")
    ledger.audit(backend.ask)
