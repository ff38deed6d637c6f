"""A model of ClickHouse: it outlives workers, remembers tokens, and breaks its word now and then.

A query is a task of the server's: whoever sent it may be dead when it is stored. What it does wrong
is what the real one and its network were seen to do:

* refuse, with codes of each class;
* lose an answer, before or after it has stored the block; answer too late;
* note a token and not store the part (killed, or its disk full, at the rename), where the table is
  not replicated;
* store the rows and fail in a view;
* be away, or restarted in the midst of queries; its table missing; its constraint violated;
* let a request arrive long after its sender gave it up.

It checks what is sent as well: a token names the same rows for ever, bounds of a shard's batches
are the same or apart, a block's number belongs to one batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from buffer.sink import SinkError
from schema.chcodes import ErrorClass, classify
from schema.layout import layout_of, live_layout
from schema.native import decode_blocks
from schema.streams import STREAMS, StreamKind
from tests.fakes.disk import Crash
from tests.simulation.loop import Process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from schema.block import Block, Layout
    from schema.ids import BlockNumber

ID_COLUMN = {
    StreamKind.METRICS: "value",
    StreamKind.LOGS: "message",
    StreamKind.DATA: "data",
    StreamKind.FILES: "fileName",
}
"""What holds a row's id, by which the audit knows it."""

TRANSIENT_CODES = (252, 241, 242, 159, 209, 202, 999, 243)
OPERATOR_CODES = ((516, 403), (497, 403), (53, 500), (16, 500), (999_999, 500))
TIMEOUT_SECONDS = 3.0
YOUNG_SECONDS = 2.0
"""So old at most is what the server's power cut may take."""


class Token(NamedTuple):
    """``shard:first-last:table:digest:generation``."""

    shard: str
    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Token:
        shard, bounds, _ = text.split(":", 2)
        first, last = bounds.split("-")
        return cls(shard, int(first), int(last))


class Part(NamedTuple):
    token: str
    number: int
    rows: tuple[int, ...]
    is_late: bool
    at: float = 0.0
    """When it was stored."""


@dataclass
class Table:
    kind: StreamKind
    is_replicated: bool
    parts: list[Part] = field(default_factory=list)
    tokens: deque[str] = field(default_factory=lambda: deque(maxlen=10_000))
    view_tokens: set[str] = field(default_factory=set)
    view_rows: list[tuple[int, bool]] = field(default_factory=list)
    has_batch: bool = True
    is_missing: bool = False
    has_constraint: bool = False
    names_bad_row: bool = True


@dataclass
class ServerMood:
    """Chances, an insert."""

    refuses: float = 0.0
    refuses_for_operator: float = 0.0
    loses_request: float = 0.0
    loses_answer: float = 0.0
    is_slow: float = 0.0
    cracks: float = 0.0
    view_fails: float = 0.0
    arrives_late: float = 0.0


class Query:
    """One insert on the server."""

    def __init__(self, query_id: str, done: asyncio.Future[None]) -> None:
        self.query_id = query_id
        self.done = done
        self.is_killed = False


