"""Where everything lies below the data directory.

```
charon-data/
  server.lock            held by the supervisor (flock); its contents are its pid
  server.json            what runs now, for the command line; no secrets
  catalog.sqlite         organisations, keys, projects, runs
  clickhouse/            the embedded engine's path
  clickhouse.password    0600, random, made at the first start; the user is `charon`
  log/<shard id>/        one write-ahead log: segments, checkpoint, lock, quarantine
  status/worker-<n>.json a worker's snapshot, replaced once a second
```
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

ENGINE_USER = "charon"
"""The one user of the embedded engine."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths below one data directory. Makes nothing: who owns a path makes it.

    Args:
        root: the data directory; absolute where processes share it.
    """

    root: Path

    @property
    def lock(self) -> Path:
        """Locked by the supervisor for as long as it lives."""
        return self.root / "server.lock"

    @property
    def server(self) -> Path:
        """JSON: pid, host, port, clickhouse_url, clickhouse_port, started_at."""
        return self.root / "server.json"

    @property
    def catalog(self) -> Path:
        """The embedded catalogue's file."""
        return self.root / "catalog.sqlite"

    @property
    def catalog_url(self) -> str:
        """The embedded catalogue's SQLAlchemy address."""
        return f"sqlite+aiosqlite:///{self.catalog}"

    @property
    def clickhouse(self) -> Path:
        """The embedded engine's directory."""
        return self.root / "clickhouse"

    @property
    def clickhouse_password(self) -> Path:
        """The embedded engine's password, readable by its owner alone."""
        return self.root / "clickhouse.password"

    @property
    def log(self) -> Path:
        """All shards."""
        return self.root / "log"

    @property
    def status(self) -> Path:
        """The workers' snapshots."""
        return self.root / "status"

    def worker_status(self, slot: int) -> Path:
        """The snapshot of the worker in this slot."""
        return self.status / f"worker-{slot}.json"
