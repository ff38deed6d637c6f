"""What `deploy/compose.yaml` describes, as processes of this machine: see `Cluster`."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from loadtest.throwaway import COMMAND, TREE, Server
from tests.chaos.house import drained, get, pending
from tests.chaos.load import eventually
from tests.cluster.nginx import Nginx
from tests.postgres import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

USER = "replicas"
KEY_FAILURES_MAX = 10


class Engine:
    """`charon clickhouse`, whose password is in its environment alone."""

    def __init__(self, directory: Path) -> None:
        self.password = secrets.token_urlsafe(16)
        self.url = ""
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait for its ready line; on the port that it had, from the second on."""
        port = self.url.rpartition(":")[2] or "0"
        log_path = self._directory.with_suffix(".log")
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*COMMAND, "clickhouse", "--json", "--port", port, "--data-dir", self._directory],
                env=environment(clickhouse_user=USER, clickhouse_password=self.password),
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, log_path.read_text()
        self.url = json.loads(line)["url"]

    def stop(self) -> None:
        """SIGTERM; it ends well."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.communicate(timeout=30)
            assert self._process.returncode == 0
            self._process = None


class Cluster:
    """nginx, replicas with logs of their own, one Postgres, one ClickHouse. Made by `running`."""

    def __init__(
        self, directory: Path, engine: Engine, postgres: PostgresServer, database_url: str
    ) -> None:
        self._directory = directory
        self.engine = engine
        self.postgres = postgres
        self._settings = {
            "clickhouse_url": engine.url,
            "clickhouse_user": USER,
            "clickhouse_password": engine.password,
            "database_url": database_url,
            "batch_age_seconds_max": "0.2",
            "trusted_proxies": "127.0.0.1",
            "key_failures_per_minute_max": str(KEY_FAILURES_MAX),
        }
        self.nginx = Nginx()
        self.replicas: dict[str, Server] = {}
        self.key = ""

    @classmethod
    @contextmanager
    def running(
        cls, directory: Path, *, replicas: int, workers: int, drain_delay_seconds: float
    ) -> Iterator[Cluster]:
        """All of it, migrated, with a key; stopped at the end, and by force what does not stop."""
        with contextlib.ExitStack() as undo:
            postgres = undo.enter_context(PostgresServer.running())
            database_url = undo.enter_context(postgres.database())
            engine = Engine(directory / "clickhouse")
            engine.start()
            undo.callback(engine.stop)
            cluster = cls(directory, engine, postgres, database_url)
            cluster._settings["drain_delay_seconds"] = str(drain_delay_seconds)
            cluster.migrate()
            cluster.key = cluster.command("keys", "create", "cluster")["key"]
            undo.callback(cluster._end)
            undo.callback(cluster.nginx.close)
            for number in range(1, replicas + 1):
                cluster.add(f"charon-{number}", workers=workers)
            cluster.nginx.upstream(one.port for one in cluster.replicas.values())
            cluster.nginx.start()

            try:
                yield cluster
            except BaseException:
                for name, text in cluster.logs().items():
                    print(f"--- end of {name}\n{text}")
                raise

    def add(self, name: str, *, workers: int = 1, is_ready: bool = True) -> Server:
        """Start a replica that nginx does not know yet."""
        server = Server(self._directory / name, dict(self._settings), workers, key=self.key)
        self.replicas[name] = server
        server.start(is_ready=is_ready)
        return server

    def route(self, *names: str) -> None:
        """Let nginx know these replicas alone."""
        self.nginx.upstream(self.replicas[name].port for name in names)

    def remove(self, name: str) -> None:
        """Scale in: SIGTERM, see that its log is delivered, and delete its directory."""
        server = self.replicas[name]
        assert server.stop() == 0
        for shard in self.command("wal", "stat", data_dir=server.data_dir):
            assert not shard["is_held"], shard
            for table in shard["tables"].values():
                assert table["delivered_lsn"] >= shard["end_lsn"] or not shard["bytes"], shard
                assert table["pending"] is None, shard
        assert pending(server) == 0
        del self.replicas[name]
        shutil.rmtree(server.data_dir)

    def lose(self, name: str, heir: str) -> None:
        """A machine that is gone, and whose disk is not: another one's server gets its shards."""
        server = self.replicas.pop(name)
        server.kill_tree()
        assert pending(server) > 0, "the log of the lost one holds what nobody else has"
        shards = list((server.data_dir / "log").iterdir())
        for shard in shards:
            shard.rename(self.replicas[heir].data_dir / "log" / shard.name)
        shutil.rmtree(server.data_dir)

    def migrate(self) -> Any:
        """`charon migrate`."""
        return self.command("migrate")

    def command(self, *words: str, data_dir: Path | None = None) -> Any:
        """What another command answers with --json."""
        done = subprocess.run(
            [*COMMAND, *words, "--json", "--data-dir", data_dir or self._directory / "commands"],
            env=environment(**self._settings),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def ask(self, query: str) -> list[list]:
        """Rows of a query, asked of the engine itself."""
        request = urllib.request.Request(
            self.engine.url,
            data=f"{query} FORMAT JSONCompact".encode(),
            headers={
                "X-ClickHouse-User": USER,
                "X-ClickHouse-Key": self.engine.password,
                "X-ClickHouse-Database": "charon",
            },
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            rows: list[list] = json.load(answer)["data"]
        return rows

    def drained(self) -> None:
        """Wait until no replica's log holds what ClickHouse has not."""
        for server in self.replicas.values():
            drained(server)

    def logs(self) -> dict[str, str]:
        """The end of what each process has written."""
        files = sorted(self._directory.glob("*.log"))
        found = {path.name: path.read_text(errors="replace")[-4_000:] for path in files}
        return found | self.nginx.logs()

    def _end(self) -> None:
        for server in self.replicas.values():
            if server.process is not None and server.process.poll() is None:
                try:
                    server.stop()
                except subprocess.TimeoutExpired:
                    server.kill_tree()


def becomes(server: Server, status: int) -> None:
    """Wait for this answer of `/health/ready`."""
    eventually(lambda: get(server.url, "/health/ready")[0] == status, 30, f"readiness {status}")


def environment(**settings: str) -> dict[str, str]:
    """This process's, with these settings and no others."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("CHARON_", "CLICKHOUSE_", "DATABASE_"))
    }
    own = {f"CHARON_{name.upper()}": value for name, value in settings.items()}
    return kept | own | {"PYTHONPATH": str(TREE)}
