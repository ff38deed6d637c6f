"""The sink over ClickHouse's HTTP interface, through aiochclient.

One block is one ``INSERT … FORMAT Native`` with every setting that could split it or change the
meaning of its token sent along. Success is a 200 with an empty body and no exception header, and
nothing else is.
"""

from __future__ import annotations

import json
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from aiochclient import ChClient

from buffer.block_body import BlockBody
from buffer.clickhouse_http import (
    BoundedHttpClient,
    ClickHouseFailure,
    Endpoint,
    TransportFailure,
)
from buffer.handing import hand
from buffer.lookups import LOOK_SETTINGS, blocks_query, rows_query
from buffer.sink import SinkError
from schema.block import live_layout
from schema.chcodes import ErrorClass, classify
from schema.errors import LayoutMismatch
from schema.handing import HEADER, REFUSED_STATUS
from schema.insert import INSERT_SETTINGS, insert_statement
from schema.quoting import literal, qualified
from schema.streams import STREAMS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from buffer.clock import Clock
    from schema.block import Block, Layout
    from schema.ids import BlockNumber
    from schema.streams import StreamKind

HANDED_BYTES_MIN = 2**18
"""A block of this size or more is handed to the embedded engine as memory. Of 200,000 rows the
engine's event loop has 3 ms of CPU instead of 16 then, and the worker's 4 instead of 9."""

PATIENCE_MAX = 8.0
"""Times the configured wait, at most, after inserts that were not answered in time."""

SETTLE_SECONDS_BETWEEN = 0.2
SETTLE_TRIES_MAX = 50
"""Looks at ``system.processes`` before a query that does not die is given back as an error."""

UNKNOWN_TABLE = 60
ACCESS_DENIED = 497

_NO_SETTINGS: Mapping[str, str | int] = MappingProxyType({})
_VIOLATED_AT_ROW = re.compile(r"\bviolated at row (\d+)")


