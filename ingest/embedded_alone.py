"""The embedded engine without a server around it: what `charon clickhouse` runs.

The same engine and front as in `charon serve`, in the command's own process, so that a service
manager's SIGTERM reaches it and its end is the command's. Nothing restarts it: that is the service
manager's part. It holds the data directory's lock, as a server does, so that neither a second one
nor a `charon serve` with an engine of its own opens the same files.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import structlog
import uvloop

from ingest.data_dir import DataDirLock, engine_password, forget_server
from ingest.embedded import serve
from ingest.embedded_lock import PathLock, PathTaken
from ingest.layout import Layout
from ingest.ports import reserve
from ingest.programs import ENGINE_THREADS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PREDECESSOR_SECONDS_MAX: Final = 15.0
"""The engine of a killed `charon serve` ends within 10 s, and holds the path until then."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Place:
    """Where the engine listens, where it keeps its rows, and who may ask it."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    """Empty: the one in the data directory, made where there is none."""
    database: str
    data_dir: Path


class Alone:
    """What a supervised engine has in its lifeline, for one that nobody supervises."""

    def __init__(self, config: dict[str, Any], when_ready: Callable[[int], None]) -> None:
        self.config = config
        self._when_ready = when_ready

    def ready(self, *, port: int) -> None:
        """Say where it serves."""
        self._when_ready(port)

    async def beat(self) -> None:
        """Nobody listens."""

    def when_orphaned(self, shut_down: Callable[[], object]) -> None:
        """Nobody can die."""


def run(place: Place, *, as_json: bool) -> None:
    """Serve until SIGTERM or SIGINT, then let inserts finish and close the engine.

    Raises:
        DataDirUnusable, PathTaken: another process serves the directory.
        PortUnusable: the address cannot be listened on.
        EngineError: the engine cannot open its path.
    """
    layout = Layout(place.data_dir)
    lock = DataDirLock.take(layout)
    try:
        forget_server(layout)  # a note that a killed `charon serve` left would lead commands astray
        path_lock = _lock(layout.clickhouse, patiently=lock.was_killed)
        try:
            if place.port:
                reserve(place.host, place.port).close()  # for its advice; the engine binds it anew
            password = place.password or engine_password(layout)
            if not _is_loopback(place.host):
                log.warning("clickhouse_on_a_network", host=place.host, effect="no TLS")
            uvloop.run(serve(_ties(place, layout, password, as_json=as_json)))
        finally:
            path_lock.release()
    finally:
        lock.release()


def _ties(place: Place, layout: Layout, password: str, *, as_json: bool) -> Alone:
    password_file = None if place.password else str(layout.clickhouse_password)

    def say(port: int) -> None:
        host = f"[{place.host}]" if ":" in place.host else place.host
        facts = {
            "url": f"http://{host}:{port}",
            "pid": os.getpid(),
            "user": place.user,
            "password_file": password_file,
            "database": place.database,
            "path": str(layout.clickhouse),
        }
        print(json.dumps(facts) if as_json else _text(facts), flush=True)

    config = {
        "path": str(layout.clickhouse),
        "host": place.host,
        "port": place.port,
        "user": place.user,
        "password": password,
        "database": place.database,
        "threads": ENGINE_THREADS,
    }
    return Alone(config, say)


def _text(facts: dict[str, Any]) -> str:
    kept = facts["password_file"] or "CHARON_CLICKHOUSE_PASSWORD"
    return "\n".join(
        [
            f"ClickHouse serves on {facts['url']}",
            f"  user {facts['user']}, database {facts['database']}, password in {kept}",
            f"  rows in {facts['path']}",
            "  one engine on one machine: no cluster, no replication, no TLS",
            "  its tables are made by `charon migrate`",
        ]
    )


def _lock(path: Path, *, patiently: bool) -> PathLock:
    end = time.monotonic() + (PREDECESSOR_SECONDS_MAX if patiently else 0.0)
    while time.monotonic() < end:
        with contextlib.suppress(PathTaken):
            return PathLock(path)
        time.sleep(0.05)
    return PathLock(path)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
