"""The ingest server's endpoints: one small handler each, no logic."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING

import orjson
from aiohttp import web

from catalog.scopes import READ
from ingest.answers import JSON
from ingest.appkeys import AUTH, READER, RECEIVER, REFUSED, RUNS, STATUS
from ingest.metric_names import KNOWN
from ingest.metrics import render
from ingest.request_headers import addressee
from ingest.version import build, version
from schema.ids import TenantId
from schema.streams import StreamKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingest.refused_ring import RefusedLine

MIB = 2**20
REFUSED_SHOWN_MAX = 200
VERSION = {"service": "ingest", "version": version(), **build()}


def routes() -> Sequence[web.RouteDef]:
    """Every route of this module."""
    return (
        web.post("/ingest/metrics", post_metrics),
        web.post("/ingest/logs", post_logs),
        web.post("/ingest/data", post_data),
        web.get("/ingest/refused", get_refused),
        web.post("/step", post_step),
        web.get("/health", get_health),
        web.get("/health/ready", get_ready),
        web.get("/health/dlq", get_quarantine),
        web.get("/version", get_version),
        web.get("/metrics", get_metrics),
    )


async def post_metrics(request: web.Request) -> web.StreamResponse:
    """Metrics, one line a step."""
    return await request.app[RECEIVER].receive(request, StreamKind.METRICS)


async def post_logs(request: web.Request) -> web.StreamResponse:
    """Console lines."""
    return await request.app[RECEIVER].receive(request, StreamKind.LOGS)


async def post_data(request: web.Request) -> web.StreamResponse:
    """Structured data: histograms, tables, string series."""
    return await request.app[RECEIVER].receive(request, StreamKind.DATA)


async def get_refused(request: web.Request) -> web.StreamResponse:
    """The last lines that were refused of the key's owner, newest first."""
    tenant = TenantId((await request.app[AUTH].of(request, READ)).tenant)
    lines = islice(request.app[REFUSED].of(tenant), REFUSED_SHOWN_MAX)
    return _json({"refused": [_refused_line(line) for line in lines]})


async def post_step(request: web.Request) -> web.StreamResponse:
    """The run's largest step as ClickHouse has it; 0 where there is none yet."""
    tenant = TenantId((await request.app[AUTH].of(request, READ)).tenant)
    to = addressee(request.headers)
    project = await request.app[RUNS].project(tenant, to.run_id, to.project)
    step = await request.app[READER].max_step(tenant, project, to.run_id) or 0.0
    return _json({"step": int(step) if step.is_integer() else step})


async def get_health(_request: web.Request) -> web.StreamResponse:
    """The process answers; nothing else is asked."""
    return web.Response(text="OK")


async def get_ready(request: web.Request) -> web.StreamResponse:
    """Whether rows can be made durable, and the state of each dependency."""
    status, body = await request.app[STATUS].ready()
    return _json(body, status=status)


async def get_quarantine(request: web.Request) -> web.StreamResponse:
    """What was accepted and proved undeliverable; and how much is kept of what was refused."""
    entries, rows, size = await request.app[STATUS].quarantine()
    refused = await request.app[STATUS].refused()
    return _json(
        {
            "batches_pending": entries,
            "records_pending": rows,
            "disk_usage_mb": round(size / MIB, 3),
            "refused": {
                "lines": refused.lines,
                "bytes": refused.bytes,
                "overwritten": refused.overwritten,
            },
        }
    )


async def get_version(_request: web.Request) -> web.StreamResponse:
    """The release that runs."""
    return _json(VERSION)


async def get_metrics(request: web.Request) -> web.StreamResponse:
    """The whole server's numbers, in Prometheus' text format."""
    text = render(await request.app[STATUS].metrics(), KNOWN)
    return web.Response(
        body=text.encode(),
        headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
    )


def _refused_line(line: RefusedLine) -> dict[str, object]:
    return {
        "receivedAt": line.received_at_ms,
        "stream": line.stream,
        "runId": line.run_id,
        "projectName": line.project,
        **asdict(line.error),
        "text": line.text.decode(errors="replace"),
    }


def _json(body: object, *, status: int = 200) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(body), content_type=JSON)
