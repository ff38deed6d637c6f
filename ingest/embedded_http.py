"""ClickHouse's HTTP interface over the engine: one handler, one statement a request."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from aiohttp import web

from ingest.embedded_answers import error_answer, stream_select, whole_answer
from ingest.embedded_body import DataFile, decoded, read_head
from ingest.embedded_engine import Engine, Job, Outcome, SessionConnection, Slot
from ingest.embedded_errors import EngineError, refuse
from ingest.embedded_query_ids import reads_processes, with_kill, with_processes
from ingest.embedded_request import Asked, Door, read_request
from ingest.embedded_sessions import Sessions
from ingest.embedded_statement import (
    QUERY_CHARS_MAX,
    Statement,
    StatementKind,
    insert_from,
    output_format,
    read_statement,
    select_into,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SYNTAX_ERROR: Final = 62

_CLASSES: Final = {
    StatementKind.SELECT: frozenset({"READ_ONLY"}),
    StatementKind.DESCRIBE: frozenset({"READ_ONLY"}),
    StatementKind.COMMAND: frozenset({"MUTATING"}),
    StatementKind.CONTROL: frozenset({"CONTROL"}),
    StatementKind.OTHER: frozenset[str](),
}
_SLOTS: Final = {
    StatementKind.SELECT: Slot.READ,
    StatementKind.DESCRIBE: Slot.READ,
    StatementKind.COMMAND: Slot.COMMAND,
    StatementKind.CONTROL: Slot.CONTROL,
    StatementKind.OTHER: Slot.CONTROL,
}


class Front:
    """The handlers and what they share."""

    def __init__(self, engine: Engine, door: Door) -> None:
        self._engine = engine
        self._door = door
        self.sessions = Sessions(engine)
        self._work: set[asyncio.Task[Outcome]] = set()
        self._reads: set[str] = set()

    def app(self) -> web.Application:
        """The application; serve it with `auto_decompress=False` and `handler_cancellation=True`."""
        app = web.Application()
        app.router.add_get("/ping", self._ping)
        app.router.add_get("/replicas_status", self._ping)
        app.router.add_route("*", "/", self._handle)
        return app

    async def kill_reads(self) -> None:
        """Ends every SELECT under way: on the way down they only delay the inserts."""
        for query_id in list(self._reads):
            await self._engine.kill(query_id)

    async def finish_inserts(self) -> None:
        """Waits for all that was handed to the engine, clients gone or not."""
        if self._work:
            await asyncio.wait(self._work)

    async def _ping(self, _request: web.Request) -> web.Response:
        return web.Response(text="Ok.\n")

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        query_id = ""
        try:
            self._door.check(request.headers, request.query)
            async with aclosing(
                decoded(request.content.iter_any(), request.headers.get("Content-Encoding", ""))
            ) as body:
                pairs = [*request.query.items()]
                if request.content_type == "multipart/form-data":
                    pairs += await _form_fields(request)
                asked = read_request(request.method, pairs, request.headers)
                query_id = asked.query_id
                return await self._answer(request, asked, body)
        except EngineError as error:
            return error_answer(error, query_id)

    async def _answer(
        self, request: web.Request, asked: Asked, body: AsyncIterator[bytes]
    ) -> web.StreamResponse:
        head = b"" if request.content_type == "multipart/form-data" else None
        statement, data = await self._read(asked, body, head)
        if statement is None:
            return web.Response(text="Ok.\n")
        if asked.is_repeatable and statement.kind not in (
            StatementKind.SELECT,
            StatementKind.DESCRIBE,
        ):
            raise refuse(
                164,
                "READONLY",
                "Cannot execute query in readonly mode. For queries over HTTP, method GET implies readonly",
            )
        async with AsyncExitStack() as stack:
            session = None
            if asked.session_id is not None:
                session = await stack.enter_async_context(
                    self.sessions.use(
                        asked.session_id, asked.session_seconds, must_exist=asked.must_exist
                    )
                )
            if statement.kind is StatementKind.INSERT_DATA:
                return await self._insert(asked, statement, data, body, session)
            if statement.kind is StatementKind.SELECT and not reads_processes(statement):
                return await self._select(request, asked, statement, session)
            return await self._plain(asked, statement, session)

    async def _read(
        self, asked: Asked, body: AsyncIterator[bytes], head: bytes | None
    ) -> tuple[Statement | None, bytes]:
        """The statement, and the part of its data that was read along with it."""
        refused = self._engine.refused_functions
        if asked.query:
            statement = read_statement(asked.query, refused)
            if statement.kind is StatementKind.INSERT_DATA:
                return statement, _encoded(asked.query[statement.data_start :])
        if head is None:
            head = await read_head(body)
        text = f"{asked.query}\n" * bool(asked.query) + head.decode(errors="surrogateescape")
        if not text.strip():
            return None, b""
        statement = read_statement(text, refused)
        if statement.kind is StatementKind.INSERT_DATA:
            return statement, text[statement.data_start :].encode(errors="surrogateescape")
        if len(head) > QUERY_CHARS_MAX:
            raise refuse(62, "SYNTAX_ERROR", f"Max query size exceeded: {QUERY_CHARS_MAX} bytes")
        _encoded(statement.text)
        return statement, b""

    async def _insert(
        self,
        asked: Asked,
        statement: Statement,
        data: bytes,
        body: AsyncIterator[bytes],
        session: SessionConnection | None,
    ) -> web.Response:
        file = DataFile()
        try:
            file.write(data)
            async for piece in body:
                file.write(piece)
        except BaseException:
            file.close()
            raise
        job = self._job(asked, insert_from(statement, file.name), session)
        task = asyncio.create_task(self._run_insert(job, file, session))
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        # A client that goes away does not undo an insert whose data is all here.
        outcome = await asyncio.shield(task)
        return whole_answer(outcome, b"", asked.query_id, self._engine.timezone, None)

    async def _run_insert(
        self, job: Job, file: DataFile, session: SessionConnection | None
    ) -> Outcome:
        try:
            return await self._engine.run(Slot.INSERT, job, session)
        finally:
            file.close()

    async def _select(
        self,
        request: web.Request,
        asked: Asked,
        statement: Statement,
        session: SessionConnection | None,
    ) -> web.StreamResponse:
        settings = {"max_execution_time": str(self._engine.limits.read_seconds), **asked.settings}
        job = replace(
            self._job(asked, statement.text, session, classes=_CLASSES[statement.kind]),
            settings=settings,
        )
        self._reads.add(asked.query_id)
        try:
            return await stream_select(
                request,
                lambda file: select_into(statement, file, asked.default_format),
                lambda sql: self._engine.run(Slot.READ, replace(job, sql=sql), session),
                query_id=asked.query_id,
                timezone=self._engine.timezone,
            )
        except EngineError as error:
            if error.code != SYNTAX_ERROR:
                raise
            # Ours may be the fault (a column named `format` at the end): as it was sent, then.
            return await self._plain(asked, statement, session)
        except asyncio.CancelledError:
            await asyncio.shield(self._engine.kill(asked.query_id))
            raise
        except ConnectionError:
            await self._engine.kill(asked.query_id)
            raise
        finally:
            self._reads.discard(asked.query_id)

    async def _plain(
        self, asked: Asked, statement: Statement, session: SessionConnection | None
    ) -> web.Response:
        sql, slot = statement.text, _SLOTS[statement.kind]
        if statement.kind is StatementKind.SELECT:
            sql, slot = with_processes(statement), Slot.CONTROL
        elif statement.first_word == "KILL":
            sql = with_kill(statement)
        classes = _CLASSES[statement.kind]
        if statement.first_word == "INSERT":
            classes |= {"CONTROL"}  # what chDB calls INSERT … SELECT … SETTINGS
        job = self._job(asked, sql, session, classes=classes)
        outcome = await asyncio.shield(self._engine.run(slot, job, session))
        if session is not None and statement.first_word in ("SET", "USE"):
            await self._engine.remember(session)
        at = output_format(statement)
        name = asked.default_format if at is None else statement.tokens[at + 1].text
        return whole_answer(
            outcome,
            outcome.body,
            asked.query_id,
            self._engine.timezone,
            name if outcome.body else None,
        )

    def _job(
        self,
        asked: Asked,
        sql: str,
        session: SessionConnection | None,
        *,
        classes: frozenset[str] | None = None,
    ) -> Job:
        return Job(
            sql,
            asked.query_id,
            self._database(asked, session),
            asked.settings,
            asked.params,
            asked.default_format,
            classes,
            checked="" if classes is None else sql,
        )

    def _database(self, asked: Asked, session: SessionConnection | None) -> str:
        return (
            asked.database
            or (session.database if session is not None else "")
            or self._engine.database
        )


async def _form_fields(request: web.Request) -> list[tuple[str, str]]:
    """The query and its parameters, as clients send them when they do not fit a URL."""
    fields: list[tuple[str, str]] = []
    async for part in await request.multipart():
        if not hasattr(part, "filename") or part.filename is not None or part.name is None:
            raise refuse(
                48,
                "NOT_IMPLEMENTED",
                "External data (tables sent along with a query) is not offered here",
            )
        fields.append((part.name, (await part.read(decode=True)).decode()))
    return fields


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise refuse(62, "SYNTAX_ERROR", "Syntax error: the statement is not UTF-8") from error
