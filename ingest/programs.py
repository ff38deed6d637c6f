"""Which processes a server is made of, and what each is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ingest.data_dir import engine_password
from ingest.layout import ENGINE_USER
from ingest.ports import is_free, reserve
from ingest.processes import Program, python
from ingest.settings import reveal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ingest.layout import Layout
    from ingest.settings import Settings

ENGINE_HOST = "127.0.0.1"
"""Never elsewhere: the engine is for this machine; what is to be shared is a ClickHouse server."""
ENGINE_THREADS = 6
"""Engine calls in parallel: 4 to 8 do well on two cores, one of them kept for inserts."""
ENGINE_STOP_SECONDS_MAX = 20.0
WORKER_STOP_MARGIN_SECONDS = 15.0
"""Beyond a worker's drain and grace periods: the last commit, the checkpoint, the clients."""


@dataclass(frozen=True, slots=True)
class Commands:
    """How each kind of child process is run; tests run others.

    Attributes:
        beat_seconds_max: after so many seconds without a heartbeat a child is killed.
    """

    worker: tuple[str, ...] = field(default_factory=lambda: python("ingest.worker"))
    engine: tuple[str, ...] = field(default_factory=lambda: python("ingest.embedded"))
    prepare: tuple[str, ...] = field(default_factory=lambda: python("ingest.prepare"))
    beat_seconds_max: float = 10.0


@dataclass(frozen=True, slots=True)
class ClickHousePlace:
    """Where ClickHouse answers over HTTP, and who we are there."""

    url: str
    user: str
    password: str = field(repr=False)

    @property
    def port(self) -> int | None:
        """The port in the URL."""
        return urlsplit(self.url).port


def place_clickhouse(settings: Settings, layout: Layout) -> ClickHousePlace:
    """The configured ClickHouse, or a port and password for the embedded engine.

    The port stays the same for the life of the server: workers are told once.
    """
    if settings.clickhouse_url is not None:
        password = settings.clickhouse_password.get_secret_value()
        return ClickHousePlace(settings.clickhouse_url, settings.clickhouse_user, password)
    port = settings.embedded_port
    if port == 0 or not is_free(ENGINE_HOST, port):
        free = reserve(ENGINE_HOST, 0)
        free.close()
        port = free.port
    return ClickHousePlace(f"http://{ENGINE_HOST}:{port}", ENGINE_USER, engine_password(layout))


def worker_program(
    commands: Commands, settings: Settings, slot: int, clickhouse: ClickHousePlace
) -> Program:
    """One worker; the settings hold the port that was really taken and an absolute data_dir."""

    def config() -> Mapping[str, Any]:
        return {
            "settings": reveal(settings),
            "slot": slot,
            "clickhouse_url": clickhouse.url,
            "clickhouse_user": clickhouse.user,
            "clickhouse_password": clickhouse.password,
            "data_dir": str(settings.data_dir),
        }

    patience = settings.drain_delay_seconds + settings.grace_seconds
    return Program(
        name=f"worker {slot}",
        command=commands.worker,
        config=config,
        stop_seconds_max=patience + WORKER_STOP_MARGIN_SECONDS,
        beat_seconds_max=commands.beat_seconds_max,
    )


def engine_program(
    commands: Commands, settings: Settings, layout: Layout, clickhouse: ClickHousePlace
) -> Program:
    """The embedded ClickHouse."""

    def config() -> Mapping[str, Any]:
        return {
            "path": str(layout.clickhouse),
            "host": ENGINE_HOST,
            "port": clickhouse.port,
            "user": clickhouse.user,
            "password": clickhouse.password,
            "database": settings.clickhouse_database,
            "threads": ENGINE_THREADS,
            "log_level": settings.log_level,
            "log_format": settings.log_format,
        }

    return Program(
        name="ClickHouse",
        command=commands.engine,
        config=config,
        stop_seconds_max=ENGINE_STOP_SECONDS_MAX,
        beat_seconds_max=commands.beat_seconds_max,
    )


def catalogue_task(settings: Settings, layout: Layout) -> Mapping[str, Any]:
    """For `ingest.prepare`: bring the catalogue up to date; a new embedded one gets a first key.

    In Postgres it gets none: several servers share it, and what starts them may keep what they
    print.
    """
    url = settings.database_direct_url or settings.database_url
    return {
        "task": "catalogue",
        "url": layout.catalog_url
        if settings.database_url is None or url is None
        else url.get_secret_value(),
        "makes_key": settings.database_url is None,
    }


def table_task(settings: Settings, clickhouse: ClickHousePlace) -> Mapping[str, Any]:
    """For `ingest.prepare`: bring the embedded engine's tables up to date."""
    return {
        "task": "tables",
        "url": clickhouse.url,
        "user": clickhouse.user,
        "password": clickhouse.password,
        "database": settings.clickhouse_database,
        "retention_days": settings.retention_days,
    }
