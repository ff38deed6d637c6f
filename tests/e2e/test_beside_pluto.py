"""In the place of the ingest server of an existing Pluto: its keys, its tables, nothing made.

One engine with that Pluto's tables, one Postgres with its keys, one `charon serve --role ingest`,
for all tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import clickhouse_connect
import pytest

from loadtest.throwaway import COMMAND, Server
from tests.e2e.conftest import bits, eventually
from tests.e2e.pluto_site import CLICKHOUSE, READER, PlutoKeysTable, pluto_api
from tests.e2e.sdk import SCRIPT, environment, result
from tests.e2e.sdk_run import value
from tests.engine_process import EngineProcess, start_engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.postgres import PostgresServer

pytestmark = pytest.mark.slow

KEY = f"mlps_{'k' * 24}"
ENDS_SOON = f"mlps_{'s' * 24}"
ENDED = f"mlps_{'e' * 24}"
LEGACY = "mlpi_0123456789abcdef"
TENANT = "org_acme"
TIME_MS = 1_764_423_221_123


@dataclass
class Site:
    """All of it."""

    server: Server
    engine: EngineProcess
    keys: PlutoKeysTable
    client: Any
    made_before: tuple[list[Any], list[Any]]

    def send(
        self, path: str, body: bytes = b"", *, key: str = KEY, run: int = 7, method: str = "POST"
    ) -> tuple[int, dict[str, Any]]:
        request = urllib.request.Request(
            self.server.url + path,
            data=body if method == "POST" else None,
            method=method,
            headers={
                "Authorization": f"Bearer {key}",
                "X-Run-Id": str(run),
                "X-Project-Name": "project of the header",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return list(self.client.query(query).result_rows)

    def made(self) -> tuple[list[Any], list[Any]]:
        """Everything that can be made: relations and functions there, tables here."""
        relations = self.keys.execute(
            "SELECT n.nspname || '.' || c.relname FROM pg_class c "
            "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname <> 'pg_toast' "
            "UNION ALL SELECT proname FROM pg_proc UNION ALL SELECT tgname FROM pg_trigger "
            "ORDER BY 1"
        )
        tables = self.rows(
            "SELECT database, name, create_table_query FROM system.tables ORDER BY 1, 2"
        )
        return [tuple(one) for one in relations], [t for t in tables if t[0] == "pluto"]


@pytest.fixture(scope="module")
def site(
    postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("pluto")
    with postgres_server.database() as url:
        keys = PlutoKeysTable(postgres_server, url)
        keys.lay_out()
        keys.add(KEY, TENANT)
        keys.add(LEGACY, "org_legacy")
        # Naive, and UTC: a session in Los Angeles would take either for 7 or 8 hours later.
        keys.add(ENDED, TENANT, expires="now() AT TIME ZONE 'UTC' - interval '1 hour'")
        keys.add(ENDS_SOON, TENANT, expires="now() AT TIME ZONE 'UTC' + interval '1 hour'")
        engine = start_engine(directory / "engine", database="pluto")
        client = clickhouse_connect.get_client(
            host="127.0.0.1",
            port=engine.port,
            username=engine.user,
            password=engine.password,
            database="pluto",
        )
        for statement in CLICKHOUSE.split(";"):
            client.command(statement)
        server = Server(
            directory / "data",
            {
                "role": "ingest",
                "database_url": keys.reader_url,
                "clickhouse_url": engine.url.rstrip("/"),
                "clickhouse_user": engine.user,
                "clickhouse_password": engine.password,
                "clickhouse_database": "pluto",
            },
            key=KEY,
        )
        whole = Site(server, engine, keys, client, ([], []))
        whole.made_before = whole.made()
        try:
            server.start()
            yield whole
            if server.process.poll() is None:
                server.stop()
        finally:
            if server.process.poll() is None:
                server.kill_tree()
            client.close()
            engine.stop()
            keys.execute(f"DROP OWNED BY {READER}")
            keys.execute(f"DROP ROLE {READER}")


def test_the_sdks_rows_are_in_plutos_tables_exactly_and_its_views_have_them(site, tmp_path):
    with pluto_api("acme") as api:
        process = subprocess.Popen(
            [
                sys.executable,
                str(SCRIPT),
                json.dumps({"mode": "full", "seed": 3, "steps": 60, "names": 5}),
            ],
            env=environment(api.url, KEY, tmp_path / "home")
            | {"PLUTO_URL_INGEST": site.server.url},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert result(process)["run_id"] == api.run_id
    where = f"WHERE runId = {api.run_id} AND startsWith(logName, 'train/')"
    eventually(
        lambda: site.rows(f"SELECT count() FROM mlop_metrics {where}")[0][0] >= 300, 20, "300 rows"
    )
    for table in ("mlop_metrics", "mlop_metrics_v2 FINAL"):
        rows = site.rows(
            "SELECT logName, step, value, logGroup, tenantId, projectName "
            f"FROM {table} {where} ORDER BY logName, step"
        )
        assert [(name, step, bits(v)) for name, step, v, *_ in rows] == [
            (f"train/m{n}", step, bits(value(3, step, n)))
            for n in range(5)
            for step in range(1, 61)
        ]
        assert {row[3:] for row in rows} == {("train", TENANT, "e2e")}
    eventually(
        lambda: site.rows(f"SELECT count() FROM mlop_data WHERE runId = {api.run_id}")[0][0] >= 5,
        20,
        "structured data",
    )
    kinds = site.rows(f"SELECT DISTINCT dataType FROM mlop_data WHERE runId = {api.run_id}")
    assert len(kinds) >= 3
    finite = site.rows(
        f"SELECT sum(count_value) FROM mlop_metric_summaries {where} AND logName = 'train/m3'"
    )
    assert finite == [(57,)]  # three of sixty are not finite


def test_steps_that_the_tables_cannot_hold_go_to_quarantine_and_their_neighbours_are_stored(site):
    lines = [
        {"time": TIME_MS, "step": step, "data": {"loss": float(number)}}
        for number, step in enumerate([1, 2.5, -5, 3, 2**53])
    ]
    body = "\n".join(map(json.dumps, lines)).encode()
    assert site.send("/ingest/metrics", body, run=50)[1]["accepted"] == 5
    stored = "SELECT step, value, toUnixTimestamp64Milli(time) FROM mlop_metrics WHERE runId = 50"
    eventually(lambda: len(site.rows(stored)) >= 3, 20, "three rows")
    assert sorted(site.rows(stored)) == [
        (1, 0.0, TIME_MS),
        (3, 3.0, TIME_MS),
        (2**53, 4.0, TIME_MS),
    ]

    def set_aside() -> int:
        return int(site.send("/health/dlq", method="GET")[1]["records_pending"])

    eventually(lambda: set_aside() == 2, 20, "two rows in quarantine")
    assert site.send("/step", run=50)[1] == {"step": 2**53}


def test_f12_naive_times_are_utc_whatever_the_sessions_zone(site):
    line = b'{"time":%d,"step":1,"data":{"a":1}}\n' % TIME_MS
    assert site.send("/ingest/metrics", line, key=ENDS_SOON)[0] == 200
    status, body = site.send("/ingest/metrics", line, key=ENDED)
    assert (status, body["code"]) == (401, "TOKEN_EXPIRED")


def test_a_legacy_key_is_found_as_it_is_and_writes_for_its_own_organisation(site):
    line = b'{"time":%d,"step":1,"data":{"a":1}}\n' % TIME_MS
    assert site.send("/ingest/metrics", line, key=LEGACY, run=51)[0] == 200
    query = "SELECT tenantId, projectName FROM mlop_metrics WHERE runId = 51"
    eventually(lambda: site.rows(query), 20, "the row")
    assert site.rows(query) == [("org_legacy", "project of the header")]


def test_a_key_revoked_there_is_refused_here_within_two_seconds(site):
    key = f"mlps_{'r' * 24}"
    site.keys.add(key, TENANT)
    line = b'{"time":%d,"step":1,"data":{"a":1}}\n' % TIME_MS
    assert site.send("/ingest/metrics", line, key=key)[0] == 200
    site.keys.execute(
        f"UPDATE \"api_key\" SET \"revokedAt\" = now() AT TIME ZONE 'UTC' WHERE id = '{key[-8:]}'"
    )
    end = time.monotonic() + 4  # and as much again for a busy machine
    while (found := site.send("/ingest/metrics", line, key=key))[0] == 200:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert (found[0], found[1]["code"]) == (401, "TOKEN_REVOKED")
    site.keys.execute(f"DELETE FROM \"api_key\" WHERE id = '{key[-8:]}'")
    eventually(
        lambda: site.send("/ingest/metrics", line, key=key)[1]["code"] == "INVALID_TOKEN",
        10,
        "a deleted key to be unknown",
    )


@pytest.mark.parametrize("path", ["/api/runs/create", "/api/slug", "/api/runs/trigger"])
def test_the_run_api_is_not_there_and_says_why(site, path):
    status, body = site.send(path, b"{}")
    assert (status, body["code"]) == (404, "NOT_FOUND")
    assert "role ingest" in body["message"]
    assert "PLUTO_URL_API" in body["message"]


def test_health_version_and_refused_lines_are_there(site):
    status, body = site.send("/health/ready", method="GET")
    assert (status, body["status"]) == (200, "ok")
    assert {"clickhouse", "catalogue"} <= body["checks"].keys()
    assert site.send("/version", method="GET")[1]["service"] == "ingest"
    assert site.send("/ingest/refused", method="GET")[0] == 200


def test_the_doctor_says_what_it_found_in_both(site):
    run = subprocess.run(
        [*COMMAND, "doctor", "--json", "--data-dir", str(site.server.data_dir)],
        env=site.server._environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(run.stdout)
    catalogue = [one for one in found if one["subject"] == "catalogue"]
    assert [one["state"] for one in catalogue] == ["ok"]
    assert "valid keys" in catalogue[0]["found"]
    assert READER in catalogue[0]["found"]
    clickhouse = " ".join(one["found"] for one in found if one["subject"] == "ClickHouse")
    assert "holds step as UInt64" in clickhouse
    assert "s3cret-of-postgres" not in run.stdout + run.stderr


def test_in_the_end_nothing_was_made_or_written_but_rows(site):
    """Last in the file: every request above has come before."""
    site.server.stop()
    assert site.made() == site.made_before
    written = site.keys.execute('SELECT count(*) AS n FROM "api_key" WHERE "lastUsed" IS NOT NULL')
    assert written[0]["n"] == 0
    assert "s3cret-of-postgres" not in site.server.log_path.read_text()
    assert KEY not in site.server.log_path.read_text()
