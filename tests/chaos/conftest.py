"""Servers, engines and proxies of the chaos tests, and the seed that all their chance comes from.

`CHAOS_SEED` replays a run; `CHAOS_MINUTES` (`make chaos MINUTES=…`) makes it long.
"""

from __future__ import annotations

import os
import random
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from loadtest.throwaway import Server
from tests.chaos.house import QUICK, Backend, House, engine_settings, make_view
from tests.chaos.load import eventually
from tests.chaos.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
SEED = int(os.environ.get("CHAOS_SEED") or secrets.randbelow(10**6))
LOG_CHARACTERS = 6_000
MINUTES = float(os.environ.get("CHAOS_MINUTES") or 0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    """A failure says how to have it again."""
    report = yield
    if report.failed and item.path.parent == HERE:
        again = f"CHAOS_SEED={SEED} .venv/bin/python -m pytest '{item.nodeid}'"
        report.sections.append(("seed and replay", f"seed {SEED}; again: {again}"))
        for path in logs_of(item):
            end_of_log = path.read_text(errors="replace")[-LOG_CHARACTERS:]
            report.sections.append((f"end of {path.name}", end_of_log))
    return report


def logs_of(item: pytest.Item) -> list[Path]:
    """What the servers of a test have written."""
    values = getattr(item, "funcargs", {}).values()
    houses = [value for value in values if isinstance(value, House)]
    folders = [value for value in values if isinstance(value, Path)]
    paths = [house.server.log_path for house in houses]
    return [*paths, *(path for folder in folders for path in sorted(folder.glob("*.log")))]


@pytest.fixture(scope="session")
def minutes() -> float:
    """How long a run of chance may take; 0 in the normal suite, where it is seconds."""
    return MINUTES


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """The test's own chance: a function of the seed and the test's name."""
    return random.Random(f"{SEED}/{request.node.name}")


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Servers with data of their own, stopped at the end, by force where they do not stop."""
    servers: list[Server] = []

    def make(
        name: str = "data",
        *,
        workers: int = 1,
        is_ready: bool = True,
        data_dir: Path | None = None,
        **settings: str,
    ) -> Server:
        server = Server(data_dir or tmp_path / name, QUICK | settings, workers)
        if data_dir is not None:
            server.log_path = tmp_path / f"{name}.log"
        servers.append(server)
        server.key = "shown at the first start"  # a command to make another takes a second
        server.start(is_ready=is_ready)
        server.key = shown_key(server)
        return server

    yield make
    for server in servers:
        end(server)


@pytest.fixture(scope="session")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """One engine for all tests that need one apart from a server; `house` makes its tables."""
    backend = Backend(tmp_path_factory.mktemp("engine") / "engine").start()
    yield backend
    backend.stop()


@pytest.fixture(scope="session")
def house_of_all(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A server, its tables and a view, shared by all tests that leave it as they found it."""
    proxy = Proxy(("127.0.0.1", backend.port)).start()
    told = QUICK | engine_settings(proxy.url) | {"grace_seconds": "0.1"}
    server = Server(tmp_path_factory.mktemp("house") / "data", told)
    try:
        server.start(is_ready=False)
        server.command("migrate")
        make_view(backend.ask)
        eventually(server.is_ok, 30, "a server that is ok")
        yield House(server, backend, proxy)
    finally:
        end(server)
        proxy.stop()


@pytest.fixture
def house(house_of_all: House) -> Iterator[House]:
    """That house, its wires mended in the end whatever the test has done."""
    yield house_of_all
    house_of_all.proxy.mend()
    if house_of_all.server.process.poll() is not None:
        house_of_all.server.start()


@pytest.fixture
def proxy(house_of_all: House) -> Iterator[Proxy]:
    """A way of the test's own to the engine, whose tables are there."""
    proxy = Proxy(house_of_all.proxy.upstream).start()
    yield proxy
    proxy.stop()


@pytest.fixture
def make_house(
    make_server: Callable[..., Server], backend: Backend, proxy: Proxy
) -> Callable[..., House]:
    """A server of the test's own behind a proxy of its own."""

    def make(name: str = "data", *, is_ready: bool = True, workers: int = 1, **settings) -> House:
        told = engine_settings(proxy.url) | settings
        server = make_server(name, is_ready=is_ready, workers=workers, **told)
        return House(server, backend, proxy)

    return make


def shown_key(server: Server) -> str:
    """The key of a server's first start."""
    shown = "PLUTO_API_KEY="
    eventually(lambda: shown in server.log_path.read_text(), 20, "a key shown")
    return server.log_path.read_text().partition(shown)[2].split()[0]


def end(server: Server) -> None:
    """Stop it, or kill it where it does not stop in time."""
    if server.process is not None and server.process.poll() is None:
        try:
            server.stop()
        except Exception:
            server.kill_tree()
            raise
