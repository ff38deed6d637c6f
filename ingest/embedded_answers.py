"""Answers: headers as ClickHouse sends them, errors, and a SELECT's rows streamed as they come.

A SELECT writes into a pipe (`INTO OUTFILE '/proc/self/fd/n'`), so that any format is streamed in
bounded memory, and a slow client slows the query down instead of filling this process up.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import TYPE_CHECKING, Final

from aiohttp import web

from ingest.embedded_errors import EngineError
from ingest.embedded_pipe import RowsPipe

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ingest.embedded_connection import Outcome

HELD_BYTES_MAX: Final = 4 * 2**20
"""An answer up to this size is sent in one piece, so that its error has a status of its own."""

_TEXT: Final = "text/plain; charset=UTF-8"
_CONTENT_TYPES: Final = {
    "JSON": "application/json; charset=UTF-8",
    "JSONCompact": "application/json; charset=UTF-8",
    "JSONEachRow": "application/x-ndjson; charset=UTF-8",
    "TabSeparated": "text/tab-separated-values; charset=UTF-8",
    "TSV": "text/tab-separated-values; charset=UTF-8",
    "TSVWithNamesAndTypes": "text/tab-separated-values; charset=UTF-8",
    "TabSeparatedWithNamesAndTypes": "text/tab-separated-values; charset=UTF-8",
    "CSV": "text/csv; charset=UTF-8; header=absent",
    "Native": "application/octet-stream",
    "RowBinary": "application/octet-stream",
    "Parquet": "application/octet-stream",
}


def error_answer(error: EngineError, query_id: str) -> web.Response:
    """An exception as ClickHouse's HTTP interface reports it."""
    headers = {"X-ClickHouse-Exception-Code": str(error.code)}
    if query_id:
        headers["X-ClickHouse-Query-Id"] = query_id
    return web.Response(
        status=error.status,
        body=f"{error.text}\n".encode(),
        headers={"Content-Type": _TEXT, **headers},
    )


def whole_answer(
    outcome: Outcome, body: bytes, query_id: str, timezone: str, format_name: str | None
) -> web.Response:
    """An answer that is all here, with its summary."""
    headers = answer_headers(query_id, timezone, format_name)
    headers["X-ClickHouse-Summary"] = summary(outcome, len(body))
    return web.Response(body=body, headers=headers)


def answer_headers(query_id: str, timezone: str, format_name: str | None) -> dict[str, str]:
    """What every good answer says of itself."""
    headers = {
        "Content-Type": _CONTENT_TYPES.get(format_name or "", _TEXT),
        "X-ClickHouse-Server-Display-Name": "charon",
        "X-ClickHouse-Query-Id": query_id,
        "X-ClickHouse-Timezone": timezone,
    }
    if format_name is not None:
        headers["X-ClickHouse-Format"] = format_name
    return headers


def summary(outcome: Outcome, result_bytes: int) -> str:
    """The counts, as strings: JSON as ClickHouse writes it."""
    return json.dumps(
        {
            "read_rows": str(outcome.rows_read),
            "read_bytes": str(outcome.bytes_read),
            "written_rows": str(outcome.rows_written),
            "written_bytes": str(outcome.bytes_written),
            "total_rows_to_read": "0",
            "result_rows": str(outcome.rows_written or outcome.rows_out),
            "result_bytes": str(outcome.bytes_written or result_bytes),
            "elapsed_ns": str(int(outcome.seconds * 1e9)),
        }
    )


async def stream_select(
    request: web.Request,
    text_into: Callable[[str], tuple[str, str]],
    run: Callable[[str, Callable[[], None]], asyncio.Task[Outcome]],
    end: Callable[[asyncio.Task[Outcome]], Awaitable[None]],
    *,
    query_id: str,
    timezone: str,
) -> web.StreamResponse:
    """Runs a SELECT and sends its rows.

    Args:
        request: to be answered.
        text_into: from a file's name to the SELECT that writes into it, and its format's name.
        run: starts such a text, and calls its second argument when it has ended.
        end: kills what `run` started.
        query_id: for the answer's headers.
        timezone: for the answer's headers.

    Raises:
        EngineError: the statement failed before anything was sent.

    Cancellation: the statement is killed.
    """
    pipe = RowsPipe()
    sql, format_name = text_into(pipe.name)
    task: asyncio.Task[Outcome] | None = None
    try:
        task = run(sql, pipe.end_writing)
        held = bytearray()
        while len(held) <= HELD_BYTES_MAX and (piece := await pipe.read()):
            held += piece
        if len(held) <= HELD_BYTES_MAX:
            outcome = await asyncio.shield(task)
            return whole_answer(outcome, bytes(held), query_id, timezone, format_name)
        headers = answer_headers(query_id, timezone, format_name)
        return await _stream(request, pipe, held, task, headers)
    finally:
        pipe.close()
        if task is not None and not task.done():
            await asyncio.shield(asyncio.ensure_future(end(task)))


async def _stream(
    request: web.Request,
    pipe: RowsPipe,
    held: bytearray,
    task: asyncio.Task[Outcome],
    headers: Mapping[str, str],
) -> web.StreamResponse:
    tag = secrets.token_hex(8)
    response = web.StreamResponse(headers={**headers, "X-ClickHouse-Exception-Tag": tag})
    response.enable_chunked_encoding()
    await response.prepare(request)
    await response.write(bytes(held))
    held.clear()
    while piece := await pipe.read():
        await response.write(piece)
    try:
        await asyncio.shield(task)
    except EngineError as error:
        # As ClickHouse ends a broken answer: the exception between marks, and no last chunk.
        text = f"{error.text}\n".encode()
        await response.write(f"\r\n__exception__\r\n{tag}\r\n".encode() + text)
        await response.write(f"{len(text)} {tag}\r\n__exception__\r\n".encode())
        if request.transport is not None:
            request.transport.close()
        return response
    await response.write_eof()
    return response
