"""Paths, methods and what is said about errors; health, version and metrics over HTTP."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from buffer.statistics import (
    QuarantineStatistics,
    TableCondition,
    TableStatistics,
    TaskStatistics,
)
from ingest import logs
from ingest.answers import Code, RequestRefused
from tests.ingest.serving import ABSENT, KEY, LINE, serving


async def explode(_request: web.Request) -> web.Response:
    raise RuntimeError("the secret is swordfish")


class NoReader:
    """ClickHouse is away, or says 12.5."""

    step: float | None = None
    is_away = False

    async def max_step(self, tenant, project, run_id):
        if self.is_away:
            raise RequestRefused(Code.DATABASE_UNAVAILABLE, "away", retry_after_seconds=2)
        return self.step


@pytest.fixture
def reader():
    return NoReader()


@pytest.fixture
async def server(tmp_path, reader):
    routes = [web.get("/explode", explode)]
    async with serving(tmp_path, routes=routes, reader=reader) as running:
        yield running


async def test_an_unknown_path_is_404_and_a_wrong_method_405_in_our_shape(server):
    missing = await server.get("/ingest/metric")
    assert (missing.status, missing.json["code"]) == (404, "NOT_FOUND")
    wrong = await server.get("/ingest/metrics")
    assert (wrong.status, wrong.json["code"]) == (405, "METHOD_NOT_ALLOWED")
    assert "POST" in wrong.json["message"]
    assert wrong.headers["Allow"] == "POST"
    assert "aiohttp" not in str(wrong.headers)


@pytest.mark.parametrize("path", ["//ingest/metrics", "/ingest//metrics", "///ingest///metrics"])
async def test_doubled_slashes_are_tolerated(server, path):
    assert (await server.post(path)).status == 200
    text = await server.raw(
        b"GET //health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    )
    assert text.startswith(b"HTTP/1.1 200 OK")
    assert server.count("requests", route="/ingest/metrics", status="200") == 1


async def test_a_defect_is_a_500_without_a_trace_and_the_log_has_it_under_its_id(server):
    log = io.StringIO()
    logs.set_up("debug", "json", output=log)
    answer = await server.get("/explode")
    assert (answer.status, answer.json["code"]) == (500, "INTERNAL_ERROR")
    assert "swordfish" not in answer.text
    assert "Traceback" not in answer.text
    assert answer.json["details"]["error_id"] in log.getvalue()
    assert "swordfish" in log.getvalue()
    assert server.count("request_failures") == 1


@pytest.mark.parametrize(
    ("authorization", "code"),
    [
        (ABSENT, "MISSING_TOKEN"),
        ("Token x", "INVALID_BEARER_FORMAT"),
        ("Bearer mlps_unknown", "INVALID_TOKEN"),
    ],
)
async def test_f35_a_request_without_a_valid_key_is_401_and_says_why(server, authorization, code):
    for path in ("/ingest/metrics", "/ingest/logs", "/ingest/data", "/step"):
        answer = await server.post(path, key=None, headers={"Authorization": authorization})
        assert (answer.status, answer.json["code"]) == (401, code)


async def test_f42_no_key_reaches_a_log_an_answer_or_a_metric(server):
    log = io.StringIO()
    logs.set_up("debug", "console", output=log)
    server.keys.failure = RuntimeError("look-up of mlps_storesecretstoresecret failed")
    answers = [
        await server.post(key=KEY, body=LINE),
        await server.post(key="mlps_unknownunknownunknown"),
        await server.post(key="mlps_malformed?malformed?"),
        await server.post(key=None, headers={"Authorization": f"Basic {KEY}"}),
        await server.get("/explode"),
        await server.get(f"/no/such/{KEY}"),
    ]
    text = await server.raw(f"POST / HTTP/1.1\r\nAuthorization : Bearer {KEY}\r\n\r\n".encode())
    everything = log.getvalue() + text.decode() + (await server.get("/metrics")).text
    everything += "".join(answer.text for answer in answers)
    assert "request_failed" in everything
    for secret in (KEY, "unknownunknown", "malformed?", "storesecret"):
        assert secret[:13] not in everything


async def test_step_is_the_largest_or_0(server, reader):
    assert (await server.post("/step", b"")).json == {"step": 0}
    reader.step = 12.0
    answer = await server.post("/step", b"")
    assert answer.text == '{"step":12}'
    reader.step = 12.5
    assert (await server.post("/step", b"")).json == {"step": 12.5}
    reader.is_away = True
    away = await server.post("/step", b"")
    assert (away.status, away.json["code"]) == (503, "DATABASE_UNAVAILABLE")


async def test_liveness_and_version_ask_nothing(server):
    server.buffer.state = replace(server.buffer.state, is_writable=False)
    alive = await server.get("/health")
    assert (alive.status, alive.text) == (200, "OK")
    version = await server.get("/version")
    assert version.json.keys() == {"service", "version", "gitCommit", "gitBranch", "buildTime"}
    assert version.json["service"] == "ingest"


async def test_ready_is_ok_when_both_sides_answer_and_rows_can_be_stored(server):
    await server.health.probe()
    ready = await server.get("/health/ready")
    assert (ready.status, ready.json["status"]) == (200, "ok")
    assert ready.json["checks"]["clickhouse"]["status"] == "up"
    assert ready.json["checks"]["clickhouse"]["latency_ms"] >= 0


async def test_f39_a_lost_dependency_degrades_and_a_full_log_ends_readiness(server):
    async def away() -> None:
        raise OSError("postgresql://user:swordfish@db.internal")

    server.health._probes["catalogue"] = away
    await server.health.probe()
    ready = await server.get("/health/ready")
    assert (ready.status, ready.json["status"]) == (200, "degraded")
    assert ready.json["checks"]["catalogue"] == {"status": "down"}
    assert "swordfish" not in ready.text
    assert "db.internal" not in ready.text
    server.buffer.state = replace(
        server.buffer.state, is_writable=False, reason="no room on /var/lib/charon"
    )
    full = await server.get("/health/ready")
    assert (full.status, full.json["status"]) == (503, "unavailable")
    assert "/var/lib" not in full.text
    assert (await server.get("/health")).status == 200


async def test_f22_a_dead_writer_task_ends_readiness_though_rows_can_be_stored(server):
    dead = TaskStatistics("flusher mlop_metrics", False, 9, 4.0, "ValueError: secret")
    server.buffer.state = replace(server.buffer.state, tasks=(dead,))
    ready = await server.get("/health/ready")
    assert ready.status == 503
    assert ready.json["checks"]["buffer"]["dead_tasks"] == ["flusher mlop_metrics"]
    assert "secret" not in ready.text


async def test_a_table_that_waits_for_its_operator_degrades(server):
    await server.health.probe()
    table = TableStatistics(
        *("mlop_logs", TableCondition.WAITING, "no table at 10.0.0.7", 60, 3, 1.0),
        *(5, 100, 5, 2.0, 0, 0),
    )
    server.buffer.state = replace(server.buffer.state, tables={"mlop_logs": table})
    ready = await server.get("/health/ready")
    assert (ready.status, ready.json["status"]) == (200, "degraded")
    assert ready.json["checks"]["delivery"]["tables"] == {
        "mlop_logs": {"condition": "waiting", "code": 60}
    }
    assert "10.0.0.7" not in ready.text


async def test_f17_while_draining_readiness_is_off_and_answers_close_their_connections(server):
    server.health.is_draining = True
    ready = await server.get("/health/ready")
    assert ready.status == 503
    answer = await server.post()
    assert answer.status == 200
    assert answer.headers["Connection"] == "close"


async def test_the_dead_letter_endpoint_counts_what_is_set_aside(server):
    server.buffer.state = replace(
        server.buffer.state, quarantine=QuarantineStatistics(2, 30, 2**19, 0, is_full=False)
    )
    answer = await server.get("/health/dlq")
    refused = answer.json.pop("refused")
    assert answer.json == {"batches_pending": 2, "records_pending": 30, "disk_usage_mb": 0.5}
    assert refused == {"lines": 0, "bytes": 0, "overwritten": 0}


async def test_metrics_are_valid_prometheus_text(server):
    await server.post()
    await server.post(key=None)
    answer = await server.get("/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = {family.name: family for family in text_string_to_metric_families(answer.text)}
    samples = {
        tuple(sample.labels.items()): sample.value
        for sample in found["charon_auth_refused"].samples
    }
    assert samples == {(("reason", "missing"),): 1.0}
    assert found["charon_request_seconds"].type == "histogram"
