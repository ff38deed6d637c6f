"""The ingest server in the test's own process: real sockets, dicts for a catalogue."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

from catalog.key_records import KeyRecord
from ingest import appkeys
from ingest.accounting import Accounting
from ingest.admission import Admission
from ingest.app import make_app
from ingest.auth import Authenticator
from ingest.connection import ConnectionFactory, ConnectionLimits
from ingest.decode import ShapeCache
from ingest.health import Health
from ingest.lane_beats import LaneBeats
from ingest.lane_receiving import LaneReceiver
from ingest.metrics import WorkerMetrics
from ingest.receiving import Receiver
from ingest.refused_ring import RefusedRing
from ingest.runs_directory import RunsDirectory
from ingest.settings import Settings
from ingest.status import StatusBoard
from ingest.storing import IdempotencyKeys, Storing
from tests.fakes.buffer import MemoryBuffer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable, Mapping
    from pathlib import Path

    from ingest.heartbeats import HeartbeatBoard

KEY = "mlps_abcdefghijklmnopqrstuvwx"
TENANT = "org-1"
LINE = b'{"time":1764423221123,"step":3,"data":{"loss":0.5}}\n'


class DictKeys:
    """A key store that can be slow or away."""

    def __init__(self) -> None:
        self.records: dict[str, KeyRecord] = {}
        self.failure: Exception | None = None
        self.used: list[dict[str, int]] = []
        self.gate: asyncio.Event | None = None
        self.calls = 0
        self.under_way = 0
        self.under_way_max = 0

    def add(self, key: str, tenant: str = TENANT, **fields: Any) -> None:
        record = KeyRecord(
            **{
                "id": f"id-{len(self.records)}",
                "tenant": tenant,
                "name": "test",
                "expires_at_ms": None,
                "revoked_at_ms": None,
                "lookup": lookup(key),
                **fields,
            }
        )
        self.records[lookup(key)] = record

    async def find(self, lookup: str) -> KeyRecord | None:
        return (await self.find_many([lookup])).get(lookup)

    async def recent(self, keys_max: int) -> list[KeyRecord]:
        if self.failure is not None:
            raise self.failure
        return [one for one in self.records.values() if not one.is_revoked][:keys_max]

    async def note_used(self, used_at_ms: Mapping[str, int]) -> None:
        if self.failure is not None:
            raise self.failure
        self.used.append(dict(used_at_ms))

    async def find_many(self, lookups: Collection[str]) -> dict[str, KeyRecord]:
        self.calls += 1
        self.under_way += 1
        self.under_way_max = max(self.under_way_max, self.under_way)
        try:
            if self.gate is not None:
                await self.gate.wait()
            if self.failure is not None:
                raise self.failure
            return {one: self.records[one] for one in lookups if one in self.records}
        finally:
            self.under_way -= 1


class DictRuns:
    """A run store that can be away."""

    def __init__(self) -> None:
        self.projects: dict[tuple[str, int], str] = {}
        self.failure: Exception | None = None
        self.calls = 0

    async def project_of(self, tenant: str, run_id: int) -> str | None:
        self.calls += 1
        if self.failure is not None:
            raise self.failure
        return self.projects.get((tenant, run_id))


def lookup(key: str) -> str:
    return key if key.startswith("mlpi_") else hashlib.sha256(key.encode()).hexdigest()


@dataclass
class Serving:
    """A server that runs, and a client for it."""

    app: web.Application
    port: int
    client: aiohttp.ClientSession
    buffer: Any
    keys: DictKeys
    runs: DictRuns
    metrics: WorkerMetrics
    health: Health
    status: StatusBoard
    admission: Admission
    factory: ConnectionFactory
    broken: list[Exception] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def post(
        self,
        path: str = "/ingest/metrics",
        body: Any = LINE,
        *,
        key: str | None = KEY,
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> Answer:
        sent = {"X-Run-Id": "7", "X-Project-Name": "demo", **(headers or {})}
        if key is not None:
            sent.setdefault("Authorization", f"Bearer {key}")
        sent = {name: value for name, value in sent.items() if value != ABSENT}
        async with self.client.post(self.url + path, data=body, headers=sent, **more) as response:
            return await answer_of(response)

    async def get(self, path: str) -> Answer:
        async with self.client.get(self.url + path) as response:
            return await answer_of(response)

    async def raw(self, sent: bytes, *, until: bytes = b"", seconds: float = 5.0) -> bytes:
        """Send bytes on a connection of their own; what comes back until it is closed."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(sent)
            async with asyncio.timeout(seconds):
                return await (reader.readuntil(until) if until else reader.read())
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def app_connections(self) -> list[Any]:
        """The server's own side of each connection."""
        return list(self.factory._server.connections)

    def app_auth(self) -> Authenticator:
        return self.app[appkeys.AUTH]

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.counters.get((name, tuple(labels.items())), 0.0)


