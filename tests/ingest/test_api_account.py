"""Keys, health, and what the API says when its database is away."""

from __future__ import annotations

import asyncio
import gzip
import json
import sqlite3
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from catalog.engine import READERS_MAX
from ingest import appkeys
from tests.ingest.api_client import Api, running_api

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

UNKNOWN = "mlps_" + "x" * 24


@pytest.fixture
async def api(tmp_path) -> AsyncIterator[Api]:
    async with running_api(tmp_path) as api:
        yield api


async def test_a_login_gives_the_organisations_slug(api):
    assert await api.post("/api/slug") == (200, {"organization": {"slug": "acme"}})


async def test_a_key_is_validated(api):
    organization = {"id": api.tenant, "slug": "acme"}
    expected = {"valid": True, "organization": organization, "user": {"id": None}}
    assert await api.call("GET", "/api/runs/auth/validate") == (200, expected)


async def test_doubled_slashes_lead_to_the_same_routes(api):
    assert await api.post("//api/slug") == (200, {"organization": {"slug": "acme"}})
    body = {"runName": "r", "projectName": "p"}
    assert (await api.post("//api//runs/create", body))[0] == 200


async def test_health_and_version_need_no_key(api):
    for path in ("/api/health", "/api/version"):
        async with api.client.get(path) as response:
            assert response.status == 200
            assert await response.json()


async def test_each_reason_why_a_key_is_not_taken_is_told_apart(api):
    expired = await api.catalog.keys.create("old", api.tenant, expires_at_ms=1)
    revoked = await api.catalog.keys.create("gone", api.tenant)
    await api.catalog.keys.revoke(revoked.record.id)
    for key, code, message in (
        (UNKNOWN, "INVALID_TOKEN", "Key not found"),
        ("not a key!", "INVALID_TOKEN_FORMAT", "Invalid API key"),
        (expired.secret, "TOKEN_EXPIRED", "API key has expired"),
        (revoked.secret, "TOKEN_REVOKED", "API key has been revoked"),
    ):
        expected = (401, {"error": "Unauthorized", "code": code, "message": message})
        for path in ("/api/slug", "/api/runs/create", "/api/runs/status/update"):
            assert await api.post(path, {}, key=key) == expected
        py_message = "Invalid or expired API key for this run" if key == UNKNOWN else None
        status, answer = await api.post("/api/runs/trigger", {"runId": 1}, key=key)
        assert (status, answer["code"]) == (401, code)
        assert py_message in (None, answer["detail"])


async def test_a_missing_key_has_no_message_that_the_sdk_would_show_in_its_stead(api):
    async with api.client.post("/api/runs/create", data=b"{}") as response:
        assert response.status == 401
        assert await response.json() == {"error": "Unauthorized", "code": "MISSING_TOKEN"}


async def test_no_answer_holds_a_key(api):
    async with api.client.post(
        "/api/runs/create", data=b"{}", headers={"Authorization": f"Bearer {UNKNOWN}"}
    ) as response:
        assert UNKNOWN not in await response.text()


async def test_a_compressed_body_is_taken(api):
    data = gzip.compress(json.dumps({"runName": "r", "projectName": "p"}).encode())
    more = {"Content-Encoding": "gzip"}
    status, answer = await api.post("/api/runs/create", data=data, more=more)
    assert (status, answer["displayId"]) == (200, "P-1")
    status, answer = await api.post("/api/runs/create", data=b"no gzip", more=more)
    assert (status, answer["code"]) == (400, "INVALID_INPUT")


async def test_a_wrong_method_or_path_is_told_in_json(api):
    assert (await api.call("GET", "/api/runs/tags/update"))[0] == 405
    assert (await api.call("DELETE", "/api/runs/create"))[0] == 405
    assert (await api.call("GET", "/api/runs/nothing"))[0] == 404


async def test_a_database_that_stays_busy_is_a_503_to_try_again(api, tmp_path):
    run_id = (await api.create())["runId"]
    holder = sqlite3.connect(tmp_path / "catalog.sqlite", isolation_level=None)
    async with api.catalog.database.write() as connection:
        await connection.exec_driver_sql("PRAGMA busy_timeout=50")  # of the one that writes
    holder.execute("BEGIN IMMEDIATE")
    body = {"runId": run_id, "tags": ["a"]}
    status, answer = await api.post("/api/runs/tags/update", body)
    assert (status, answer["code"]) == (503, "DATABASE_UNAVAILABLE")
    assert "sqlite" not in json.dumps(answer).lower()
    beat = await api.post("/api/runs/trigger", {"runId": run_id})
    assert beat == (200, {"status": "RUNNING", "triggers": None})
    holder.execute("ROLLBACK")
    holder.close()
    assert (await api.post("/api/runs/tags/update", body))[0] == 200


async def test_without_a_free_connection_known_keys_go_on_and_others_are_told_to_come_again(
    tmp_path, postgres_url
):
    """F38: all connections of the pool are held; a key that is known needs none."""
    async with running_api(tmp_path, database=postgres_url) as api, AsyncExitStack() as stack:
        auth = api.client.app._state[appkeys.AUTH]
        known = await auth.identify(f"Bearer {api.key}")
        for _ in range(READERS_MAX):
            await stack.enter_async_context(api.catalog.database.read())
        body = {"runName": "r", "projectName": "p"}
        answers = await asyncio.gather(
            *(api.post("/api/runs/create", body, key=api.other_key) for _ in range(100)),
            return_exceptions=True,
        )
        assert {status for status, _ in answers} == {503}
        assert {answer["code"] for _, answer in answers} == {"DATABASE_UNAVAILABLE"}
        assert await auth.identify(f"Bearer {api.key}") == known
        assert (await api.post("/api/runs/create", body))[0] == 200
