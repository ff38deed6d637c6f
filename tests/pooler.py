"""pgbouncer in transaction mode before a test's Postgres."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.postgres import free_port, unprivileged

if TYPE_CHECKING:
    from collections.abc import Iterator

START_SECONDS_MAX = 20.0
_SETTINGS = """
[databases]
* = host={host} port={port} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {connections}
max_client_conn = 500
"""


@contextmanager
def pooler(server_url: str, *, connections: int) -> Iterator[str]:
    """The address of the same database through a pooler with so many connections to it."""
    path = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if path is None:
        pytest.fail("no pgbouncer: install it (apt-get install pgbouncer)")
    where, _, database = server_url.rpartition("/")
    user, _, address = where.removeprefix("postgresql://").rpartition("@")
    host, _, port = address.partition(":")
    listen_port = free_port()
    with tempfile.TemporaryDirectory(prefix="charon-pgbouncer-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        settings = directory / "pgbouncer.ini"
        settings.write_text(
            _SETTINGS.format(
                host=host,
                port=port or 5432,
                user=user.partition(":")[0],
                listen_port=listen_port,
                connections=connections,
            )
        )
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(
                [*unprivileged(), path, settings], stdout=log, stderr=log, cwd="/"
            )
        try:
            _wait_for(process, listen_port, directory / "log")
            yield f"postgresql://{user}@127.0.0.1:{listen_port}/{database}"
        finally:
            process.terminate()
            process.wait(START_SECONDS_MAX)


def _wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"pgbouncer did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.02)
        else:
            return
