"""The run API as a client meets it: the real application over a real catalogue, on a socket."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from catalog import Catalog, sqlite_url
from ingest import appkeys
from ingest.admission import Admission
from ingest.api_runs import run_routes
from ingest.app import make_app
from ingest.auth import Authenticator
from ingest.health import Health
from ingest.heartbeats import HeartbeatBoard
from ingest.metrics import WorkerMetrics
from ingest.runs_directory import RunsDirectory
from ingest.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@dataclass
class Clock:
    """The catalogue's; stands until it is moved."""

    now_ms: int = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


@dataclass
class Api:
    """A client with a key of the organisation Acme, and what stands behind the server."""

    client: TestClient
    catalog: Catalog
    clock: Clock
    key: str
    tenant: str
    other_key: str

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = None,
        data: Any = None,
        more: dict[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        headers = {"Authorization": f"Bearer {self.key if key is None else key}"}
        if body is not None:
            data = json.dumps(body).encode()  # as the SDK writes it: bare NaN, escapes
        if data is not None and len(data) > 2**20:
            data = io.BytesIO(data)
        url = self.client.make_url("/").join(URL(path, encoded=True))
        if path.startswith("//"):  # which would name a host
            url = self.client.make_url("/").with_path(path, encoded=True)
        async with self.client.session.request(
            method, url, data=data, headers=headers | (more or {})
        ) as response:
            return response.status, json.loads(await response.read())

    async def post(self, path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
        """A POST with JSON."""
        return await self.call("POST", path, body, **more)

    async def create(self, **given: Any) -> dict[str, Any]:
        """A run's create answer, from a body as the SDK sends it."""
        body = {
            "runName": "basic",
            "projectName": "wirelab",
            "externalId": None,
            "config": '{"lr": 0.1}',
            "loggerSettings": '{"mode": "perf"}',
            "systemMetadata": "{}",
            "tags": None,
            "createdAt": None,
            "updatedAt": None,
        } | given
        status, answer = await self.post("/api/runs/create", body)
        assert status == 200, answer
        return answer

    async def run(self, run_id: int):
        """The run as it is stored."""
        return await self.catalog.runs.find(self.tenant, run_id)


@asynccontextmanager
async def running_api(
    tmp_path: Path, *, database: str | None = None, **settings: Any
) -> AsyncIterator[Api]:
    """A server of the run API, and a client of it; on SQLite, or in an empty database."""
    clock = Clock()
    metrics = WorkerMetrics()
    database = database or sqlite_url(tmp_path / "catalog.sqlite")
    catalog = await Catalog.open(database, clock=clock)
    await catalog.upgrade()
    organisation = await catalog.organisations.create("Acme")
    key = await catalog.keys.create("sdk", organisation.id)
    other = await catalog.organisations.create("Other")
    other_key = await catalog.keys.create("sdk", other.id)
    options = Settings(data_dir=tmp_path, **settings)

    async def probe() -> None: ...

    def unused() -> Any:
        raise AssertionError("the run API asks nothing of the buffer")

    app = make_app(more_routes=run_routes())
    app[appkeys.SETTINGS] = options
    app[appkeys.CATALOG] = catalog
    app[appkeys.METRICS] = metrics
    runs = app[appkeys.RUNS] = RunsDirectory(catalog.runs, metrics)
    board = app[appkeys.HEARTBEATS] = HeartbeatBoard(
        catalog.heartbeats, catalog.triggers.carry_out, runs.take_active, metrics, wall_ms=clock
    )
    app[appkeys.AUTH] = Authenticator(catalog.keys, metrics)
    app[appkeys.ADMISSION] = Admission(
        inflight_bytes_max=options.inflight_bytes_max, body_bytes_max=options.body_bytes_max
    )
    app[appkeys.HEALTH] = Health(
        statistics=unused, probe_clickhouse=probe, probe_catalogue=probe, metrics=metrics
    )
    server = TestServer(app)
    await server.start_server(auto_decompress=False)
    beating = asyncio.create_task(board.run())
    async with TestClient(server) as client:
        yield Api(client, catalog, clock, key.secret, organisation.id, other_key.secret)
    beating.cancel()
    await asyncio.wait([beating])
    await catalog.close()
