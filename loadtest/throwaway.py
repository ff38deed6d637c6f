"""A real `charon serve` on free ports with data of its own, for tests, the demo and benchmarks.

Nothing here reaches inside: the server is started by its command, found by the file in which it
says what runs, and asked through the interfaces that any client has.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

START_SECONDS_MAX = 60.0
COMMAND = (sys.executable, "-P", "-m", "ingest.cli")
TREE = Path(__file__).resolve().parent.parent


@dataclass(slots=True)
class Server:
    """One `charon serve` and its data directory; `start` may be called again after an end."""

    data_dir: Path
    settings: dict[str, str] = field(default_factory=dict)
    """`CHARON_*` variables without the prefix, in lower case."""
    workers: int = 1
    key: str = ""
    process: subprocess.Popen[bytes] | None = None
    log_path: Path = field(init=False)

    def __post_init__(self) -> None:
        """Choose where the server's own log goes."""
        self.log_path = self.data_dir.with_name(self.data_dir.name + ".log")

    def start(self, *, is_ready: bool = True) -> None:
        """Start it, and wait until it accepts requests; the first time, make a key.

        Args:
            is_ready: wait also until everything behind it answers (embedded engine, tables).

        Raises:
            RuntimeError: it did not come up in time; holds the end of its log.
        """
        (self.data_dir / "server.json").unlink(missing_ok=True)
        port = str(self.port) if self.process is not None else "0"
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(*COMMAND, "serve", "--port", port, "--workers", str(self.workers)),
                    *("--data-dir", str(self.data_dir)),
                ],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._wait(lambda: self._answers("/health"), "accept requests")
        self._ports.update(self.facts())
        if is_ready:
            self._wait(self.is_ok, "report ok")
        if not self.key:
            self.key = self.command("keys", "create", "throw-away")["key"]

    _ports: dict[str, Any] = field(default_factory=dict)

    @property
    def port(self) -> int:
        """The port it took at its first start; kept for later ones, as clients know it."""
        return int(self._ports.get("port", 0))

    def facts(self) -> dict[str, Any]:
        """What the server says of itself: pid, ports, ClickHouse's address."""
        facts: dict[str, Any] = json.loads((self.data_dir / "server.json").read_text())
        return facts

    @property
    def url(self) -> str:
        """Where the SDK is pointed."""
        return f"http://127.0.0.1:{self.facts()['port']}"

    @property
    def clickhouse_url(self) -> str:
        """The HTTP interface of the engine behind it."""
        return str(self.facts()["clickhouse_url"])

    @property
    def clickhouse_password(self) -> str:
        """Of the user `charon`."""
        return (self.data_dir / "clickhouse.password").read_text().strip()

    def command(self, *arguments: str) -> dict[str, Any]:
        """Run another `charon` command on the same data, with --json.

        Raises:
            RuntimeError: it failed; holds what it said.
        """
        run = subprocess.run(
            [*COMMAND, *arguments, "--json", "--data-dir", str(self.data_dir)],
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode != 0:
            raise RuntimeError(f"charon {' '.join(arguments)}: {run.stdout}{run.stderr}")
        answer: dict[str, Any] = json.loads(run.stdout)
        return answer

    def sql(self, query: str) -> list[list[Any]]:
        """Rows of a query, asked of the engine itself."""
        request = urllib.request.Request(
            self.clickhouse_url,
            data=f"{query} FORMAT JSONCompact".encode(),
            headers={
                "X-ClickHouse-User": "charon",
                "X-ClickHouse-Key": self.clickhouse_password,
                "X-ClickHouse-Database": "charon",
            },
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            rows: list[list[Any]] = json.load(answer)["data"]
        return rows

    def count_rows(self, table: str) -> int:
        """Rows of a table, copies counted."""
        return int(self.sql(f"SELECT count() FROM {table}")[0][0])

    def is_ok(self) -> bool:
        """Whether it says that all is well, what is behind it included."""
        body = self._answers("/health/ready")
        return body is not None and json.loads(body)["status"] == "ok"

    def worker_pids(self) -> list[int]:
        """The workers, as the kernel lists the supervisor's children."""
        return [pid for pid in self._children() if "ingest.worker" in _command_line(pid)]

    def engine_pid(self) -> int:
        """The embedded ClickHouse."""
        (pid,) = (pid for pid in self._children() if "ingest.embedded" in _command_line(pid))
        return pid

    def other_pids(self) -> list[int]:
        """Supervisor and engine."""
        assert self.process is not None
        return [self.process.pid, self.engine_pid()]

    def stop(self, seconds_max: float = 60.0) -> int:
        """Ask it to end, as a service manager would; its exit status."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=seconds_max)

    def kill_supervisor(self) -> None:
        """SIGKILL to the supervisor alone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def kill_tree(self) -> None:
        """SIGKILL to everything, children first stopped so that none acts on another's death."""
        assert self.process is not None
        pids = [self.process.pid, *self._children()]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                _signal(pid, number)
        self.process.wait()
        for pid in pids[1:]:
            wait_for_end(pid)

    def _children(self) -> list[int]:
        assert self.process is not None
        pid = self.process.pid
        children: list[int] = []
        for listing in Path(f"/proc/{pid}/task").glob("*/children"):
            children += map(int, listing.read_text().split())
        return children

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not _is_setting(name)}
        # A throw-away server does not hold a developer's disk to a production server's reserve.
        chosen = {"embedded_port": "0", "disk_free_bytes_min": "268435456", **self.settings}
        own = {f"CHARON_{name.upper()}": value for name, value in chosen.items()}
        return kept | own | {"PYTHONPATH": str(TREE)}

    def _answers(self, path: str) -> bytes | None:
        try:
            with urllib.request.urlopen(self.url + path, timeout=5) as answer:
                body: bytes = answer.read()
                return body
        except (urllib.error.URLError, ConnectionError, TimeoutError, FileNotFoundError):
            return None

    def _wait(self, condition: Callable[[], object], what: str) -> None:
        assert self.process is not None
        deadline = time.monotonic() + START_SECONDS_MAX
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                end = self.log_path.read_text(errors="replace")[-4000:]
                raise RuntimeError(f"charon serve did not {what}; the end of its log:\n{end}")
            time.sleep(0.02)


@contextmanager
def throwaway_server(*, workers: int = 1, **settings: str) -> Iterator[Server]:
    """A started server whose data is deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="charon-") as directory:
        server = Server(Path(directory) / "data", settings, workers)
        try:
            server.start()
            yield server
        finally:
            if server.process is not None and server.process.poll() is None:
                server.stop()


def wait_for_end(pid: int, seconds_max: float = 15.0) -> None:
    """Wait until no process of that id runs any more (zombies count as ended).

    Raises:
        TimeoutError: it still runs.
    """
    deadline = time.monotonic() + seconds_max
    while _is_running(pid):
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} still runs: {_command_line(pid)}")
        time.sleep(0.02)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _is_setting(name: str) -> bool:
    return name.startswith(("CHARON_", "CLICKHOUSE_", "DATABASE_"))
