"""An existing Pluto as a server beside it finds it: its keys in Postgres, its tables in ClickHouse,
and, for the SDK, as much of its API as makes a run."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from catalog import lookup_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.postgres import PostgresServer

READER = "charon_ingest"
"""A role with the rights that docs/replace-pluto-ingest.md gives."""

POSTGRES = """
CREATE TABLE "api_key" (
    "id" TEXT PRIMARY KEY, "key" TEXT NOT NULL, "name" TEXT NOT NULL, "keyString" TEXT NOT NULL,
    "organizationId" TEXT NOT NULL, "userId" TEXT NOT NULL,
    "createdAt" TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "isHashed" BOOLEAN NOT NULL DEFAULT true, "lastUsed" TIMESTAMP(3),
    "expiresAt" TIMESTAMP(3), "revokedAt" TIMESTAMP(3)
);
CREATE UNIQUE INDEX "api_key_key_key" ON "api_key" ("key")
"""

_HEAD = "tenantId LowCardinality(String), projectName String, runId UInt64"
_NAMES = "logGroup String, logName String, time DateTime64(3, 'UTC'), step UInt64"
CLICKHOUSE = f"""
CREATE TABLE mlop_metrics ({_HEAD}, {_NAMES}, value Float64) ENGINE = MergeTree
  ORDER BY (tenantId, projectName, runId, logGroup, logName, time, step);
CREATE TABLE mlop_metrics_v2 ({_HEAD}, {_NAMES}, value Float64) ENGINE = ReplacingMergeTree(time)
  ORDER BY (tenantId, projectName, runId, logGroup, logName, step);
CREATE MATERIALIZED VIEW mlop_metrics_v2_mv TO mlop_metrics_v2 AS SELECT * FROM mlop_metrics;
CREATE TABLE mlop_metric_summaries ({_HEAD}, logName String,
  min_value SimpleAggregateFunction(min, Float64), count_value SimpleAggregateFunction(sum, UInt64),
  last_value AggregateFunction(argMax, Float64, UInt64)) ENGINE = AggregatingMergeTree
  ORDER BY (tenantId, projectName, logName, runId);
CREATE MATERIALIZED VIEW mlop_metric_summaries_mv TO mlop_metric_summaries AS
  SELECT tenantId, projectName, runId, logName, min(value) AS min_value, count() AS count_value,
    argMaxState(value, step) AS last_value
  FROM mlop_metrics WHERE isFinite(value) GROUP BY tenantId, projectName, runId, logName;
CREATE TABLE mlop_logs ({_HEAD}, logType LowCardinality(String), time DateTime64(3, 'UTC'),
  lineNumber UInt64, message String, step UInt64) ENGINE = MergeTree
  ORDER BY (tenantId, projectName, runId, logType, time, lineNumber);
CREATE TABLE mlop_data ({_HEAD}, {_NAMES}, dataType LowCardinality(String), data String)
  ENGINE = MergeTree ORDER BY (tenantId, projectName, runId, logGroup, logName, time, step);
CREATE TABLE mlop_files ({_HEAD}, {_NAMES}, fileName String, fileType LowCardinality(String),
  fileSize UInt64, caption Nullable(String), sampleIndex UInt32 DEFAULT 0,
  annotations Nullable(String)) ENGINE = MergeTree
  ORDER BY (tenantId, projectName, runId, logGroup, logName, time, step)
"""


@dataclass
class PlutoKeysTable:
    """Its table of keys, by what a test does to it."""

    postgres: PostgresServer
    url: str

    def lay_out(self) -> None:
        """Make the table, a reader of it, and a time zone far from UTC for every session."""
        for statement in POSTGRES.split(";"):
            self.execute(statement)
        database = self.url.rpartition("/")[2]
        self.execute(f"ALTER DATABASE {database} SET timezone = 'America/Los_Angeles'")
        self.execute(f"CREATE ROLE {READER} LOGIN")
        self.execute(f'GRANT SELECT ON "api_key" TO {READER}')

    @property
    def reader_url(self) -> str:
        """As Prisma writes it, for the reader."""
        address = self.url.replace("//charon@", f"//{READER}:s3cret-of-postgres@")
        return f"{address}?schema=public&connection_limit=5"

    def add(self, key: str, organisation: str, *, expires: str = "NULL") -> None:
        """A key; `expires` is SQL for a naive time."""
        self.execute(
            'INSERT INTO "api_key" (id, key, name, "keyString", "organizationId", "userId", '
            f"\"expiresAt\") VALUES ('{key[-8:]}', '{lookup_of(key)}', 'test', "
            f"'{key[:5]}…', '{organisation}', 'user-1', {expires})"
        )

    def execute(self, statement: str) -> list[Any]:
        """A statement of its owner's."""
        return self.postgres.execute(statement, self.url)


@dataclass
class Api:
    """What the API was asked."""

    url: str = ""
    run_id: int = 4_242
    calls: list[tuple[str, Any]] = field(default_factory=list)


@contextmanager
def pluto_api(organisation: str) -> Iterator[Api]:
    """The run API, as far as a run of the SDK needs it."""
    api = Api()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            api.calls.append((self.path, json.loads(sent) if sent else None))
            body: dict[str, Any] = {"success": True}
            if self.path == "/api/slug":
                body = {"organization": {"slug": organisation}}
            elif self.path == "/api/runs/create":
                body = {
                    "runId": api.run_id,
                    "number": 1,
                    "displayId": "PRO-1",
                    "projectName": api.calls[-1][1]["projectName"],
                    "organizationSlug": organisation,
                    "url": f"{api.url}/o/{organisation}/runs/x",
                    "resumed": False,
                }
            elif self.path == "/api/runs/trigger":
                body = {"status": "RUNNING", "triggers": None}
            text = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_arguments: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    api.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
