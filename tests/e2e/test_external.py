"""Goal: `charon serve` before a ClickHouse that is not ours to start, from its absence to its rows.

Method: an engine of its own stands for the server; Charon knows it by the variables that the
reference deployment uses, and is there first.
"""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import aiohttp
import pytest

from loadtest.throwaway import Server
from schema.migrations import MIGRATIONS
from tests.e2e.conftest import eventually
from tests.engine_process import PASSWORD, USER, start_engine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.engine_process import EngineProcess


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@pytest.fixture
def engine_port() -> int:
    return free_port()


@pytest.fixture
def outside(tmp_path: Path, engine_port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server whose ClickHouse is not there yet."""
    server = Server(
        tmp_path / "data",
        {
            "clickhouse_url": f"http://127.0.0.1:{engine_port}",
            "clickhouse_user": USER,
            "clickhouse_password": PASSWORD,
        },
    )
    try:
        server.start(is_ready=False)
    except BaseException:
        server.stop()
        raise
    yield server
    if server.process is not None and server.process.poll() is None:
        server.stop()


@pytest.fixture
def engine(outside: Server, tmp_path: Path, engine_port: int) -> Iterator[EngineProcess]:
    one = start_engine(tmp_path / "clickhouse", port=engine_port)
    yield one
    one.stop()


def post(server: Server, step: int) -> dict:
    async def work() -> dict:
        async with aiohttp.ClientSession() as client:
            answer = await client.post(
                f"{server.url}/ingest/metrics",
                data=b'{"time":1764423221123,"step":%d,"data":{"loss":0.5}}\n' % step,
                headers={
                    "Authorization": f"Bearer {server.key}",
                    "X-Run-Id": "1",
                    "X-Run-Name": "r",
                    "X-Project-Name": "p",
                },
            )
            assert answer.status == 200
            return await answer.json()

    return asyncio.run(work())


def ready(server: Server) -> dict:
    with urllib.request.urlopen(f"{server.url}/health/ready", timeout=10) as answer:
        assert answer.status == 200
        return json.load(answer)


def diagnoses(server: Server) -> list[dict]:
    """What doctor finds; an exit status of 1 is part of what it says."""
    try:
        return server.command("doctor")  # type: ignore[return-value]
    except RuntimeError as error:
        return json.loads(str(error).partition(": ")[2])


def count(engine: EngineProcess) -> int:
    request = urllib.request.Request(
        engine.url,
        data=b"SELECT count() FROM charon.mlop_metrics",
        headers={"X-ClickHouse-User": engine.user, "X-ClickHouse-Key": engine.password},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return int(answer.read())


@pytest.mark.slow
def test_a_clickhouse_that_comes_late_and_without_tables_gets_every_row(
    outside: Server, request: pytest.FixtureRequest
) -> None:
    """F05 and F39: what may clear is no refusal, and readiness says what is away and no more."""
    assert post(outside, 1)["accepted"] == 1
    eventually(lambda: ready(outside)["status"] == "degraded", 10, "degraded")
    said = json.dumps(ready(outside))
    assert "clickhouse" in said.lower()
    assert not any(secret in said for secret in (PASSWORD, "127.0.0.1", "Traceback"))
    with urllib.request.urlopen(f"{outside.url}/health", timeout=10) as answer:
        assert answer.status == 200
    found = diagnoses(outside)
    assert any("cannot be reached" in one["found"] for one in found), found
    assert not outside.data_dir.joinpath("clickhouse").exists()

    engine = request.getfixturevalue("engine")
    assert post(outside, 2)["accepted"] == 1
    eventually(
        lambda: (
            "migrate" in json.dumps(ready(outside)) or "migrate" in json.dumps(diagnoses(outside))
        ),
        20,
        "a word about the missing tables",
    )
    with pytest.raises(urllib.error.HTTPError):
        count(engine)  # serve makes nothing in a server that is not its own

    assert len(outside.command("migrate")["tables"]) == len(MIGRATIONS)
    eventually(lambda: count(engine) == 2, 60, "both rows")
    eventually(lambda: ready(outside)["status"] == "ok", 30, "ok")
    assert outside.command("migrate")["tables"] == []
    assert outside.command("sql", "SELECT count() FROM mlop_metrics")["rows"] == [[2]]
    assert not [one for one in diagnoses(outside) if one["state"] in {"warning", "error"}]
    facts = outside.command("doctor", "--connect")
    assert (facts["user"], facts["password_file"]) == (USER, None)
