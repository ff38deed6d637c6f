"""A real `python -m ingest.embedded`, for any package's tests."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
USER = "charon"
PASSWORD = "embedded-secret"
READY_SECONDS_MAX = 30.0


@dataclass
class EngineProcess:
    """One engine, serving; `stop` is orderly, `kill` is not."""

    process: subprocess.Popen
    path: Path
    port: int
    url: str
    user: str = USER
    password: str = PASSWORD
    database: str = "charon"

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """kill -9, and wait for the end."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._reap()

    def stop(self, seconds: float = 20.0) -> int:
        """SIGTERM, and wait for the end; the exit status."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        return self._reap(seconds)

    def _reap(self, seconds: float = 20.0) -> int:
        try:
            return self.process.wait(seconds)
        finally:
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()


def spawn_engine(
    path: Path, *, port: int = 0, stderr=None, under: tuple[str, ...] = (), **config
) -> subprocess.Popen:
    """Start it and hand it its configuration; it is not ready yet.

    Args:
        under: a command that becomes it.
    """
    process = subprocess.Popen(
        [*under, sys.executable, "-m", "ingest.embedded"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    settings = {
        "path": str(path),
        "host": "127.0.0.1",
        "port": port,
        "user": USER,
        "password": PASSWORD,
        "database": "charon",
        "threads": 6,
        **config,
    }
    process.stdin.write(json.dumps(settings).encode() + b"\n")
    process.stdin.flush()
    return process


def start_engine(path: Path, *, port: int = 0, **config) -> EngineProcess:
    """An engine on a path, ready to serve."""
    process = spawn_engine(path, port=port, **config)
    deadline = time.monotonic() + READY_SECONDS_MAX
    buffered = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while time.monotonic() < deadline:
            if not selector.select(0.5):
                continue
            piece = os.read(process.stdout.fileno(), 4096)
            if not piece:
                raise RuntimeError(f"the engine ended with status {process.wait(5)}")
            buffered += piece
            for line in buffered.split(b"\n")[:-1]:
                if line.startswith(b"ready "):
                    served = json.loads(line[6:])["port"]
                    return EngineProcess(process, path, served, f"http://127.0.0.1:{served}/")
    process.kill()
    process.wait()
    raise RuntimeError("the engine was not ready in time")
