"""One worker process: `python -m ingest.worker`, started by the supervisor.

It serves as soon as its log is recovered, whether or not ClickHouse and the catalogue are there. It
stops on SIGTERM, SIGINT or the supervisor's end, in this order, each step bounded in time and none
skipped for a failing one:

1. readiness says 503; answers close their connections; service goes on for `drain_delay_seconds`
2. no new connections; what is in flight is answered
3. the last group commit, a flush within `grace_seconds`, the checkpoint, the shard's release
4. the last numbers are written; the catalogue and ClickHouse connections are closed
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import sys
from typing import TYPE_CHECKING

import structlog
import uvloop
from aiohttp import http_parser, web

from ingest import logs
from ingest.connection import ConnectionFactory, ConnectionLimits
from ingest.lifeline import Lifeline
from ingest.memory import keep_memory
from ingest.parts import Parts, WorkerConfig, build

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from buffer.errors import Broken

BACKLOG = 1_024
DESCRIPTORS_KEPT = 256
"""For the log's files, ClickHouse, the catalogue; the rest of the limit is for connections."""
CONNECTIONS_MAX = 16_384
ANSWER_SECONDS_MAX = 10.0
"""For requests in flight at the end; those held for room are let go at once."""
STEP_SECONDS_MAX = 5.0
ORPHAN_GRACE_SECONDS = 5.0
"""Without a supervisor nobody waits for the flush: the log keeps the rows."""
RESTART_SECONDS = 1.0
COLLECTOR_THRESHOLDS = (10_000, 20, 20)
"""Of Python's three generations; 700, 10 and 10 by default."""
SWITCH_SECONDS = 0.0002
"""After so long a thread that computes (a block is built) lets the event loop have its turn.

The default of 5 ms is waited for at each wake-up, so several times a request: while blocks were
built without a pause, P95 of a request's three wake-ups was 20 ms, and is 8 with this, at the same
rows a second.
"""

log = structlog.get_logger()