class ClickHouseSink:
    """Blocks into one endpoint; see `buffer.sink.Sink` for what each call promises."""

    def __init__(self, endpoint: Endpoint, *, clock: Clock) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._http: BoundedHttpClient | None = None
        self._hands_over = endpoint.is_embedded

    def __repr__(self) -> str:
        return f"ClickHouseSink({self._endpoint!r})"

    async def layout(self, kind: StreamKind) -> Layout:
        """The columns of the live table that an insert may name."""
        stream = STREAMS[kind]
        rows = await self._select(
            "SELECT name, type FROM system.columns WHERE database = "  # noqa: S608 - quoted
            f"{literal(self._endpoint.database)} AND table = {literal(stream.table)} "
            "AND default_kind NOT IN ('ALIAS', 'MATERIALIZED')"
        )
        if not rows:
            raise SinkError(
                ErrorClass.OPERATOR,
                UNKNOWN_TABLE,
                f"there is no table {self._endpoint.database}.{stream.table}: "
                "`charon migrate` makes it",
                is_outcome_unknown=False,
            )
        try:
            return live_layout(stream, {str(name): str(type_) for name, type_ in rows})
        except LayoutMismatch as error:
            raise SinkError(
                ErrorClass.OPERATOR, None, str(error), is_outcome_unknown=False
            ) from error

    async def is_replicated(self, kind: StreamKind) -> bool:
        """By the engine's name, as ``system.tables`` has it."""
        rows = await self._select(
            "SELECT engine FROM system.tables WHERE database = "  # noqa: S608 - quoted
            f"{literal(self._endpoint.database)} AND name = {literal(STREAMS[kind].table)}"
        )
        return bool(rows) and str(rows[0][0]).startswith(("Replicated", "Shared"))

    async def insert(self, layout: Layout, block: Block, *, token: str, query_id: str) -> None:
        """One block, one token, one round trip."""
        settings = {**INSERT_SETTINGS, "insert_deduplication_token": token, "query_id": query_id}
        statement = insert_statement(layout, self._endpoint.database)
        client, http = self._client(settings), self._session()
        try:
            if not await self._hand_over(client, statement, block):
                await client.insert_file(statement, BlockBody(block))
        except (ClickHouseFailure, TransportFailure) as error:
            if isinstance(error, TransportFailure) and error.is_late:
                # A server that needs longer than this for a block would never get one done.
                http.patience = min(2 * http.patience, PATIENCE_MAX)
            raise _sink_error(error) from error
        http.patience = 1.0

    async def settle(self, query_id: str) -> None:
        """Kills the query and looks until it is gone; a query that never was is gone."""
        condition = f"query_id = {literal(query_id)}"
        for _ in range(SETTLE_TRIES_MAX):
            if not await self._select(
                f"SELECT 1 FROM system.processes WHERE {condition} LIMIT 1"  # noqa: S608 - quoted
            ):
                return
            await self._kill(condition)
            await self._clock.sleep(SETTLE_SECONDS_BETWEEN)
        raise SinkError(
            ErrorClass.TRANSIENT,
            None,
            f"the insert {query_id} is still running; it was asked to stop",
            is_outcome_unknown=True,
        )

    async def has_batch(self, layout: Layout, number: BlockNumber) -> bool:
        """One row of the block. ``batch`` is in no key: this scans that column, which is small."""
        assert layout.has_batch, f"{layout.stream.table} has no column batch to look in"
        return bool(
            await self._select(
                "SELECT 1 FROM "  # noqa: S608 - quoted
                f"{qualified(self._endpoint.database, layout.stream.table)} "
                f"WHERE batch = {int(number)} LIMIT 1"
            )
        )

    async def stored_rows(
        self, layout: Layout, numbers: Sequence[BlockNumber], *, since_s: int | None
    ) -> Mapping[int, int]:
        """One thread and 30 seconds of the server's at most; see `buffer.lookups`."""
        query = blocks_query(self._endpoint.database, layout, numbers, since_s)
        try:
            rows = await self._select(query, LOOK_SETTINGS)
        except SinkError as error:
            if since_s is None or error.code != ACCESS_DENIED:
                raise
            return {}  # without system.parts there is no quick look
        return {int(number): int(count) for number, count in rows}

    async def count_rows(self, layout: Layout, rows: Sequence[Mapping[str, object]]) -> int:
        """By the primary key, so that it reads a few granules a row."""
        query = rows_query(self._endpoint.database, layout, rows)
        [[count]] = await self._select(query, LOOK_SETTINGS)
        return int(count)

    async def close(self) -> None:
        """Closes the connections."""
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def _hand_over(self, client: _Client, statement: str, block: Block) -> bool:
        """Inserts a block as memory; whether that was done. If not, nothing was begun."""
        if not self._hands_over or block.size < HANDED_BYTES_MIN:
            return False
        handed = await hand(block.pieces)
        if handed is None:
            return False
        client.headers[HEADER] = str(handed.place)
        try:
            await client.insert_file(statement, b"")
        except ClickHouseFailure as error:
            if error.status != REFUSED_STATUS:
                raise
            # The engine's process cannot look into this one's, or is of a former release: it will
            # not have the next block either.
            self._hands_over = False
            del client.headers[HEADER]
            return False
        finally:
            handed.close()
        return True

    async def _kill(self, condition: str) -> None:
        """Asks; a user who may not kill waits for the query's own end instead."""
        try:
            await self._client({}).execute(f"KILL QUERY WHERE {condition} ASYNC FORMAT Null")
        except (ClickHouseFailure, TransportFailure) as error:
            if isinstance(error, ClickHouseFailure) and error.code == ACCESS_DENIED:
                return
            raise _sink_error(error) from error

    async def _select(
        self, query: str, settings: Mapping[str, str | int] = _NO_SETTINGS
    ) -> Sequence[Sequence[Any]]:
        try:
            rows = await self._client(dict(settings)).fetch(query)
        except (ClickHouseFailure, TransportFailure) as error:
            raise _sink_error(error) from error
        return [tuple(row.values()) for row in rows]

    def _client(self, settings: dict[str, str | int]) -> _Client:
        """A client a request, because aiochclient keeps settings a client; the session is one."""
        return _Client(self._session(), self._endpoint, settings)

    def _session(self) -> BoundedHttpClient:
        if self._http is None:  # made here, because a session wants a running loop
            try:
                trust = self._endpoint.ssl()
            except OSError as error:  # of which ssl.SSLError is one
                text = f"the CA file {self._endpoint.ca_file} cannot be used: {error}"
                raise SinkError(
                    ErrorClass.OPERATOR, None, text, is_outcome_unknown=False
                ) from error
            self._http = BoundedHttpClient(self._endpoint, trust=trust)
        return self._http


class _Client(ChClient):  # type: ignore[misc]  # aiochclient has no types
    """aiochclient over our HTTP client; its own constructor would open a session of its own."""

    def __init__(
        self, http: BoundedHttpClient, endpoint: Endpoint, settings: dict[str, str | int]
    ) -> None:
        self._http_client = http
        self._json = json
        self.url = endpoint.url
        self.params = {"database": endpoint.database, **settings}
        self.headers = {"X-ClickHouse-User": endpoint.user, "X-ClickHouse-Key": endpoint.password}

    @staticmethod
    def _check_insert_file_query(query: str) -> None:
        """Nothing: the statement is ours, and to parse it takes 0.5 ms of the event loop's time."""


def _sink_error(failure: ClickHouseFailure | TransportFailure) -> SinkError:
    if isinstance(failure, TransportFailure):
        wanted = ErrorClass.OPERATOR if failure.is_trust else ErrorClass.TRANSIENT
        return SinkError(wanted, None, str(failure), is_outcome_unknown=failure.is_sent)
    found = _VIOLATED_AT_ROW.search(failure.text)
    return SinkError(
        classify(failure.code, failure.status),
        failure.code,
        failure.text,
        # A 200 here has an exception behind its headers, or something else than ClickHouse sent it.
        is_outcome_unknown=failure.status >= 500 or failure.status == 200,
        bad_row=int(found.group(1)) - 1 if found else None,
    )