class Server:
    """The server and its tables."""

    def __init__(self, random: Random, bad: set[int], note: Callable[[str], None]) -> None:
        self.random = random
        self.bad = bad
        """Rows that a table with a constraint refuses."""
        self.note = note
        self.mood = ServerMood()
        self.is_up = True
        self.is_strict = True
        """Bounds and numbers of batches are checked."""
        self.tables = {kind: Table(kind, random.random() < 0.25) for kind in StreamKind}
        self.running: dict[str, Query] = {}
        self.settled: set[str] = set()
        self.violations: list[str] = []
        self.happened: dict[str, int] = {}
        self.refused_bad: set[int] = set()
        self.lost_rows: dict[StreamKind, set[int]] = {}
        """Stored, and taken by a power cut of the server."""
        self.lost_blocks: dict[tuple[StreamKind, int], tuple[int, ...]] = {}
        self.confirmed: set[tuple[StreamKind, int]] = set()
        self.has_lost_power = False
        self._token_rows: dict[str, tuple[int, ...]] = {}
        self._bounds: dict[tuple[str, StreamKind], dict[int, int]] = {}
        self._number_batch: dict[tuple[StreamKind, int], Token] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def count(self, what: str) -> None:
        self.happened[what] = self.happened.get(what, 0) + 1

    def stored(self, kind: StreamKind) -> set[int]:
        """Ids of a table's rows."""
        return {row for part in self.tables[kind].parts for row in part.rows}

    def go_down(self) -> None:
        """Killed: queries end wherever they are."""
        self.is_up = False
        for query in list(self.running.values()):
            self._fail(query, lost())
        self.running.clear()

    def lose_power(self) -> None:
        """What its own syncs did not cover is gone: tokens and views of late, and at times parts.

        A part is synced before its insert is answered; a file system that lies, or a merge that
        was under way, takes some all the same. What a table has lost is written down.
        """
        self.go_down()
        self.has_lost_power = True
        now = asyncio.get_running_loop().time()
        for table in self.tables.values():
            if table.is_replicated:
                continue
            young = [part.token for part in table.parts if now - part.at < YOUNG_SECONDS]
            gone = [token for token in young if self.random.random() < 0.3]
            lost = {row for part in table.parts if part.token in gone for row in part.rows}
            self.lost_rows.setdefault(table.kind, set()).update(lost)
            self.lost_blocks |= {
                (table.kind, part.number): part.rows for part in table.parts if part.token in gone
            }
            table.parts = [part for part in table.parts if part.token not in gone]
            for token in young:
                if self.random.random() < 0.5 and token in table.tokens:
                    table.tokens.remove(token)
            if gone:
                self.count("power_took_parts")

    def come_up(self) -> None:
        self.is_up = True

    def send(
        self, kind: StreamKind, rows: tuple[int, ...], number: int, token: str, query_id: str
    ) -> Query:
        """A request leaves; what becomes of it is the server's."""
        self._check(kind, rows, number, token)
        query = Query(query_id, asyncio.get_running_loop().create_future())
        query.done.add_done_callback(lambda done: done.cancelled() or done.exception())
        outside = Process.current.set(None)  # it outlives its sender
        task = asyncio.create_task(self._serve(query, self.tables[kind], rows, number, token))
        Process.current.reset(outside)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return query

    async def _serve(
        self, query: Query, table: Table, rows: tuple[int, ...], number: int, token: str
    ) -> None:
        random, mood = self.random, self.mood
        try:
            await asyncio.sleep(0.0005 + random.random() * 0.003)
            if random.random() < mood.loses_request:
                self.count("request_lost")
                raise lost()
            is_late = False
            if random.random() < mood.arrives_late:
                await asyncio.sleep(random.random() * 6)
                is_late = query.query_id in self.settled
                self.count("request_late")
            if not self.is_up:
                raise lost()
            if query.query_id in self.running:
                raise refusal(216, 500)
            self.running[query.query_id] = query
            try:
                await self._run(query, table, Part(token, number, rows, is_late))
            finally:
                if self.running.get(query.query_id) is query:
                    del self.running[query.query_id]
            if random.random() < mood.loses_answer:
                self.count("answer_lost")
                raise lost()
            await asyncio.sleep(random.random() * 0.002)
        except SinkError as error:
            self._fail(query, error)
        else:
            if not query.done.done():
                query.done.set_result(None)

    async def _run(self, query: Query, table: Table, part: Part) -> None:
        random, mood = self.random, self.mood
        slow = random.random() < mood.is_slow
        await asyncio.sleep(random.random() * (8.0 if slow else 0.02))
        self._live(query)
        if table.is_missing:
            raise refusal(60, 404)
        if random.random() < mood.refuses:
            self.count("refused_for_now")
            raise refusal(random.choice(TRANSIENT_CODES), 500)
        if random.random() < mood.refuses_for_operator:
            self.count("refused_for_operator")
            raise refusal(*random.choice(OPERATOR_CODES))
        if table.has_constraint:
            self._constrain(table, part)
        if part.token not in table.tokens:
            table.tokens.append(part.token)
            if not table.is_replicated and random.random() < mood.cracks:
                # Killed, or its disk full, between the token and the part.
                self.count("token_without_part")
                raise random.choice([lost(), refusal(243, 500)])
            table.parts.append(part._replace(at=asyncio.get_running_loop().time()))
            self.note(f"server: {table.kind.name} block {part.number:x} stored, {part.token}")
        else:
            self.count("token_known")
        if random.random() < 0.3:
            await asyncio.sleep(random.random() * 0.01)
            self._live(query)
        if random.random() < mood.view_fails:
            self.count("view_failed")
            if not table.has_batch:  # nobody can tell a view's word from the table's
                self.refused_bad.update(part.rows)
            raise refusal(random.choice([395, 70]), 500)
        if part.token not in table.view_tokens:
            table.view_tokens.add(part.token)
            table.view_rows.extend((row, part.is_late) for row in part.rows)

    def _constrain(self, table: Table, part: Part) -> None:
        for index, row in enumerate(part.rows):
            if row in self.bad:
                self.refused_bad.update(self.bad.intersection(part.rows))
                raise SinkError(
                    ErrorClass.ROWS,
                    469,
                    f"violated at row {index + 1}",
                    is_outcome_unknown=True,
                    bad_row=index if table.names_bad_row else None,
                )

    def _live(self, query: Query) -> None:
        if query.is_killed:
            raise refusal(394, 500)
        if query.done.done():  # the server was restarted under it
            raise lost()

    def _fail(self, query: Query, error: SinkError) -> None:
        if not query.done.done():
            query.done.set_exception(error)

    def _check(self, kind: StreamKind, rows: tuple[int, ...], number: int, token: str) -> None:
        if self._token_rows.setdefault(token, rows) != rows:
            self.violations.append(f"token {token} was used for other rows")
        batch = Token.parse(token)
        if not self.is_strict:
            return
        bounds = self._bounds.setdefault((batch.shard, kind), {})
        if bounds.setdefault(batch.first, batch.last) != batch.last:
            self.violations.append(f"batch {token} was {batch.first}-{bounds[batch.first]} before")
        elif any(a < batch.first <= b for a, b in bounds.items() if a != batch.first):
            self.violations.append(f"batch {token} overlaps another one")
        if not self.tables[kind].has_batch:
            return
        if self._number_batch.setdefault((kind, number), batch) != batch:
            self.violations.append(f"block {number:x} belongs to two batches, {token} is one")


