"""ClickHouse's HTTP interface over the engine: one handler, one statement a request."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from aiohttp import BodyPartReader, web

from ingest.embedded_answers import error_answer, stream_select, whole_answer
from ingest.embedded_body import DataFile, InsertRoom, decoded, read_head
from ingest.embedded_connection import Job, Outcome
from ingest.embedded_engine import Engine, Slot
from ingest.embedded_errors import EngineError, refuse
from ingest.embedded_query_ids import reads_processes, with_kill, with_processes
from ingest.embedded_request import Asked, Door, read_request
from ingest.embedded_sessions import Session, Sessions
from ingest.embedded_statement import (
    QUERY_CHARS_MAX,
    Statement,
    StatementKind,
    insert_from,
    output_format,
    read_statement,
    select_into,
)
from ingest.embedded_underway import Underway
from schema.handing import HEADER, TAKEN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

READS_MAX: Final = 64
"""SELECTs under way or waiting; more are refused at once, as ClickHouse does."""
_FORM: Final = "multipart/form-data"
_SYNTAX_ERROR: Final = 62
_READING: Final = (StatementKind.SELECT, StatementKind.DESCRIBE)

# CONTROL is what the parser calls temporary tables, and INSERT … SELECT … SETTINGS.
_CLASSES: Final = {
    StatementKind.SELECT: frozenset({"READ_ONLY"}),
    StatementKind.DESCRIBE: frozenset({"READ_ONLY"}),
    StatementKind.COMMAND: frozenset({"MUTATING", "CONTROL"}),
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


@dataclass(frozen=True, slots=True)
class _Call:
    """One request, read as far as its statement."""

    request: web.Request
    asked: Asked
    statement: Statement
    data: bytes = field(repr=False)
    """Of an INSERT: the part of its data that was read along with its head."""
    body: AsyncIterator[bytes] = field(repr=False)


class Front:
    """The handlers and what they share."""

    def __init__(self, engine: Engine, door: Door) -> None:
        self._engine = engine
        self._door = door
        self._sessions = Sessions(engine)
        self._room = InsertRoom()
        self._underway = Underway(engine)
        self._reads: dict[asyncio.Task[Outcome], Job] = {}

    def app(self) -> web.Application:
        """The application; serve it with `auto_decompress=False`, `handler_cancellation=True`."""
        app = web.Application()
        app.router.add_get("/ping", self._ping)
        app.router.add_route("GET", "/", self._handle)
        app.router.add_route("POST", "/", self._handle)
        return app

    def close_idle_sessions(self) -> None:
        """Once a second."""
        self._sessions.close_idle()

    async def finish(self) -> None:
        """Ends SELECTs, which on the way down only delay inserts, and waits for all the rest."""
        reads = list(self._reads.items())
        await asyncio.gather(*(self._underway.end(task, job) for task, job in reads))
        await self._underway.all_ended()
        self._sessions.close()

    async def _ping(self, _request: web.Request) -> web.Response:
        return web.Response(text="Ok.\n")

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        query_id = ""
        try:
            self._door.check(request.headers, request.query)
            encoding = request.headers.get("Content-Encoding", "")
            async with aclosing(decoded(request.content.iter_any(), encoding)) as body:
                is_form = request.content_type == _FORM
                pairs = [*request.query.items()]
                if is_form:
                    pairs += await _form_fields(request)
                asked = read_request(request.method, pairs, request.headers)
                query_id = asked.query_id
                statement, data = await self._read(asked, body, is_whole=is_form)
                if statement is None:
                    return web.Response(text="Ok.\n")
                return await self._answer(_Call(request, asked, statement, data, body))
        except EngineError as error:
            return error_answer(error, query_id)

    async def _read(
        self, asked: Asked, body: AsyncIterator[bytes], *, is_whole: bool
    ) -> tuple[Statement | None, bytes]:
        """The statement, from URL and body together as ClickHouse takes them."""
        refused = self._engine.refused_functions
        if asked.query:
            statement = read_statement(asked.query, refused)
            if statement.kind is StatementKind.INSERT_DATA:
                return statement, _encoded(asked.query[statement.data_start :])
        head = b"" if is_whole else await read_head(body)
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

    async def _answer(self, call: _Call) -> web.StreamResponse:
        statement = call.statement
        if call.asked.is_get and statement.kind not in _READING:
            raise refuse(
                164, "READONLY", "Cannot execute query in readonly mode: GET implies readonly"
            )
        if statement.kind is StatementKind.INSERT_DATA:
            return await self._insert(call)
        if statement.kind is StatementKind.SELECT and not reads_processes(statement):
            return await self._select(call)
        return await self._plain(call)

    async def _insert(self, call: _Call) -> web.Response:
        file = DataFile(self._room, call.request.headers.get(HEADER))
        try:
            file.write(call.data)
            async for piece in call.body:
                file.write(piece)
            job = self._job(call, insert_from(call.statement, file.name))
        except BaseException:
            file.close()
            raise
        # A client that goes away does not undo an insert whose data is all here.
        outcome = await asyncio.shield(self._begin(Slot.INSERT, job, call.asked, file.close))
        answer = whole_answer(outcome, b"", job.query_id, self._engine.timezone, None)
        if HEADER in call.request.headers:
            answer.headers[HEADER] = TAKEN
        return answer

    async def _select(self, call: _Call) -> web.StreamResponse:
        if len(self._reads) >= READS_MAX:
            raise refuse(
                202, "TOO_MANY_SIMULTANEOUS_QUERIES", f"Too many simultaneous queries: {READS_MAX}"
            )
        asked = call.asked
        settings = {"max_execution_time": str(self._engine.limits.read_seconds), **asked.settings}
        classes = _CLASSES[call.statement.kind]
        job = replace(
            self._job(call, call.statement.text),
            settings=settings,
            checked=call.statement.text,
            classes=classes,
        )

        def run(sql: str, when_done: Callable[[], None]) -> asyncio.Task[Outcome]:
            task = self._begin(Slot.READ, replace(job, sql=sql), asked, when_done)
            self._reads[task] = job
            task.add_done_callback(self._reads.pop)
            return task

        try:
            return await stream_select(
                call.request,
                lambda file: select_into(call.statement, file, asked.default_format),
                run,
                lambda task: self._underway.end(task, job),
                query_id=asked.query_id,
                timezone=self._engine.timezone,
            )
        except EngineError as error:
            if error.code != _SYNTAX_ERROR:
                raise
            # Our INTO may be at fault (a column named `format` at the end): as it was sent, then.
            return await self._plain(call)

    async def _plain(self, call: _Call) -> web.Response:
        statement, asked = call.statement, call.asked
        sql, slot = statement.text, _SLOTS[statement.kind]
        if statement.kind is StatementKind.SELECT and reads_processes(statement):
            sql, slot = with_processes(statement), Slot.CONTROL
            await self._underway.visible(statement)
        elif statement.first_word == "KILL":
            sql = with_kill(statement)
            self._underway.void(statement)
        job = replace(
            self._job(call, sql),
            checked=statement.text,
            classes=_CLASSES[statement.kind],
            changes_session=statement.first_word in ("SET", "USE"),
        )
        outcome = await asyncio.shield(self._begin(slot, job, asked))
        at = output_format(statement)
        name = asked.default_format if at is None else statement.tokens[at + 1].text
        return whole_answer(
            outcome,
            outcome.body,
            asked.query_id,
            self._engine.timezone,
            name if statement.kind in _READING or outcome.body else None,
        )

    def _job(self, call: _Call, sql: str) -> Job:
        asked = call.asked
        return Job(sql, asked.query_id, "", asked.settings, asked.params, asked.default_format)

    def _begin(
        self, slot: Slot, job: Job, asked: Asked, when_done: Callable[[], None] | None = None
    ) -> asyncio.Task[Outcome]:
        """Hands a job to the engine; it ends by itself, whether or not its request waits.

        Its files and its session are its own until then.
        """
        session: Session | None = None
        try:
            if asked.session_id is not None:
                session = self._sessions.find(asked.session_id, must_exist=asked.must_exist)
                session.take(asked.session_seconds)
        except EngineError:
            if when_done is not None:
                when_done()
            raise
        current = session.connection.database if session is not None else ""
        job = replace(job, database=asked.database or current or self._engine.database)
        task = asyncio.create_task(self._run(slot, job, session, when_done))
        self._underway.add(task, job)
        return task

    async def _run(
        self, slot: Slot, job: Job, session: Session | None, when_done: Callable[[], None] | None
    ) -> Outcome:
        try:
            connection = session.connection if session is not None else None
            return await self._engine.run(slot, job, connection)
        finally:
            if session is not None:
                session.release()
            if when_done is not None:
                when_done()


async def _form_fields(request: web.Request) -> list[tuple[str, str]]:
    """The query and its parameters, as clients send them when they do not fit a URL."""
    fields: list[tuple[str, str]] = []
    async for part in await request.multipart():
        if not isinstance(part, BodyPartReader) or part.name is None or part.filename is not None:
            raise refuse(
                48, "NOT_IMPLEMENTED", "External data (tables sent with a query) is not offered"
            )
        fields.append((part.name, (await part.read(decode=True)).decode()))
    return fields


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise refuse(62, "SYNTAX_ERROR", "Syntax error: the statement is not UTF-8") from error
