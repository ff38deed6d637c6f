"""A model of ClickHouse behind the `Sink` protocol: tokens, parts, and every way to be unhelpful.

It keeps what the real one keeps (parts with their rows, tokens in a window, live columns), and does
on command what the real one does by accident: refuses by code, loses answers before or after
storing, notes a token without its part, lets a late query land when it is settled, throws from a
view.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from buffer.lookups import identity
from buffer.sink import SinkError
from schema.chcodes import ErrorClass, classify
from schema.layout import Layout, layout_of
from schema.native import decode_blocks
from schema.streams import STREAMS

VIOLATED_CONSTRAINT = 469
DEDUP_WINDOW = 10_000


@dataclass
class Part:
    token: str
    number: int | None
    rows: list[dict]


@dataclass
class Insert:
    token: str
    query_id: str
    rows: int
    number: int | None


@dataclass
class FakeTable:
    layout: Layout
    is_replicated: bool = False
    parts: list[Part] = field(default_factory=list)
    tokens: deque = field(default_factory=lambda: deque(maxlen=DEDUP_WINDOW))
    inserts: list[Insert] = field(default_factory=list)
    script: deque = field(default_factory=deque)
    """What the next inserts do, one each; none left: they work."""
    is_bad: object = None
    """A CHECK constraint: a function of a row; rows for which it is true are refused with 469."""
    names_bad_row: bool = True
    layout_error: SinkError | None = None
    layout_reads: int = 0
    view_refuses: bool = False
    view_rows: list[dict] = field(default_factory=list)

    @property
    def rows(self):
        return [row for part in self.parts for row in part.rows]

    def store(self, token, number, rows):
        if token in self.tokens:
            return
        self.tokens.append(token)
        self.parts.append(Part(token, number, rows))


def refusal(code, status=500):
    return SinkError(
        classify(code, status), code, f"Code: {code}.", is_outcome_unknown=status >= 500
    )


def lost():
    return SinkError(ErrorClass.TRANSIENT, None, "the answer was lost", is_outcome_unknown=True)


def unreachable():
    return SinkError(ErrorClass.TRANSIENT, None, "connection refused", is_outcome_unknown=False)


class FakeSink:
    def __init__(self):
        self.tables = {kind: FakeTable(layout_of(stream)) for kind, stream in STREAMS.items()}
        self.is_down = False
        self.settled = []
        self.late = {}
        """Query id to what lands when somebody settles that query."""
        self.asked = []
        self.looks = []
        """Of reconciliation: how many blocks, and since when."""
        self.is_closed = False

    async def layout(self, kind):
        self._up()
        table = self.tables[kind]
        table.layout_reads += 1
        if table.layout_error is not None:
            raise table.layout_error
        return table.layout

    async def is_replicated(self, kind):
        self._up()
        return self.tables[kind].is_replicated

    async def insert(self, layout, block, *, token, query_id):
        self._up()
        table = self.tables[layout.stream.kind]
        [decoded] = decode_blocks(b"".join(block.pieces))
        assert decoded.row_count == block.rows > 0
        rows = [
            dict(zip(decoded.names, row, strict=True)) for row in zip(*decoded.columns, strict=True)
        ]
        number = rows[0].get("batch")
        assert {row.get("batch") for row in rows} == {number}
        table.inserts.append(Insert(token, query_id, len(rows), number))
        if table.script:
            await table.script.popleft()(self, table, token, number, rows, query_id)
            return
        self._store(table, token, number, rows)

    async def settle(self, query_id):
        self._up()
        self.settled.append(query_id)
        if query_id in self.late:
            self.late.pop(query_id)()

    async def has_batch(self, layout, number):
        self._up()
        assert layout.has_batch
        self.asked.append(number)
        return any(part.number == number for part in self.tables[layout.stream.kind].parts)

    async def stored_rows(self, layout, numbers, *, since_s):
        self._up()
        self.looks.append((len(numbers), since_s))
        found = {}
        for part in self.tables[layout.stream.kind].parts:
            if part.number in numbers and part.rows:
                found[part.number] = found.get(part.number, 0) + len(part.rows)
        return found

    async def count_rows(self, layout, rows):
        self._up()
        kind = layout.stream.kind
        return len(set(identity(kind, self.tables[kind].rows)) & set(identity(kind, rows)))

    async def close(self):
        self.is_closed = True

    def _up(self):
        if self.is_down:
            raise unreachable()

    def _store(self, table, token, number, rows):
        if table.is_bad is not None:
            for index, row in enumerate(rows):
                if table.is_bad(row):
                    raise SinkError(
                        ErrorClass.ROWS,
                        VIOLATED_CONSTRAINT,
                        f"Constraint `c` is violated at row {index + 1}",
                        is_outcome_unknown=True,
                        bad_row=index if table.names_bad_row else None,
                    )
        table.store(token, number, rows)
        if table.view_refuses:
            raise SinkError(ErrorClass.ROWS, 70, "while pushing to view", is_outcome_unknown=True)
        seen = {row_token for row_token, _ in table.view_rows}
        if token not in seen:
            table.view_rows.extend((token, row) for row in rows)


# What one insert may do; put into a table's script.


def refuse(code, status=500):
    async def act(sink, table, token, number, rows, query_id):
        raise refusal(code, status)

    return act


def store_and_lose_answer():
    async def act(sink, table, token, number, rows, query_id):
        sink._store(table, token, number, rows)
        raise lost()

    return act


def store_without_view():
    """The engine ended between the part of the table and that of its view."""

    async def act(sink, table, token, number, rows, query_id):
        table.store(token, number, rows)
        raise lost()

    return act


def lose_request():
    async def act(sink, table, token, number, rows, query_id):
        raise lost()

    return act


def note_token_only():
    """The engine's crack: the token is kept, the part is not, and the client hears nothing."""

    async def act(sink, table, token, number, rows, query_id):
        table.tokens.append(token)
        raise lost()

    return act


def land_when_settled():
    """The answer times out while the query still runs; it lands before it can be killed."""

    async def act(sink, table, token, number, rows, query_id):
        sink.late[query_id] = lambda: table.store(token, number, rows)
        raise lost()

    return act


def block_until(event):
    async def act(sink, table, token, number, rows, query_id):
        await event.wait()
        sink._store(table, token, number, rows)

    return act


def crash(error):
    async def act(sink, table, token, number, rows, query_id):
        raise error

    return act
