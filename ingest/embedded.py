"""The embedded ClickHouse: `python -m ingest.embedded`, started by the supervisor.

chDB in a process of its own, behind ClickHouse's HTTP interface on loopback. The rest of Charon
talks to it as to any ClickHouse, and so can any client. Configuration and heartbeat go through the
pipes of `ingest.lifeline`:

    {"path", "host", "port", "user", "password", "database", "threads"}   →   ready {"port"}

On SIGTERM or the supervisor's end: no new connections, SELECTs are killed, inserts finish, and the
engine is closed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog
import uvloop
from aiohttp import web

from ingest import logs
from ingest.embedded_engine import Engine
from ingest.embedded_errors import EngineError
from ingest.embedded_http import Front
from ingest.embedded_lock import PathLock, PathTaken
from ingest.embedded_request import Door
from ingest.lifeline import Lifeline

if TYPE_CHECKING:
    from collections.abc import Callable

FINISH_SECONDS_MAX: Final = 8.0
SWEEP_SECONDS: Final = 1.0
KEEPALIVE_SECONDS: Final = 75.0
"""Longer than a client's pool keeps a connection, so that it is the client who closes."""
NICE: Final = 5
"""Answers to clients go first: where cores are short, a thread of a worker gets three times the
share of one of the engine's. 5,000 requests/s on two cores, three runs each: P95 76 → 39 ms. At 10
it was 24, but beside two saturated workers delivery fell behind by a second in four; at 5 it keeps
up. Only ever raised: to lower it again takes a right that servers do not have."""

log = structlog.get_logger()


class Ties(Protocol):
    """What the engine is told, and whom it tells: the supervisor, or nobody (`embedded_alone`)."""

    config: dict[str, Any]

    def ready(self, *, port: int) -> None:
        """It serves on this port."""

    async def beat(self) -> None:
        """Beat until cancelled."""

    def when_orphaned(self, shut_down: Callable[[], object]) -> None:
        """Call `shut_down` when who started it is gone."""


async def serve(lifeline: Ties) -> None:
    """Runs engine and HTTP until told to stop."""
    config = lifeline.config
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    lifeline.when_orphaned(stop.set)
    beat = asyncio.create_task(lifeline.beat(), name="beat")
    engine = Engine(Path(config["path"]), database=config["database"], threads=config["threads"])
    try:
        await asyncio.to_thread(engine.start)
        front = Front(engine, Door(config["user"], config["password"]))
        await _serve_http(front, lifeline, stop)
    finally:
        beat.cancel()
        await asyncio.to_thread(engine.close)


async def _serve_http(front: Front, lifeline: Ties, stop: asyncio.Event) -> None:
    runner = web.AppRunner(
        front.app(),
        access_log=None,
        auto_decompress=False,
        handler_cancellation=True,
        keepalive_timeout=KEEPALIVE_SECONDS,
        shutdown_timeout=FINISH_SECONDS_MAX,
        max_line_size=1_100_000,  # queries in URLs
        max_field_size=65_536,
    )
    await runner.setup()
    site = web.TCPSite(runner, lifeline.config["host"], lifeline.config["port"])
    await site.start()
    sweeper = asyncio.create_task(_sweep(front), name="sessions")
    port = runner.addresses[0][1]
    lifeline.ready(port=port)
    log.info("clickhouse_ready", port=port)
    await stop.wait()
    sweeper.cancel()
    await site.stop()
    async with asyncio.timeout(FINISH_SECONDS_MAX):
        await front.finish()
    await runner.cleanup()
    log.info("clickhouse_stopped")


async def _sweep(front: Front) -> None:
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        front.close_idle_sessions()


def main() -> int:
    """The process, from its configuration to its exit status."""
    lifeline = Lifeline.take()
    config = lifeline.config
    logs.set_up(
        config.get("log_level", "info"), config.get("log_format", "console"), process="clickhouse"
    )
    path = Path(config["path"])
    with suppress(OSError):  # where it is forbidden, the engine serves as well as it can
        os.nice(NICE)  # before the engine's threads are made: each inherits it
    try:
        lock = PathLock(path)
    except PathTaken as error:
        log.error("clickhouse_path_taken", error=str(error))  # noqa: TRY400 - the message says all
        return 1
    try:
        uvloop.run(serve(lifeline))
    except (EngineError, OSError, ValueError) as error:
        log.error("clickhouse_failed", path=str(path), error=str(error))  # noqa: TRY400
        return 1
    finally:
        lock.release()
    return 0


if __name__ == "__main__":
    sys.exit(main())
