"""Steps for a foreign table that holds them as integers."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from schema.columns import Encoding
from schema.errors import RowsUnfit
from schema.expand import repeat_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from schema.columns import ParsedChunks
    from schema.layout import LayoutColumn


def integer_steps(frame: ParsedChunks, entry: LayoutColumn) -> tuple[bytes, list[int]]:
    """A frame's steps as ``UInt64`` or ``Int64``, and its rows whose step does not fit (as 0)."""
    chunk = frame.columns[entry.column.name]
    whole, unfit = integers_of(chunk.body, entry.type)
    if chunk.encoding is Encoding.PLAIN or frame.counts is None:
        return whole, unfit
    return repeat_values(whole, 8, frame.counts), rows_of_lines(unfit, frame.counts, 0)


def integers_of(steps: bytes, type_name: str) -> tuple[bytes, list[int]]:
    """Float64 steps as ``UInt64`` or ``Int64``, and the places of those that do not fit (as 0)."""
    least = 0.0 if type_name == "UInt64" else -(2.0**63)
    whole = array("Q" if type_name == "UInt64" else "q")
    unfit: list[int] = []
    for place, step in enumerate(array("d", steps)):
        if least <= step < 2.0**63 and step.is_integer():
            whole.append(int(step))
        else:
            unfit.append(place)
            whole.append(0)
    return whole.tobytes(), unfit


def rows_of_lines(lines: Sequence[int], counts: Iterable[int], start: int) -> list[int]:
    """The numbers of all rows of these lines, the first row of all lines being ``start``."""
    rows: list[int] = []
    if lines:
        wanted = frozenset(lines)
        for line, count in enumerate(counts):
            if line in wanted:
                rows.extend(range(start, start + count))
            start += count
    return rows


def steps_unfit(rows: Sequence[int], type_name: str) -> RowsUnfit:
    """The error for rows whose step does not fit."""
    reason = f"a step that {type_name} cannot hold (negative, fractional or too large)"
    return RowsUnfit(rows, reason)
