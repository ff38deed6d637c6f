"""Whole-server tests: real processes, real sockets, the real engine, the real SDK."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import clickhouse_connect
import pytest

from loadtest.throwaway import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Servers with data of their own, stopped at the end, by force where they do not stop."""
    servers: list[Server] = []

    def make(name: str = "data", *, workers: int = 1, **settings: str) -> Server:
        server = Server(tmp_path / name, settings, workers)
        servers.append(server)
        server.start()
        return server

    yield make
    for server in servers:
        if server.process is not None and server.process.poll() is None:
            try:
                server.stop()
            except Exception:
                server.kill_tree()
                raise


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One started server with one worker for all tests of a file; each has runs of its own."""
    one = Server(tmp_path_factory.mktemp("server") / "data")
    try:
        one.start()
        yield one
    finally:
        if one.process is not None:
            assert one.stop() == 0


def clickhouse(server: Server):
    """The real ClickHouse client, unchanged, on the server's engine."""
    address = urlsplit(server.clickhouse_url)
    return clickhouse_connect.get_client(
        host=address.hostname,
        port=address.port,
        username="charon",
        password=server.clickhouse_password,
        database="charon",
    )


def bits(number: float) -> str:
    """A float64's bytes: NaN equals NaN, and -0.0 does not equal 0.0."""
    return struct.pack("<d", number).hex()


def eventually(condition: Callable[[], object], seconds_max: float, what: str) -> None:
    """Wait until the condition holds; fail saying what did not come about."""
    deadline = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds_max} s: {what}"
        time.sleep(0.05)
