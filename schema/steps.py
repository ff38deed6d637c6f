"""Steps for a foreign table that holds them as integers."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from schema.columns import Encoding
from schema.expand import repeat_values

if TYPE_CHECKING:
    from schema.columns import ParsedChunks
    from schema.layout import LayoutColumn


def integer_steps(frame: ParsedChunks, entry: LayoutColumn) -> tuple[bytes, list[int]]:
    """A frame's steps as ``UInt64`` or ``Int64``, and its rows whose step does not fit (as 0)."""
    chunk = frame.columns[entry.column.name]
    least = 0.0 if entry.type == "UInt64" else -(2.0**63)
    whole = array("Q" if entry.type == "UInt64" else "q")
    unfit: list[int] = []
    for place, step in enumerate(array("d", chunk.body)):
        if least <= step < 2.0**63 and step.is_integer():
            whole.append(int(step))
        else:
            unfit.append(place)
            whole.append(0)
    if chunk.encoding is Encoding.PLAIN or frame.counts is None:
        return whole.tobytes(), unfit
    rows: list[int] = []
    if unfit:
        bad = frozenset(unfit)
        start = 0
        for line, count in enumerate(frame.counts):
            if line in bad:
                rows.extend(range(start, start + count))
            start += count
    return repeat_values(whole.tobytes(), 8, frame.counts), rows
