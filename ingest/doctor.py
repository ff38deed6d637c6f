"""Looks at all that a server stands on, and says what to do about what is not as it should be."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import statistics
import tempfile
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from ingest.auth_notices import notices_url
from ingest.cli_access import NotThere, catalogue, catalogue_url, clickhouse, layout_of
from ingest.clickhouse_query import ClickHouseClient, QueryFailed
from ingest.data_dir import holder, noted_server
from ingest.diagnosis import ERROR, NOTE, OK, WARNING, Diagnosis
from ingest.doctor_endpoints import examine_endpoints
from ingest.doctor_pluto import examine_pluto
from ingest.filesystems import kind_of, trouble_of
from ingest.interpreter import COST, REMEDY, describe, is_optimised
from ingest.settings import SettingsError, load_settings, unknown_variables

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from ingest.settings import Settings

SYNC_TRIES = 11
SYNC_BYTES = 200_000
"""A usual group commit."""
SYNC_SECONDS_WARNING = 0.02
SKEW_SECONDS_WARNING = 5.0
READY_SECONDS_MAX = 5.0
CLICKHOUSE_VERSION_MIN = (24, 8)
"""What comes before lacks settings that exactly-once delivery is sent with."""


async def examine(load: Callable[[], Settings] = load_settings) -> AsyncIterator[Diagnosis]:
    """Look at everything, and tell each result when it is there."""
    for name in unknown_variables(os.environ):
        yield Diagnosis(
            "settings", WARNING, f"{name} is no setting", "see docs/configuration.md for the names"
        )
    try:
        settings = load()
    except SettingsError as error:
        yield Diagnosis("settings", ERROR, str(error), "correct it; nothing else can be looked at")
        return
    yield Diagnosis("settings", OK, "can be used")
    yield _python()
    for diagnosis in _disk(settings):
        yield diagnosis
    yield _server(settings)
    async for diagnosis in _clickhouse(settings):
        yield diagnosis
    if settings.role == "ingest":
        async for diagnosis in examine_pluto(settings):
            yield diagnosis
    else:
        yield await _catalogue(settings)
        if (url := notices_url(settings)) is not None:
            yield await _notices(settings, url)


def _python() -> Diagnosis:
    if is_optimised():
        return Diagnosis("Python", OK, describe())
    return Diagnosis("Python", NOTE, f"{describe()}: {COST}", REMEDY)


def _disk(settings: Settings) -> Iterator[Diagnosis]:
    root = settings.data_dir.absolute()
    place = next(parent for parent in (root, *root.parents) if parent.exists())
    if not place.is_dir():
        yield Diagnosis("disk", ERROR, f"{place} is a file", "choose another with --data-dir")
        return
    if not os.access(place, os.W_OK | os.X_OK):
        yield Diagnosis(
            "disk", ERROR, f"{place} cannot be written by this user", "change its owner or rights"
        )
        return
    if place != root:
        yield Diagnosis("disk", NOTE, f"{root} does not exist yet", "the first start makes it")
    trouble = trouble_of(place)
    if trouble is not None:
        yield Diagnosis("disk", WARNING, f"{root}: {trouble}", "choose another with --data-dir")
    free, least = shutil.disk_usage(place).free, settings.disk_free_bytes_min
    room = f"{_size(free)} free on {kind_of(place) or 'an unknown file system'}"
    if free < least:
        yield Diagnosis(
            "disk",
            ERROR,
            f"{_size(free)} free, less than disk_free_bytes_min ({_size(least)}): "
            "requests are refused",
            "make room, or lower disk_free_bytes_min",
        )
    elif free < least + settings.log_bytes_max:
        yield Diagnosis(
            "disk",
            NOTE,
            f"{room}; the log may take {_size(settings.log_bytes_max)} above the {_size(least)} "
            "that stay free",
            "in a long outage of ClickHouse the disk, not log_bytes_max, will be the limit",
        )
    else:
        yield Diagnosis("disk", OK, room)
    yield _sync(place)


def _sync(place: Path) -> Diagnosis:
    try:
        median, worst = _sync_seconds(place)
    except OSError as error:
        return Diagnosis("disk", ERROR, f"a sync failed: {error.strerror}", "see the kernel's log")
    found = (
        f"sync of {SYNC_BYTES // 1000} kB: median {median * 1e3:.1f} ms, {worst * 1e3:.1f} at most"
    )
    if median > SYNC_SECONDS_WARNING:
        return Diagnosis(
            "disk",
            WARNING,
            found,
            "every answer waits for a sync: use a faster disk (an SSD takes about 1 ms)",
        )
    return Diagnosis("disk", OK, found)


def _sync_seconds(place: Path) -> tuple[float, float]:
    block, taken = os.urandom(SYNC_BYTES), []
    with tempfile.TemporaryFile(dir=place, buffering=0) as file:
        for _ in range(SYNC_TRIES):
            file.write(block)
            begun = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - begun)
    return statistics.median(taken), max(taken)


def _server(settings: Settings) -> Diagnosis:
    layout = layout_of(settings)
    pid, note = holder(layout), noted_server(layout)
    if pid is None:
        return Diagnosis("server", NOTE, "does not run on this data directory", "charon serve")
    if note is None:
        return Diagnosis("server", NOTE, f"pid {pid} is starting", "look again in a moment")
    status, said = _readiness(str(note["host"]), int(note["port"]))
    found = f"pid {pid} on {note['host']}, port {note['port']}: {said}"
    if status != http.client.OK:
        return Diagnosis("server", ERROR, found, "its log says why")
    if said != "ok":
        return Diagnosis(
            "server", WARNING, found, "rows are taken and wait in the log; see /health/ready"
        )
    return Diagnosis("server", OK, found)


def _readiness(host: str, port: int) -> tuple[int, str]:
    """The status of /health/ready, and the word in it."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared
    connection = http.client.HTTPConnection(host, port, timeout=READY_SECONDS_MAX)
    try:
        connection.request("GET", "/health/ready")
        answer = connection.getresponse()
        body = json.loads(answer.read(1 << 20))
        return answer.status, str(body.get("status", answer.reason))
    except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
        return 0, f"does not answer ({error})"
    finally:
        connection.close()


