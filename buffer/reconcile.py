"""Comparing what was delivered with what is stored, block by block, through the column ``batch``.

A block is one part: all of it was stored or nothing. Later a table may hold fewer of its rows,
because merges collapse rows that came again in another block. So

* no row there: **missing**, unless rows of it are found under other blocks: then **replaced**;
* fewer rows than were sent: **short**, which is what repeats look like, and deletions;
* a table without the column cannot be compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from buffer.lookups import identity
from schema.reading import rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from buffer.frame import Frame
    from buffer.journal import Delivered
    from buffer.sink import Sink
    from schema.block import Layout

ASKED_MAX = 500
"""Blocks in one question."""

CLOCKS_APART_SECONDS = 600
"""Between ours and the server's, at most, for the quick look; a block that it does not find is
looked for everywhere."""

SAMPLE_ROWS = 64
"""Of a missing block, looked for one by one."""


class BlockState(Enum):
    """What became of a delivered block."""

    STORED = "stored"
    SHORT = "short"
    REPLACED = "replaced"
    MISSING = "missing"
    NOT_COMPARED = "not compared"


@dataclass(frozen=True, slots=True)
class Compared:
    """One block, and how many of its rows are there."""

    delivered: Delivered
    state: BlockState
    stored_rows: int


async def compare(sink: Sink, layout: Layout, records: Sequence[Delivered]) -> list[Compared]:
    """The state of each block of one table, in their order.

    Raises:
        SinkError: the server did not answer.
    """
    if not layout.has_batch:
        return [Compared(record, BlockState.NOT_COMPARED, 0) for record in records]
    compared: list[Compared] = []
    for at in range(0, len(records), ASKED_MAX):
        some = records[at : at + ASKED_MAX]
        stored = await _stored(sink, layout, some)
        compared += [_compared(record, stored.get(record.number, 0)) for record in some]
    return compared


async def _stored(sink: Sink, layout: Layout, records: Sequence[Delivered]) -> Mapping[int, int]:
    oldest_ns = min(record.delivered_at_ns for record in records)
    since_s = oldest_ns // 10**9 - CLOCKS_APART_SECONDS
    numbers = list({record.number for record in records})
    stored: dict[int, int] = dict(await sink.stored_rows(layout, numbers, since_s=since_s))
    absent = [number for number in numbers if number not in stored]
    if absent:  # a merge between two looks, clocks far apart, or it is not there
        stored |= await sink.stored_rows(layout, absent, since_s=None)
    return stored


def _compared(record: Delivered, stored_rows: int) -> Compared:
    if not stored_rows:
        return Compared(record, BlockState.MISSING, 0)
    is_short = stored_rows < record.rows
    return Compared(record, BlockState.SHORT if is_short else BlockState.STORED, stored_rows)


async def is_replaced(
    sink: Sink, layout: Layout, record: Delivered, frames: Sequence[Frame]
) -> bool:
    """Whether a missing block's rows are there all the same, under other blocks' numbers.

    Args:
        sink: where to ask.
        layout: of the table.
        record: of the block.
        frames: all frames of its batch.

    Raises:
        SinkError: the server did not answer.
    """
    rows = sample(record, frames)
    wanted = len(identity(record.kind, rows))
    return wanted > 0 and await sink.count_rows(layout, rows) == wanted


def sample(record: Delivered, frames: Sequence[Frame]) -> list[Mapping[str, object]]:
    """Rows from all over a block, at most `SAMPLE_ROWS`."""
    step = max((record.end_row - record.first_row) // SAMPLE_ROWS, 1)
    wanted = iter(range(record.first_row, record.end_row, step))
    chosen: list[Mapping[str, object]] = []
    row = next(wanted, None)
    start = 0
    for frame in frames:
        end = start + frame.chunks.row_count
        if row is not None and row < end:
            for index, values in enumerate(rows_of(frame.chunks), start):
                if index == row:
                    chosen.append(values)
                    row = next(wanted, None)
        start = end
    return chosen[:SAMPLE_ROWS]
