"""A request's rows as one frame or more, none of them past a frame's bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from schema.limits import FRAME_BYTES_MAX, FRAME_ROWS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from schema.columns import Chunks


class Builder(Protocol):
    """What frames need of a builder of rows."""

    row_count: int
    byte_count: int

    def finish(self) -> Chunks:
        """The frame's chunks."""


BuilderT = TypeVar("BuilderT", bound=Builder)


class Frames(Generic[BuilderT]):
    """The builders of one request, of which the last is open.

    Attributes:
        rows: the open builder. Ask `room_for` before adding to it, unless it is known to have room.
    """

    def __init__(self, start: Callable[[], BuilderT]) -> None:
        self._start = start
        self._chunks: list[Chunks] = []
        self._finished_rows = 0
        self.rows = start()

    @property
    def row_count(self) -> int:
        """Rows added so far, over all builders."""
        return self._finished_rows + self.rows.row_count

    def room_for(self, row_count: int, byte_count: int) -> BuilderT:
        """The builder to add so much to; what alone is larger than a frame gets one of its own."""
        rows = self.rows
        if rows.row_count and (
            rows.row_count + row_count > FRAME_ROWS_MAX
            or rows.byte_count + byte_count > FRAME_BYTES_MAX
        ):
            self._finished_rows += rows.row_count
            self._chunks.append(rows.finish())
            self.rows = self._start()
        return self.rows

    def finish(self) -> tuple[Chunks, ...]:
        """Every frame's chunks, in order; none is empty. The frames are used up."""
        last = (self.rows.finish(),) if self.rows.row_count else ()
        return (*self._chunks, *last)
