"""What the decoders of the three streams share: the request's refusals, its counts, its clock."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

from ingest.decode_frames import BuilderT
from ingest.refusals import Refusals

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ingest.decode_frames import Frames
    from schema.columns import Chunks

DAY_MS = 86_400_000


@dataclass(slots=True)
class Tally:
    """What one request's decoding has come to, besides its rows.

    Attributes:
        future_from_ms: row times above this are more than a day ahead: stored, and counted.
        misplaced: rows that look like another stream's, by that stream's path, for the hint.
    """

    future_from_ms: int
    refusals: Refusals = field(default_factory=Refusals)
    unknown_fields: int = 0
    future_rows: int = 0
    misplaced: str | None = None

    def note_fields(self, row: dict[str, Any], known: frozenset[str]) -> None:
        """Count the fields of a row that the stream does not know; they are ignored.

        Not those of a line that is refused: it may never have been parsed.
        """
        self.unknown_fields += sum([name not in known for name in row])

    def note_time(self, time_ms: int, row_count: int) -> None:
        """Count rows that are more than a day ahead."""
        if time_ms > self.future_from_ms:
            self.future_rows += row_count


class RowDecoder(ABC, Generic[BuilderT]):
    """One stream's way from parsed lines to columns: rows go into frames, the rest to the tally."""

    def __init__(self, frames: Frames[BuilderT], tally: Tally) -> None:
        self._frames = frames
        self._tally = tally

    @property
    def row_count(self) -> int:
        """Rows accepted so far."""
        return self._frames.row_count

    @abstractmethod
    def add(self, lines: Iterable[tuple[int, Any]]) -> None:
        """Add lines: their numbers, counted from 1, and values."""

    def finish(self) -> tuple[Chunks, ...]:
        """The frames' chunks."""
        return self._frames.finish()