class ModelSink:
    """One worker's way to the server."""

    def __init__(self, server: Server, process: Process) -> None:
        self._server = server
        self._process = process

    async def layout(self, kind: StreamKind) -> Layout:
        await self._ask()
        if self._server.tables[kind].is_missing:
            raise refusal(60, 404)
        return self._layout(kind)

    def _layout(self, kind: StreamKind) -> Layout:
        stream = STREAMS[kind]
        if self._server.tables[kind].has_batch:
            return layout_of(stream)
        types = {column.name: column.type for column in stream.columns if column.name != "batch"}
        return live_layout(stream, types)

    async def is_replicated(self, kind: StreamKind) -> bool:
        await self._ask()
        return self._server.tables[kind].is_replicated

    async def insert(self, layout: Layout, block: Block, *, token: str, query_id: str) -> None:
        await self._ask()
        kind = layout.stream.kind
        [decoded] = decode_blocks(b"".join(block.pieces))
        values = decoded.columns[decoded.names.index(ID_COLUMN[kind])]
        number: object = 0
        if layout.has_batch:
            [number] = set(decoded.columns[decoded.names.index("batch")])
        assert decoded.row_count == block.rows > 0
        rows = tuple(int(float(str(value))) for value in values)
        query = self._server.send(kind, rows, int(str(number)), token, query_id)
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await asyncio.shield(query.done)
        except TimeoutError:
            self._server.count("answer_timed_out")
            raise lost() from None
        self._live()
        if layout.has_batch:
            self._server.confirmed.add((kind, int(str(number))))
        else:
            self._server.count("sent_without_batch")

    async def settle(self, query_id: str) -> None:
        await self._ask()
        server = self._server
        while (query := server.running.get(query_id)) is not None:
            if server.random.random() < 0.5:
                query.is_killed = True
            await asyncio.sleep(0.05)
            await self._ask()
        server.settled.add(query_id)

    async def has_batch(self, layout: Layout, number: BlockNumber) -> bool:
        await self._ask()
        table = self._server.tables[layout.stream.kind]
        if table.is_missing:
            raise refusal(60, 404)
        return any(part.number == number for part in table.parts)

    async def stored_rows(
        self, layout: Layout, numbers: Sequence[BlockNumber], *, since_s: int | None
    ) -> Mapping[int, int]:
        await self._ask()
        found: dict[int, int] = {}
        for part in self._server.tables[layout.stream.kind].parts:
            if part.number in numbers:
                found[part.number] = found.get(part.number, 0) + len(part.rows)
        return found

    async def count_rows(self, layout: Layout, rows: Sequence[Mapping[str, object]]) -> int:
        await self._ask()
        kind = layout.stream.kind
        wanted = {int(float(str(row[ID_COLUMN[kind]]))) for row in rows}
        return len(wanted & self._server.stored(kind))

    async def close(self) -> None:
        pass

    async def _ask(self) -> None:
        self._live()
        await asyncio.sleep(0.0005 + self._server.random.random() * 0.002)
        self._live()
        if not self._server.is_up:
            raise SinkError(
                ErrorClass.TRANSIENT, None, "connection refused", is_outcome_unknown=False
            )

    def _live(self) -> None:
        if not self._process.is_alive:
            raise Crash


def refusal(code: int, status: int) -> SinkError:
    return SinkError(
        classify(code, status), code, f"Code: {code}.", is_outcome_unknown=status >= 500
    )


def lost() -> SinkError:
    return SinkError(ErrorClass.TRANSIENT, None, "the answer was lost", is_outcome_unknown=True)