class Worker:
    """A worker from its configuration to its end."""

    def __init__(self, config: WorkerConfig, lifeline: Lifeline) -> None:
        self._config = config
        self._lifeline = lifeline
        self._stop = asyncio.Event()
        self._is_orphan = False
        self._exit_code = 0

    async def run(self) -> int:
        """Serve until told to stop; the exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        self._lifeline.when_orphaned(self._orphaned)
        async with asyncio.TaskGroup() as group:
            beat = group.create_task(self._lifeline.beat(), name="beat")
            parts = await build(self._config, on_broken=self._broken)
            await asyncio.to_thread(parts.status.take_over)
            _spare_the_collector()
            tasks = [
                group.create_task(_for_ever(name, run), name=name)
                for name, run in parts.tasks.items()
            ]
            watch = group.create_task(self._watch(parts), name="watch")
            await self._serve(parts)
            for task in (*tasks, watch, beat):
                task.cancel()
        return self._exit_code

    async def _serve(self, parts: Parts) -> None:
        settings = self._config.settings
        runner = web.AppRunner(parts.app, access_log=None, shutdown_timeout=STEP_SECONDS_MAX)
        await runner.setup()
        assert runner.server is not None
        factory = ConnectionFactory(
            runner.server,
            limits=ConnectionLimits(
                header_seconds_max=settings.header_seconds_max,
                idle_seconds_max=settings.idle_seconds_max,
                connections_max=_raise_descriptor_limit(),
            ),
            metrics=parts.metrics,
            fast=parts.fast,
        )
        parts.status.before_each(
            lambda: parts.metrics.gauge("connections", factory.connection_count)
        )
        listener = await asyncio.get_running_loop().create_server(
            factory, settings.host, settings.port, reuse_port=True, backlog=BACKLOG
        )
        port = listener.sockets[0].getsockname()[1]
        self._lifeline.ready(port=port)
        log.info("worker_ready", port=port, pid=os.getpid())
        await self._stop.wait()
        log.info("worker_stopping", is_orphan=self._is_orphan)
        await self._shut_down(parts, runner, listener, factory)
        log.info("worker_stopped")

    async def _shut_down(
        self,
        parts: Parts,
        runner: web.AppRunner,
        listener: asyncio.AbstractServer,
        factory: ConnectionFactory,
    ) -> None:
        settings = self._config.settings
        grace = settings.grace_seconds
        parts.health.is_draining = True
        await _step("say_so", parts.status.write(), STEP_SECONDS_MAX)
        if self._is_orphan:
            grace = min(grace, ORPHAN_GRACE_SECONDS)
        else:
            await asyncio.sleep(settings.drain_delay_seconds)
        listener.close()
        seconds = ANSWER_SECONDS_MAX + STEP_SECONDS_MAX
        await _step("answer", factory.drain(ANSWER_SECONDS_MAX), seconds)
        await _step("disconnect", runner.cleanup(), seconds)
        if not await _step("flush", parts.buffer.close(grace), grace + STEP_SECONDS_MAX):
            parts.buffer.terminate()
        await _step("last_numbers", parts.status.write(), STEP_SECONDS_MAX)
        await _step("close_reader", parts.reader.close(), STEP_SECONDS_MAX)
        await _step("close_sink", parts.sink.close(), STEP_SECONDS_MAX)
        await _step("heartbeats", parts.heartbeats.close(), STEP_SECONDS_MAX)
        await _step("last_use_of_keys", parts.auth.write_last_used(), STEP_SECONDS_MAX)
        await _step("close_catalogue", parts.catalog.close(), STEP_SECONDS_MAX)
        if parts.pluto is not None:
            await _step("close_keys", parts.pluto.close(), STEP_SECONDS_MAX)

    def _orphaned(self) -> None:
        self._is_orphan = True
        self._stop.set()

    async def _watch(self, parts: Parts) -> None:
        self._broken(await parts.buffer.broken())

    def _broken(self, error: Broken) -> None:
        """An invariant does not hold: the supervisor starts another, which recovers from disk."""
        log.critical("worker_broken", error=str(error))
        self._exit_code = 1
        self._stop.set()


async def _for_ever(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """Run it again when it raises: a defect in one of them must not end the worker."""
    while True:
        try:
            await run()
        except Exception:
            log.exception("task_died", task=name)
        await asyncio.sleep(RESTART_SECONDS)


async def _step(name: str, work: Awaitable[object], seconds_max: float) -> bool:
    """One step of stopping: its failure does not skip the next. Whether it ended well, in time."""
    try:
        async with asyncio.timeout(seconds_max):
            await work
    except Exception:
        log.exception("stopping_step_failed", step=name)
        return False
    return True


def _spare_the_collector() -> None:
    """Let the collector of cycles look at what is new alone, and less often.

    What a worker is made of (modules, routes, the catalogue's tables) stays for good: looking at it
    again and again was a pause of 70 ms each time. A request leaves no cycles behind.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)


def _raise_descriptor_limit() -> int:
    """As many descriptors as allowed (the usual soft limit is 1,024); connections to be taken."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS_MAX + DESCRIPTORS_KEPT
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return max(min(CONNECTIONS_MAX, soft - DESCRIPTORS_KEPT), soft // 2)


def main() -> None:
    """The process's entry."""
    keep_memory()
    lifeline = Lifeline.take()
    config = WorkerConfig.from_json(lifeline.config)
    lifeline.config.clear()  # the secrets are in the settings, where no repr shows them
    settings = config.settings
    logs.set_up(settings.log_level, settings.log_format, worker=config.slot)
    if http_parser.HttpRequestParser is http_parser.HttpRequestParserPy:
        # The parser in Python has a history of taking conflicting framing (request smuggling).
        log.warning("http_parser_in_python", advice="install aiohttp with its compiled parser")
    sys.setswitchinterval(SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(Worker(config, lifeline).run()))


if __name__ == "__main__":
    main()
