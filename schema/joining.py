"""A block's columns from many frames of metrics: joins of what each frame holds, in slices.

Per frame: one look-up of its head, one cut of its tail, a few entries in lists. Per slice of rows:
a join a column. A slice is small, because a join holds Python's lock from its beginning to its end,
and requests are answered by another thread of the same process.
"""

from __future__ import annotations

import struct
from array import array
from itertools import chain, repeat
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

from schema.coltypes import index_typecode
from schema.expand import repeat_lines
from schema.heads import TAIL_MARKS_BYTES
from schema.lowcardinality import Keys, low_cardinality_data
from schema.steps import integers_of, rows_of_lines, steps_unfit
from schema.streams import Origin
from schema.varint import text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from schema.heads import Head, Heads
    from schema.layout import Layout, LayoutColumn
    from schema.stack import ChunkStack, Owner

SLICE_ROWS = 16_384
"""Rows of one join: 128 KiB of values, joined in less than 0.1 ms."""

_HEAD = struct.Struct("<xI")
_U64 = struct.Struct("<Q")
_tenant, _project = attrgetter("tenant"), attrgetter("project")

_Span: TypeAlias = "tuple[Owner, int]"
"""Whose rows a frame has, and how many."""


class _Slice:
    """What some thousand rows are made of."""

    __slots__ = ("heads", "rows", "spans", "steps", "times", "values")

    def __init__(self) -> None:
        self.rows = 0
        self.heads: list[Head] = []
        self.spans: list[_Span] = []
        self.times: list[bytes] = []
        self.steps: list[bytes] = []
        self.values: list[bytes] = []


def join_metrics(
    layout: Layout, frames: ChunkStack, batch: int, first_row: int, heads: Heads
) -> list[list[bytes]] | None:
    """The data of each column of the layout, in pieces; None where a frame is of another form.

    Args:
        layout: of the table of metrics.
        frames: at least one row.
        batch: the value of the column ``batch``.
        first_row: the number of the first row, for an error's row numbers.
        heads: known ones; those met are added.

    Raises:
        RowsUnfit: steps that the table's type cannot hold.
    """
    spans: dict[_Span, _Span] = {}
    slices = _slices(frames, heads, spans)
    if slices is None:
        return None
    joined: dict[str, list[bytes]] = {}
    for entry in layout.columns:
        column, name = entry.column, entry.column.name
        if column.origin is Origin.BLOCK:
            joined[name] = constant(_U64.pack(batch), sum(frames.row_counts))
        elif name == "runId":
            joined[name] = _runs(slices, spans)
        elif column.origin is Origin.FRAME:
            of = _tenant if name == "tenantId" else _project
            joined[name] = _owners(slices, spans, of)
        elif name == "logGroup":
            joined[name] = _names(slices, lambda head: head.groups)
        elif name == "logName":
            joined[name] = _names(slices, lambda head: head.names)
        elif name == "time":
            joined[name] = [_a_line(piece, piece.times) for piece in slices]
        elif name == "step":
            joined[name] = _steps(slices, entry, first_row)
        else:
            joined[name] = [b"".join(piece.values) for piece in slices]
    while slices:
        slices.pop()  # all at once would hold Python's lock for 3 ms with frames of ten rows
    return list(joined.values())


def constant(value: bytes, rows: int) -> list[bytes]:
    """The same value in all rows: one piece, many times over."""
    piece = value * min(rows, SLICE_ROWS)
    whole, rest = divmod(rows, SLICE_ROWS)
    return [piece] * whole + ([value * rest] if rest else [])