ABSENT = "\0absent"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Any
    text: str
    json: Any


async def answer_of(response: aiohttp.ClientResponse) -> Answer:
    text = await response.text()
    is_json = response.content_type == "application/json"
    return Answer(
        response.status, response.headers, text, await response.json() if is_json else None
    )


async def answered() -> None:
    """A far side that always answers."""


@contextlib.asynccontextmanager
async def serving(
    directory: Path,
    *,
    body_bytes_max: int = 4 * 2**20,
    inflight_bytes_max: int = 16 * 2**20,
    wait_seconds_max: float = 5.0,
    body_seconds_max: float = 10.0,
    room_seconds_max: float = 5.0,
    held_requests_max: int = 1_000,
    refresh_seconds: float = 2.0,
    limits: ConnectionLimits | None = None,
    routes: Iterable[web.RouteDef] = (),
    reader: Any = None,
    buffer: Any = None,
    fast_lane: bool = True,
    heartbeats: HeartbeatBoard | None = None,
) -> AsyncIterator[Serving]:
    metrics, keys, runs = WorkerMetrics(), DictKeys(), DictRuns()
    buffer = MemoryBuffer() if buffer is None else buffer
    keys.add(KEY)
    auth = Authenticator(keys, metrics, refresh_seconds=refresh_seconds)
    admission = Admission(
        inflight_bytes_max=inflight_bytes_max,
        body_bytes_max=body_bytes_max,
        held_requests_max=held_requests_max,
        wait_seconds_max=wait_seconds_max,
    )
    refused = RefusedRing(2**20)
    health = Health(
        statistics=buffer.statistics,
        probe_clickhouse=answered,
        probe_catalogue=answered,
        metrics=metrics,
        refused=refused.statistics,
    )
    status = StatusBoard(directory / "status", slot=0, workers=1, metrics=metrics, health=health)
    status.take_over()
    directory_of_runs = RunsDirectory(runs, metrics)
    broken: list[Exception] = []
    app = make_app(more_routes=routes, on_broken=broken.append)
    app[appkeys.AUTH] = auth
    app[appkeys.METRICS] = metrics
    app[appkeys.REFUSED] = refused
    app[appkeys.HEALTH] = health
    app[appkeys.STATUS] = status
    app[appkeys.RUNS] = directory_of_runs
    app[appkeys.ADMISSION] = admission
    app[appkeys.READER] = reader
    if heartbeats is not None:
        app[appkeys.HEARTBEATS] = heartbeats
        app[appkeys.SETTINGS] = Settings(data_dir=directory)
    accounting, shapes = Accounting(metrics, refused), ShapeCache()
    storing = Storing(
        buffer,
        admission,
        room_seconds_max=room_seconds_max,
        is_stopping=lambda: health.is_draining,
    )
    app[appkeys.RECEIVER] = Receiver(
        auth=auth,
        runs=directory_of_runs,
        admission=admission,
        storing=storing,
        keys=IdempotencyKeys(seconds=600),
        shapes=shapes,
        accounting=accounting,
        body_bytes_max=body_bytes_max,
        body_seconds_max=body_seconds_max,
    )
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    factory = ConnectionFactory(
        runner.server,
        limits=limits
        or ConnectionLimits(header_seconds_max=10, idle_seconds_max=30, connections_max=1_000),
        metrics=metrics,
        fast=None
        if not fast_lane
        else LaneReceiver(
            auth=auth,
            runs=directory_of_runs,
            admission=admission,
            storing=storing,
            shapes=shapes,
            accounting=accounting,
            metrics=metrics,
            is_draining=lambda: health.is_draining,
            body_seconds_max=body_seconds_max,
            beats=None
            if heartbeats is None
            else LaneBeats(
                auth=auth,
                heartbeats=heartbeats,
                metrics=metrics,
                is_draining=lambda: health.is_draining,
            ),
        ),
    )
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(factory, "127.0.0.1", 0, backlog=1_024)
    port = listener.sockets[0].getsockname()[1]
    client = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=30)
    )
    try:
        yield Serving(
            app,
            port,
            client,
            buffer,
            keys,
            runs,
            metrics,
            health,
            status,
            admission,
            factory,
            broken,
        )
    finally:
        await client.close()
        listener.close()
        await runner.cleanup()


def in_the_past_ms() -> int:
    return time.time_ns() // 1_000_000 - 60_000
