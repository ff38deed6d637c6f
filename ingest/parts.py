"""What a worker is made of, put together from its configuration; and how each part is closed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from buffer.clickhouse import ClickHouseSink
from buffer.clickhouse_http import Endpoint
from buffer.clock import SystemClock
from buffer.fs import RealFileSystem
from buffer.options import BufferOptions
from buffer.roaming import RoamingSink
from buffer.writeahead import WriteAheadBuffer
from catalog import Catalog, Unavailable
from catalog.engine import Database
from ingest import appkeys
from ingest.accounting import Accounting
from ingest.admission import Admission
from ingest.api_runs import run_routes
from ingest.app import make_app
from ingest.auth import Authenticator
from ingest.auth_addresses import ClientAddresses
from ingest.auth_notices import KeyNotices, notices_url
from ingest.beside_pluto import NoRuns, absent_routes
from ingest.decode import ShapeCache
from ingest.health import Health
from ingest.heartbeats import NOTE_SECONDS, HeartbeatBoard
from ingest.lane_beats import LaneBeats
from ingest.lane_receiving import LaneReceiver
from ingest.layout import Layout
from ingest.metrics import WorkerMetrics
from ingest.reader import Reader
from ingest.reaper_parts import make_reaper
from ingest.receiving import Receiver
from ingest.refused_ring import BYTES_MAX, RefusedRing
from ingest.runs_directory import RunsDirectory
from ingest.settings import Settings
from ingest.status import StatusBoard
from ingest.storing import IdempotencyKeys, Storing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aiohttp import web

    from buffer.errors import Broken
    from buffer.sink import Sink
    from catalog.keys_pluto import PlutoKeys

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """What the supervisor sends a worker; its repr shows no secret."""

    settings: Settings
    slot: int
    layout: Layout
    endpoint: Endpoint

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> WorkerConfig:
        """Read what came through the pipe.

        Raises:
            KeyError, ValueError: the supervisor is of another release.
        """
        settings = Settings.model_validate(values["settings"])
        return cls(
            settings=settings,
            slot=int(values["slot"]),
            layout=Layout(Path(values["data_dir"])),
            endpoint=Endpoint(
                url=values["clickhouse_url"],
                database=settings.clickhouse_database,
                user=values["clickhouse_user"],
                password=values["clickhouse_password"],
                ca_file=settings.clickhouse_ca,
                timeout_seconds=settings.clickhouse_timeout_seconds,
                is_embedded=settings.is_embedded,
            ),
        )

    @property
    def catalog_url(self) -> str:
        """The catalogue's address; a secret where it holds a password."""
        url = self.settings.database_url
        return self.layout.catalog_url if url is None else url.get_secret_value()


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a running worker."""

    app: web.Application
    auth: Authenticator
    admission: Admission
    buffer: WriteAheadBuffer
    catalog: Catalog
    fast: LaneReceiver | None
    """Of plain ingest requests; None: aiohttp serves them too."""
    health: Health
    heartbeats: HeartbeatBoard
    metrics: WorkerMetrics
    pluto: PlutoKeys | None
    reader: Reader
    sink: Sink
    status: StatusBoard
    tasks: Mapping[str, Callable[[], Awaitable[None]]]
    """By name: what runs for as long as the worker does."""


def _sink(config: WorkerConfig, metrics: WorkerMetrics) -> Sink:
    """One endpoint, or several of a cluster as one."""
    first, urls = config.endpoint, config.settings.clickhouse_other_urls
    endpoints = [first, *(replace(first, url=url) for url in urls)]
    sinks = [ClickHouseSink(endpoint, clock=SystemClock()) for endpoint in endpoints]
    return RoamingSink(sinks, metrics=metrics) if urls else sinks[0]


async def build(config: WorkerConfig, *, on_broken: Callable[[Broken], None]) -> Parts:
    """Make every part and start the buffer. Neither ClickHouse nor the catalogue need be there.

    Raises:
        OSError, buffer.errors.BufferFailure: the log's directory cannot be used.
    """
    settings = config.settings
    metrics = WorkerMetrics()
    catalog = await _open_catalog(config.catalog_url)
    is_whole = settings.role == "all"
    pluto = None if is_whole else _pluto_keys(config.catalog_url)
    keys = pluto or catalog.keys
    sink = _sink(config, metrics)
    buffer = await WriteAheadBuffer.open(
        config.layout.log,
        buffer_options(settings),
        sink=sink,
        clock=SystemClock(),
        fs=RealFileSystem(),
        metrics=metrics,
    )
    await buffer.start()
    auth = Authenticator(
        keys,
        metrics,
        refresh_seconds=settings.auth_refresh_seconds,
        outage_seconds=settings.key_outage_seconds,
        failures_per_minute=settings.key_failures_per_minute_max,
        addresses=ClientAddresses(settings.trusted_proxies),
    )
    admission = Admission(
        inflight_bytes_max=settings.inflight_bytes_max,
        body_bytes_max=settings.body_bytes_max,
        held_requests_max=settings.room_requests_max,
    )
    reader = Reader(config.endpoint)
    refused = RefusedRing(BYTES_MAX // settings.workers)
    health = Health(
        statistics=buffer.statistics,
        probe_clickhouse=reader.probe,
        probe_catalogue=lambda: keys.find(""),
        refused=refused.statistics,
        metrics=metrics,
    )
    runs = RunsDirectory(catalog.runs if is_whole else NoRuns(), metrics)
    heartbeats = HeartbeatBoard(
        catalog.heartbeats,
        catalog.triggers.carry_out,
        runs.take_active,
        metrics,
        note_seconds=min(NOTE_SECONDS, settings.heartbeat_grace_seconds / 4),
    )
    more_routes = run_routes() if is_whole else absent_routes()
    app = make_app(more_routes=more_routes, on_broken=on_broken)
    status = StatusBoard(
        config.layout.status,
        slot=config.slot,
        workers=settings.workers,
        metrics=metrics,
        health=health,
    )
    status.before_each(lambda: _collect(metrics, health, admission))
    app[appkeys.SETTINGS] = settings
    app[appkeys.AUTH] = auth
    app[appkeys.BUFFER] = buffer
    app[appkeys.CATALOG] = catalog
    app[appkeys.RUNS] = runs
    app[appkeys.HEARTBEATS] = heartbeats
    app[appkeys.READER] = reader
    app[appkeys.ADMISSION] = admission
    app[appkeys.METRICS] = metrics
    app[appkeys.REFUSED] = refused
    app[appkeys.HEALTH] = health
    app[appkeys.STATUS] = status
    storing = Storing(
        buffer,
        admission,
        room_seconds_max=settings.room_seconds_max,
        is_stopping=lambda: health.is_draining,
    )
    shapes, accounting = ShapeCache(), Accounting(metrics, refused)
    app[appkeys.RECEIVER] = Receiver(
        auth=auth,
        runs=runs,
        admission=admission,
        storing=storing,
        keys=IdempotencyKeys(seconds=settings.repeat_seconds),
        shapes=shapes,
        accounting=accounting,
        body_bytes_max=settings.body_bytes_max,
        body_seconds_max=settings.body_seconds_max,
    )
    fast = LaneReceiver(
        auth=auth,
        runs=runs,
        admission=admission,
        storing=storing,
        shapes=shapes,
        accounting=accounting,
        metrics=metrics,
        is_draining=lambda: health.is_draining,
        body_seconds_max=settings.body_seconds_max,
        beats=LaneBeats(
            auth=auth,
            heartbeats=heartbeats,
            metrics=metrics,
            is_draining=lambda: health.is_draining,
        ),
    )
    tasks = {"auth": auth.run, "health": health.run, "status": status.run}
    if is_whole:
        tasks["heartbeats"] = heartbeats.run
        if config.slot == 0:  # of one server's workers one
            reaper = make_reaper(
                settings,
                catalog=catalog,
                reader=reader,
                heartbeats=heartbeats,
                metrics=metrics,
                status=status,
            )
            tasks["reaper"] = reaper.run
    if (listens_at := notices_url(settings)) is not None:
        tasks["key_notices"] = KeyNotices(listens_at, auth.changed).run
    return Parts(
        app=app,
        auth=auth,
        admission=admission,
        buffer=buffer,
        catalog=catalog,
        fast=fast if settings.fast_lane else None,
        health=health,
        heartbeats=heartbeats,
        metrics=metrics,
        pluto=pluto,
        reader=reader,
        sink=sink,
        status=status,
        tasks=tasks,
    )


def buffer_options(settings: Settings) -> BufferOptions:
    """The buffer's bounds, as set."""
    return BufferOptions(
        segment_bytes_max=settings.segment_bytes_max,
        log_bytes_max=settings.log_bytes_max,
        disk_free_bytes_min=settings.disk_free_bytes_min,
        batch_rows_max=settings.batch_rows_max,
        batch_bytes_max=settings.batch_bytes_max,
        batch_age_seconds_max=settings.batch_age_seconds_max,
        repeat_seconds=settings.repeat_seconds,
        quarantine_bytes_max=settings.quarantine_bytes_max,
    )


async def _open_catalog(url: str) -> Catalog:
    """The catalogue, in whatever state: rows wait for nothing that it knows."""
    try:
        return await Catalog.open(url)
    except Unavailable:
        log.warning("catalogue_unavailable")
        return Catalog(Database(url))


def _pluto_keys(url: str) -> PlutoKeys:
    from catalog.keys_pluto import PlutoKeys  # noqa: PLC0415 - its driver is for Postgres alone

    return PlutoKeys(url)


def _collect(metrics: WorkerMetrics, health: Health, admission: Admission) -> None:
    """Set the gauges that are read and not counted."""
    health.gauges()
    statistics = admission.statistics()
    metrics.gauge("inflight_bytes", statistics.inflight_bytes)
    metrics.gauge("waiting_requests", statistics.waiting_requests)
    metrics.gauge("held_requests", statistics.held_requests)
    with Path("/proc/self/statm").open("rb") as file:
        metrics.gauge("resident_bytes", int(file.read().split()[1]) * _PAGE_BYTES)


_PAGE_BYTES = 4096