async def _clickhouse(settings: Settings) -> AsyncIterator[Diagnosis]:
    from schema import migrations  # noqa: PLC0415 - what follows is needed only with a ClickHouse

    try:
        client = clickhouse(settings)
    except NotThere as error:
        state = NOTE if holder(layout_of(settings)) is None else WARNING
        yield Diagnosis("ClickHouse", state, "was not looked at", str(error))
        return
    try:
        bare = replace(client, database=None)
        begun = time.time_ns()
        ((version, server_ns),) = await bare.run(
            "SELECT version(), toUnixTimestamp64Nano(now64(9))"
        )
        ended = time.time_ns()
        yield _version(str(version), client)
        yield _skew(int(str(server_ns)), begun, ended)
        findings = await migrations.check_tables(bare.run, settings.clickhouse_database)
    except QueryFailed as error:
        yield Diagnosis("ClickHouse", ERROR, str(error), "rows wait in the log until it answers")
        return
    for finding in findings:
        state = finding.severity.value
        yield Diagnosis("ClickHouse", state, f"{finding.table}: {finding.problem}", finding.advice)
    if not findings:
        yield Diagnosis(
            "ClickHouse", OK, f"tables in {settings.clickhouse_database} are as they should be"
        )
    if settings.clickhouse_cluster is not None:
        yield await _quorum(bare)
    async for diagnosis in examine_endpoints(bare, settings):
        yield diagnosis


def _version(version: str, client: ClickHouseClient) -> Diagnosis:
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers < CLICKHOUSE_VERSION_MIN:
        least = ".".join(map(str, CLICKHOUSE_VERSION_MIN))
        return Diagnosis("ClickHouse", WARNING, f"version {version}", f"use {least} or newer")
    return Diagnosis("ClickHouse", OK, f"version {version} at {client.url}")


def _skew(server_ns: int, begun_ns: int, ended_ns: int) -> Diagnosis:
    early, late = begun_ns - server_ns, server_ns - ended_ns
    skew = max(early, late, 0) / 1e9
    if skew > SKEW_SECONDS_WARNING:
        return Diagnosis(
            "ClickHouse",
            WARNING,
            f"its clock differs from ours by {skew:.1f} s",
            "set both by NTP: a TTL and `now()` in queries go by the server's clock",
        )
    return Diagnosis("ClickHouse", OK, f"its clock differs from ours by {skew:.3f} s at most")


async def _quorum(client: ClickHouseClient) -> Diagnosis:
    rows = await client.run("SELECT value FROM system.settings WHERE name = 'insert_quorum'")
    quorum = str(rows[0][0]) if rows else "0"
    if quorum in {"0", "1"}:
        return Diagnosis(
            "ClickHouse",
            NOTE,
            f"insert_quorum is {quorum}: an insert is confirmed by one replica",
            "set it in this user's profile where the loss of one replica must lose nothing",
        )
    return Diagnosis("ClickHouse", OK, f"insert_quorum is {quorum}")


async def _catalogue(settings: Settings) -> Diagnosis:
    from catalog import CatalogFailure  # noqa: PLC0415 - SQLAlchemy, 0.3 s
    from catalog.errors import NewerDatabase  # noqa: PLC0415

    kind = "SQLite" if settings.database_url is None else "Postgres"
    try:
        async with catalogue(settings, make=False) as catalog:
            organisations = await catalog.organisations.list()
            keys = await catalog.keys.list()
            await catalog.see_release()
    except NotThere as error:
        if settings.database_url is not None:
            return Diagnosis("catalogue", ERROR, f"{kind} cannot be used", str(error))
        return Diagnosis("catalogue", NOTE, "does not exist yet", str(error))
    except NewerDatabase as error:
        return Diagnosis("catalogue", WARNING, f"{kind}, upgraded by a newer release", str(error))
    except (CatalogFailure, ValueError) as error:
        return Diagnosis(
            "catalogue",
            ERROR,
            f"{kind} cannot be used: {error}",
            "see that it runs; `charon migrate` makes and updates its tables",
        )
    now_ms = time.time_ns() // 1_000_000
    valid = [key for key in keys if not key.is_revoked and not key.is_expired(now_ms)]
    found = (
        f"{kind}, {_count(len(organisations), 'organisation')}, {_count(len(valid), 'valid key')}"
    )
    if not valid:
        return Diagnosis("catalogue", WARNING, found, "make a key: charon keys create NAME")
    return Diagnosis("catalogue", OK, found)


async def _notices(settings: Settings, listening_url: str) -> Diagnosis:
    from catalog.keys_notices import is_heard  # noqa: PLC0415 - the driver of Postgres

    advice = (
        "a pooler may stand between: set database_direct_url to Postgres itself. Until then "
        "changes of keys take a second or two, and nothing else is lost"
    )
    try:
        if await is_heard(listening_url, catalogue_url(settings)):
            return Diagnosis("catalogue", OK, "changes of keys are heard at once")
    except OSError as error:
        found = f"changes of keys are not heard ({type(error).__name__})"
        away = "Postgres itself cannot be reached: see that it runs, and where database_direct_url"
        return Diagnosis("catalogue", WARNING, found, f"{away} points; or {advice}")
    return Diagnosis("catalogue", WARNING, "changes of keys are not heard", advice)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