def _slices(frames: ChunkStack, heads: Heads, spans: dict[_Span, _Span]) -> list[_Slice] | None:
    """Frames by slices; the distinct spans among them are added."""
    slices: list[_Slice] = []
    find, learn = heads.find, heads.learn
    piece = _Slice()
    for payload, rows, owner in zip(frames.payloads, frames.row_counts, frames.owners, strict=True):
        if not rows:
            continue
        if len(payload) < TAIL_MARKS_BYTES:
            return None
        lines = _HEAD.unpack_from(payload)[0] or rows
        at = len(payload) - 16 * lines - 8 * rows - TAIL_MARKS_BYTES
        if at <= 0:
            return None
        raw = payload[:at]
        head = find(raw)
        if head is None or head.rows != rows:
            head = learn(raw, rows)
            if head is None:
                return None
        times_mark, times, steps_mark, steps, values_mark, values = head.tail.unpack_from(
            payload, at
        )
        if not times_mark == steps_mark == head.line_mark or values_mark != head.value_mark:
            return None
        piece.heads.append(head)
        # The same tuple for the same rows: one a frame would be a matter for the collector of
        # cycles, which took 2 ms in one go.
        span = owner, rows
        piece.spans.append(spans.setdefault(span, span))
        piece.times.append(times)
        piece.steps.append(steps)
        piece.values.append(values)
        piece.rows += rows
        if piece.rows >= SLICE_ROWS:
            slices.append(piece)
            piece = _Slice()
    if piece.rows:
        slices.append(piece)
    return slices


def _a_line(piece: _Slice, bodies: Sequence[bytes]) -> bytes:
    """A column that is stored once a line, once a row."""
    body = b"".join(bodies)
    evens = {head.even for head in piece.heads}
    even = evens.pop() if len(evens) == 1 else 0
    return repeat_lines(body, even, lambda: chain.from_iterable(_counts(piece)))


def _counts(piece: _Slice) -> Iterable[Iterable[int]]:
    return (head.counts or repeat(1, head.lines) for head in piece.heads)


def _steps(slices: Sequence[_Slice], entry: LayoutColumn, first_row: int) -> list[bytes]:
    """Steps, as integers where the table holds them so.

    Raises:
        RowsUnfit: fractional steps, or negative ones for UInt64: all such rows of all frames.
    """
    if entry.type == entry.column.type:
        return [_a_line(piece, piece.steps) for piece in slices]
    pieces: list[bytes] = []
    unfit: list[int] = []
    start = first_row
    for piece in slices:
        whole, lines = integers_of(b"".join(piece.steps), entry.type)
        pieces.append(_a_line(piece, [whole]))
        unfit.extend(rows_of_lines(lines, chain.from_iterable(_counts(piece)), start))
        start += piece.rows
    if unfit:
        raise steps_unfit(unfit, entry.type)
    return pieces


def _runs(slices: Sequence[_Slice], spans: Iterable[_Span]) -> list[bytes]:
    packed = {span: _U64.pack(span[0].run_id) * span[1] for span in spans}
    return [b"".join([packed[span] for span in piece.spans]) for piece in slices]


def _owners(
    slices: Sequence[_Slice], spans: Iterable[_Span], of: Callable[[Owner], str]
) -> list[bytes]:
    """A column of one string a frame: a dictionary, and an index a row."""
    keys = Keys()
    places = {span: keys[text(of(span[0]))] for span in spans}
    number, typecode = index_typecode(len(keys))
    packed = {span: array(typecode, [place]).tobytes() * span[1] for span, place in places.items()}
    indices = [b"".join([packed[span] for span in piece.spans]) for piece in slices]
    return low_cardinality_data(number, keys, sum(piece.rows for piece in slices), indices)


def _names(
    slices: Sequence[_Slice], of: Callable[[Head], tuple[tuple[bytes, ...], ...]]
) -> list[bytes]:
    """A column of names: a dictionary, and an index a row, packed once for each head."""
    keys = Keys()
    # Tuples of numbers, which the collector of cycles lets alone: with ever-new keys there is a
    # head a frame, and lists of lists made it run for half of the time.
    places: dict[Head, tuple[tuple[int, ...], ...]] = {}
    for piece in slices:
        for head in piece.heads:
            if head not in places:
                places[head] = tuple([keys.places(strings) for strings in of(head)])
    number, code = index_typecode(len(keys))
    packed = {
        head: _of_lines(head, [array(code, one).tobytes() for one in lists])
        for head, lists in places.items()
    }
    indices = [b"".join([packed[head] for head in piece.heads]) for piece in slices]
    return low_cardinality_data(number, keys, sum(piece.rows for piece in slices), indices)


def _of_lines(head: Head, packed: list[bytes]) -> bytes:
    """All rows of a head, from the packed indices of its pieces."""
    if head.indices:
        return b"".join([packed[index] for index in head.indices])
    return packed[0] * (head.rows // len(head.names[0]))
