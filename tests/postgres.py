"""A real Postgres for tests, from the machine's own binaries; nothing of it is left afterwards.

`postgres_server` is one for the session (of each worker, where tests run in several), started when
a test first asks for it. `postgres_url` is a new empty database in it. A test that stops its
server takes one for itself: `with PostgresServer.running() as server`.

Where CHARON_TEST_POSTGRES_URL names a server on which databases may be made and dropped, that one
is used, and none is started.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLE = "CHARON_TEST_POSTGRES_URL"
ROLE = "charon"
START_SECONDS_MAX = 30.0


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The session's server; tests share it, and so never stop it."""
    if VARIABLE in os.environ:
        yield PostgresServer(os.environ[VARIABLE])
        return
    with PostgresServer.running() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The address of a new, empty database; `postgresql://`, without a driver's name."""
    with postgres_server.database() as url:
        yield url


class PostgresServer:
    """A server by its address, and its process where it is ours."""

    def __init__(self, url: str, directory: Path | None = None) -> None:
        self.url = url
        """Of its maintenance database."""
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    @contextmanager
    def running(cls, **settings: str | int) -> Iterator[PostgresServer]:
        """A new server with a port and a directory of its own.

        Args:
            settings: for its command line, such as `max_connections=20`.
        """
        with tempfile.TemporaryDirectory(prefix="charon-postgres-") as name:
            directory = Path(name)
            if os.geteuid() == 0:
                shutil.chown(directory, "nobody")
            _initialise(directory)
            port = free_port()
            server = cls(f"postgresql://{ROLE}@127.0.0.1:{port}/postgres", directory)
            server.start(**settings)
            try:
                yield server
            finally:
                server.stop()

    @contextmanager
    def database(self) -> Iterator[str]:
        """The address of a new database, dropped afterwards with whoever is still connected."""
        name = f"charon_{secrets.token_hex(6)}"
        self.execute(f"CREATE DATABASE {name}")
        try:
            yield self.url_of(name)
        finally:
            with contextlib.suppress(OSError):  # stopped by its test
                self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def url_of(self, database: str) -> str:
        """The address of one of its databases."""
        return f"{self.url.rpartition('/')[0]}/{database}"

    def execute(self, statement: str, url: str | None = None) -> list[Any]:
        """Rows of a statement, on a connection of its own; callable inside an event loop too."""

        async def run() -> list[Any]:
            connection = await asyncpg.connect(url or self.url)
            try:
                return await connection.fetch(statement)
            finally:
                await connection.close()

        return in_thread(lambda: asyncio.run(run()))

    def start(self, **settings: str | int) -> None:
        """Start the process, and wait until it takes connections."""
        assert self._directory is not None, "the server is not ours"
        options = {
            "listen_addresses": "127.0.0.1",
            "port": self.url.rpartition(":")[2].partition("/")[0],
            "unix_socket_directories": self._directory,
            "fsync": "off",  # of a machine's crash alone; a killed server recovers all the same
            "max_connections": 200,
            "shared_buffers": "32MB",
            "jit": "off",
        } | settings
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*unprivileged(), binary("postgres"), "-D", self._directory / "data"]
                + [f"--{name}={value}" for name, value in options.items()],
                stdout=log,
                stderr=log,
                cwd="/",
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._takes_connections():
            if self._process.poll() is not None or time.monotonic() > deadline:
                log_text = (self._directory / "log").read_text()
                pytest.fail(f"Postgres did not start:\n{log_text[-4000:]}")
            time.sleep(0.02)

    def stop(self, *, crash: bool = False) -> None:
        """End the process: in order, or as a crash would (SIGQUIT), whoever is connected."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT if crash else signal.SIGINT)
            self._process.wait(START_SECONDS_MAX)
            self._process = None

    def processes(self) -> list[psutil.Process]:
        """Its process and those that it has for its connections; none of a server not ours."""
        if self._process is None:
            return []
        process = psutil.Process(self._process.pid)
        return [process, *process.children()]

    def _takes_connections(self) -> bool:
        try:
            self.execute("SELECT 1")
        except (OSError, asyncpg.PostgresError):
            return False
        return True


def binary(name: str) -> str:
    """The path of one of Postgres' programs, newest version first.

    A test without it fails: one that were skipped where it is missing would never be missed.
    """
    directories = Path("/usr/lib/postgresql").glob("*/bin")
    versions = sorted(directories, key=lambda path: int(path.parent.name), reverse=True)
    for path in [version / name for version in versions]:
        if path.exists():
            return str(path)
    if found := shutil.which(name):
        return found
    pytest.fail(
        f"no {name!r} in /usr/lib/postgresql/*/bin or PATH: install Postgres "
        f"(apt-get install postgresql), or give the address of a server in {VARIABLE}"
    )


def in_thread(work: Any) -> Any:
    """What `work` gives, done in a thread that has no event loop yet."""
    outcome: list[Any] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


def unprivileged() -> list[str]:
    """Words before a command: what it runs ends with this process, and is never root.

    Postgres refuses to be, and other servers had better not be.
    """
    user = ["--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.geteuid() == 0 else []
    return ["setpriv", *user, "--pdeathsig=INT", "--"]


def _initialise(directory: Path) -> None:
    options = ["--no-sync", "--no-instructions", "--locale=C", "--encoding=UTF8", "--auth=trust"]
    subprocess.run(
        [*unprivileged(), binary("initdb"), "-D", directory / "data", *options, "-U", ROLE],
        check=True,
        stdout=subprocess.DEVNULL,
        cwd="/",
    )


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
