"""A `charon serve` and what a test must know of it from outside."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

from buffer.fs import RealFileSystem
from buffer.inspection import end_of, look_at_all
from tests.chaos.load import eventually
from tests.engine_process import PASSWORD, USER, start_engine

if TYPE_CHECKING:
    from pathlib import Path

    from loadtest.throwaway import Server
    from tests.chaos.proxy import Proxy
    from tests.engine_process import EngineProcess

QUICK = {"batch_age_seconds_max": "0.05", "clickhouse_timeout_seconds": "1.5"}
"""A test waits for neither batches nor answers longer than it must."""

VIEW = "seen"
"""The target of the view that `make_view` makes."""


def engine_settings(url: str) -> dict[str, str]:
    """What a server is told of a ClickHouse that is not its own."""
    return {"clickhouse_url": url, "clickhouse_user": USER, "clickhouse_password": PASSWORD}


def ask(url: str, query: str, password: str = PASSWORD) -> list[list]:
    """Rows of a query, or nothing of a statement, asked of an engine past any proxy."""
    is_select = query.lstrip().upper().startswith(("SELECT", "WITH"))
    request = urllib.request.Request(
        url,
        data=(query + (" FORMAT JSONCompact" if is_select else "")).encode(),
        headers={
            "X-ClickHouse-User": USER,
            "X-ClickHouse-Key": password,
            "X-ClickHouse-Database": "charon",
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["data"] if is_select else []
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{query}: {error.read().decode()}") from None


@dataclass
class Backend:
    """An engine of the test's own, which lives and dies apart from any server."""

    path: Path
    engine: EngineProcess | None = None
    port: int = 0

    def start(self) -> Backend:
        """Start it, on the port that it had."""
        self.engine = start_engine(self.path, port=self.port)
        self.port = self.engine.port
        return self

    def kill(self) -> None:
        """kill -9."""
        self.engine.kill()

    def stop(self) -> None:
        """Orderly; nothing happens when it does not run."""
        if self.engine is not None and self.engine.process.poll() is None:
            self.engine.stop()

    def ask(self, query: str) -> list[list]:
        """Rows of a query."""
        return ask(f"http://127.0.0.1:{self.port}/", query)


@dataclass
class House:
    """A server, its ClickHouse, and the proxy between them."""

    server: Server
    backend: Backend
    proxy: Proxy

    def drained(self, seconds_max: float = 30.0) -> None:
        """Wait until nothing waits in the log."""
        drained(self.server, seconds_max)


def get(url: str, path: str) -> tuple[int, bytes]:
    """Status and body of a GET, whatever the status."""
    try:
        with urllib.request.urlopen(url + path, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def pending(server: Server) -> int:
    """Frames that some table has not got yet, over all shards: from the files, so never stale."""
    fs, total = RealFileSystem(), 0
    for look in look_at_all(fs, server.data_dir / "log"):
        if look.tables is None or not look.segments:
            continue
        behind = max(end_of(fs, look.segments[-1]) - look.delivered, 0)
        is_trying = any(table.pending is not None for table in look.tables.values())
        total += max(behind, int(is_trying))
    return total


def drained(server: Server, seconds_max: float = 30.0) -> None:
    """Wait until nothing waits in the log."""
    eventually(lambda: pending(server) == 0, seconds_max, "a log that is delivered")


def metric(server: Server, name: str) -> float:
    """The sum of a metric's values over all workers and labels."""
    _, body = get(server.url, "/metrics")
    return sum(
        float(line.rpartition(" ")[2])
        for line in body.decode().splitlines()
        if line.split("{")[0].split(" ")[0] == f"charon_{name}"
    )


def make_view(put) -> None:
    """A materialized view that copies each metric's row into a table that forgets no token.

    Args:
        put: runs a statement.
    """
    put(
        f"CREATE TABLE {VIEW} (runId String, logName String, step Float64, "
        "time DateTime64(3), value Float64) ENGINE = MergeTree ORDER BY tuple() "
        "SETTINGS non_replicated_deduplication_window = 10000"
    )
    put(
        f"CREATE MATERIALIZED VIEW {VIEW}_view TO {VIEW} AS SELECT toString(runId) AS runId, "
        "toString(logName) AS logName, step, time, value FROM mlop_metrics"
    )


def leftovers(directory: Path) -> list[str]:
    """Files that were begun and never given their names."""
    return [str(path) for path in directory.rglob("*") if path.name.endswith((".tmp", ".new"))]
