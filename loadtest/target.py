"""What is loaded: a throw-away server, or a deployment that somebody has."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from loadtest.throwaway import Server

INVENTED_RUNS_FROM = 1_000_000_000
"""Numbers of runs where there is no run API to make some; far above those that it would give."""


class TargetUnusable(RuntimeError):
    """The server or the ClickHouse behind it does not do what a load test needs."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server, a key for it, and the ClickHouse in which its rows end."""

    url: str
    key: str
    clickhouse_url: str
    clickhouse_user: str
    clickhouse_password: str
    database: str = "charon"
    server: Server | None = None
    """Where this process started it."""

    def sql(self, query: str) -> list[list[Any]]:
        """Rows of a query.

        Raises:
            TargetUnusable: ClickHouse did not answer it; says what it said.
        """
        rows: list[list[Any]] = json.loads(self.sql_command(f"{query} FORMAT JSONCompact"))["data"]
        return rows

    def sql_command(self, statement: str) -> bytes:
        """Run a statement; what it answers. Raises as `sql`."""
        request = urllib.request.Request(
            self.clickhouse_url,
            data=statement.encode(),
            headers={
                "X-ClickHouse-User": self.clickhouse_user,
                "X-ClickHouse-Key": self.clickhouse_password,
                "X-ClickHouse-Database": self.database,
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                body: bytes = answer.read()
        except urllib.error.HTTPError as error:
            said = error.read(500).decode(errors="replace")
            raise TargetUnusable(f"ClickHouse refused a query: {said}") from error
        except OSError as error:
            raise TargetUnusable(f"ClickHouse at {self.clickhouse_url}: {error}") from error
        return body

    def make_runs(self, count: int, project: str) -> list[int]:
        """Runs to load, made through the run API, as real runs are.

        Returns:
            Their numbers; invented ones where the server has no run API.

        Raises:
            TargetUnusable: it refuses the key, or cannot be reached.
        """
        address = urlsplit(self.url)
        secure = address.scheme == "https"
        opener = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = opener(address.hostname or "127.0.0.1", address.port, timeout=30)
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        runs = []
        try:
            for number in range(count):
                body = json.dumps({"runName": f"load-{number}", "projectName": project})
                connection.request("POST", "/api/runs/create", body, headers)
                answer = connection.getresponse()
                said = answer.read()
                if answer.status in {404, 405, 501}:
                    first = INVENTED_RUNS_FROM + time.time_ns() // 10**9 % 10**6 * 10**5
                    return [first + number for number in range(count)]
                if answer.status != 200:
                    text = said[:200].decode(errors="replace")
                    raise TargetUnusable(f"cannot make a run: status {answer.status}, {text}")
                runs.append(int(json.loads(said)["runId"]))
        except OSError as error:
            raise TargetUnusable(f"{self.url} cannot be reached: {error}") from error
        finally:
            connection.close()
        return runs


def of_server(server: Server) -> Target:
    """A throw-away server as a target."""
    return Target(
        url=server.url,
        key=server.key,
        clickhouse_url=server.clickhouse_url,
        clickhouse_user="charon",
        clickhouse_password=server.clickhouse_password,
        server=server,
    )


def of_addresses(host: str, key: str, clickhouse: str) -> Target:
    """A deployment, by its addresses.

    Args:
        host: the server's address, like ``http://charon.example:3003``.
        key: of a tenant of it.
        clickhouse: like ``http://user:password@host:8123/database``.
    """
    parts = urlsplit(clickhouse)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise TargetUnusable(
            f"not an address of ClickHouse's HTTP interface: {parts.scheme}://{parts.hostname}; "
            "it looks like http://user:password@host:8123/database"
        )
    port = f":{parts.port}" if parts.port else ""
    return Target(
        url=host.rstrip("/"),
        key=key,
        clickhouse_url=f"{parts.scheme}://{parts.hostname}{port}/",
        clickhouse_user=parts.username or "default",
        clickhouse_password=parts.password or "",
        database=parts.path.strip("/") or "charon",
    )
