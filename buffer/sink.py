"""Where blocks go: what the flusher asks of ClickHouse, and the one error it gets back.

Two sides are real: `buffer.clickhouse.ClickHouseSink`, and the model in ``tests/fakes/sink.py``
that loses answers, forgets parts and refuses by code. The flusher knows only this page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from buffer.errors import BufferFailure
from schema.chcodes import ErrorClass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schema.block import Block, Layout
    from schema.ids import BlockNumber
    from schema.streams import StreamKind

MESSAGE_CHARACTERS_MAX = 500
"""A server's text may repeat the values of a row; what is logged of it is cut here."""


class SinkError(BufferFailure):
    """The far side, or the way there, said no.

    Attributes:
        error_class: what the flusher does about it; see ``docs/delivery.md``.
        code: ClickHouse's exception code; None where only the transport failed.
        message: one line, bounded, without addresses' credentials.
        is_outcome_unknown: the rows may be stored all the same; ask before sending them again.
        bad_row: index in the block of the first row that the server named, where it names one.
    """

    def __init__(
        self,
        error_class: ErrorClass,
        code: int | None,
        message: str,
        *,
        is_outcome_unknown: bool,
        bad_row: int | None = None,
    ) -> None:
        message = " ".join(message.split())[:MESSAGE_CHARACTERS_MAX]
        super().__init__(message)
        self.error_class = error_class
        self.code = code
        self.message = message
        self.is_outcome_unknown = is_outcome_unknown
        self.bad_row = bad_row

    def for_operator(self, why: str) -> SinkError:
        """The same, for somebody to mend."""
        message = f"{why}: {self.message}"
        return SinkError(ErrorClass.OPERATOR, self.code, message, is_outcome_unknown=False)


@dataclass(frozen=True, slots=True)
class LiveTable:
    """The table as the server had it when it was last asked."""

    layout: Layout
    is_replicated: bool


class Sink(Protocol):
    """One ClickHouse endpoint. Its methods raise `SinkError`, and nothing else."""

    async def layout(self, kind: StreamKind) -> Layout:
        """The columns of the live table, asked of the server at each call.

        Raises:
            SinkError: no answer; the table is missing, or cannot take our columns (operator's).
        """
        ...

    async def is_replicated(self, kind: StreamKind) -> bool:
        """Whether that table commits a token and its part together, so that a token is kept."""
        ...

    async def insert(self, layout: Layout, block: Block, *, token: str, query_id: str) -> None:
        """Stores one block under one token; returns only when the server has confirmed it.

        Cancellation: the outcome is unknown, as after a lost answer.
        """
        ...

    async def settle(self, query_id: str) -> None:
        """Makes sure that the query of that id is not running any more, whatever became of it."""
        ...

    async def has_batch(self, layout: Layout, number: BlockNumber) -> bool:
        """Whether a row of that block is in the table. Only for layouts with a batch column."""
        ...

    async def stored_rows(
        self, layout: Layout, numbers: Sequence[BlockNumber], *, since_s: int | None
    ) -> Mapping[int, int]:
        """How many rows of each of these blocks are in the table; none is left out of the answer.

        Args:
            layout: with a batch column.
            numbers: at most 500.
            since_s: look only into what was written since (seconds since 1970), which is quick and
                may miss a block; None: everywhere.
        """
        ...

    async def count_rows(self, layout: Layout, rows: Sequence[Mapping[str, object]]) -> int:
        """How many different ones of these rows the table has, in whichever block they came."""
        ...

    async def close(self) -> None:
        """Gives connections back; no call may follow."""
        ...
