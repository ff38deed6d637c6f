"""Small reads from ClickHouse for handlers: bounded in time, in number and in cost there.

Nothing on the path of an ingest request reads from ClickHouse; what does here may be told that it
is away.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import orjson

from buffer.clickhouse_http import BoundedHttpClient, ClickHouseFailure, TransportFailure
from ingest.answers import Code, RequestRefused
from schema.streams import METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from buffer.clickhouse_http import Endpoint
    from schema.ids import RunId, TenantId

READS_MAX = 4
"""At once, a worker: readers share the engine with inserts."""
READ_SECONDS_MAX = 10.0
_SETTINGS = {
    "max_execution_time": "5",
    "max_memory_usage": str(512 * 2**20),
    "max_result_rows": "10000",
    "output_format_json_quote_64bit_integers": "0",
    "output_format_json_quote_denormals": "1",
}


class Reader:
    """Reads of one ClickHouse. Connections are made at the first read."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._http: BoundedHttpClient | None = None
        self._slots = asyncio.Semaphore(READS_MAX)

    def __repr__(self) -> str:
        return f"Reader({self._endpoint!r})"

    async def max_step(self, tenant: TenantId, project: str, run_id: RunId) -> float | None:
        """The largest step of the run's metrics; None for a run without any.

        Raises:
            RequestRefused: 503, ClickHouse is away, too slow, or cannot answer that.
        """
        rows = await self.rows(
            f"SELECT max(step) AS step, count() AS rows FROM {METRICS.table} "  # noqa: S608 - ours
            "WHERE tenantId = {tenant:String} AND projectName = {project:String} "
            "AND runId = {run:UInt64}",
            tenant=tenant,
            project=project,
            run=str(run_id),
        )
        return float(rows[0]["step"]) if rows and rows[0]["rows"] else None

    async def rows(self, query: str, **parameters: str | Sequence[str]) -> list[dict[str, Any]]:
        """The rows of a SELECT over our database, by column name.

        Args:
            query: constant text with `{name:Type}` for each value; no FORMAT.
            parameters: the values; the server puts them in. Several texts are an `Array(String)`.

        Raises:
            RequestRefused: 503, as above.
        """
        try:
            async with asyncio.timeout(READ_SECONDS_MAX), self._slots:
                return await self._ask(query, parameters)
        except (ClickHouseFailure, TransportFailure, TimeoutError, aiohttp.ClientError) as error:
            code = getattr(error, "code", None)
            raise RequestRefused(
                Code.DATABASE_UNAVAILABLE if code is None else Code.QUERY_FAILED,
                "the stored rows cannot be read now; try again",
                retry_after_seconds=2,
            ) from error

    async def probe(self) -> None:
        """Return when ClickHouse answers a query of ours.

        Raises:
            Exception: it does not.
        """
        await self._ask("SELECT 1 AS one", {})

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.close()

    async def _ask(
        self, query: str, parameters: Mapping[str, str | Sequence[str]]
    ) -> list[dict[str, Any]]:
        if self._http is None:
            self._http = BoundedHttpClient(self._endpoint, trust=self._endpoint.ssl())
        params = {
            **_SETTINGS,
            "database": self._endpoint.database,
            **{f"param_{name}": _parameter(value) for name, value in parameters.items()},
        }
        headers = {
            "X-ClickHouse-User": self._endpoint.user,
            "X-ClickHouse-Key": self._endpoint.password,
        }
        # Names come even where no row does: an answer without a last line feed is a torn one.
        text = f"{query} FORMAT JSONCompactEachRowWithNames"
        answer = self._http.post_return_lines(self._endpoint.url, params, headers, text.encode())
        names, *rows = [orjson.loads(line) async for line in answer]
        return [dict(zip(names, row, strict=True)) for row in rows]


def _parameter(value: str | Sequence[str]) -> str:
    """A value as the server reads it: text as in a tab-separated line, a list as in SQL."""
    if isinstance(value, str):
        return _escaped(value)
    return "[" + ",".join(f"'{_quoted(text)}'" for text in value) + "]"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0")


def _escaped(value: str) -> str:
    value = value.replace("\\", "\\\\").replace("\t", "\\t")
    return value.replace("\n", "\\n").replace("\r", "\\r").replace("\0", "\\0")
