"""What handlers find in the application, under typed keys; `ingest.app` puts it there.

A handler takes a part with `request.app[BUFFER]`, and the type checker knows what it got. Values
are set once, before the server starts, and nothing replaces them while it runs.

A leaf: it imports nothing at run time, so that every module with routes may import it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from buffer.writeahead import WriteAheadBuffer
    from catalog import Catalog
    from ingest.admission import Admission
    from ingest.auth import Authenticator
    from ingest.health import Health
    from ingest.heartbeats import HeartbeatBoard
    from ingest.metrics import WorkerMetrics
    from ingest.reader import Reader
    from ingest.receiving import Receiver
    from ingest.refused_ring import RefusedRing
    from ingest.runs_directory import RunsDirectory
    from ingest.settings import Settings
    from ingest.status import StatusBoard

SETTINGS: web.AppKey[Settings] = web.AppKey("settings")
AUTH: web.AppKey[Authenticator] = web.AppKey("auth")
"""`await request.app[AUTH].authenticate(request.headers.get("Authorization"))` gives the tenant."""
BUFFER: web.AppKey[WriteAheadBuffer] = web.AppKey("buffer")
CATALOG: web.AppKey[Catalog] = web.AppKey("catalog")
HEARTBEATS: web.AppKey[HeartbeatBoard] = web.AppKey("heartbeats")
RUNS: web.AppKey[RunsDirectory] = web.AppKey("runs")
READER: web.AppKey[Reader] = web.AppKey("reader")
"""Bounded reads from ClickHouse; never on the path of an ingest request."""
ADMISSION: web.AppKey[Admission] = web.AppKey("admission")
RECEIVER: web.AppKey[Receiver] = web.AppKey("receiver")
REFUSED: web.AppKey[RefusedRing] = web.AppKey("refused")
METRICS: web.AppKey[WorkerMetrics] = web.AppKey("metrics")
HEALTH: web.AppKey[Health] = web.AppKey("health")
STATUS: web.AppKey[StatusBoard] = web.AppKey("status")
