"""A line chart in characters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_BASE = 0x2800
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Braille: a character is 2 dots wide and 4 high; the bits are Unicode's."""


def chart(values: Sequence[float], *, width: int, height: int) -> str:
    """The values as a curve, the least and the greatest beside it.

    Args:
        values: in order; those that are not finite leave a gap.
        width: of the curve, in characters.
        height: in lines.
    """
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return "(no finite value)"
    low, high = min(finite), max(finite)
    span = (high - low) or 1.0
    columns, rows = 2 * width, 4 * height
    cells = [[0] * width for _ in range(height)]
    for index, value in enumerate(values):
        if not math.isfinite(value):
            continue
        x = index * (columns - 1) // max(1, len(values) - 1)
        y = round((high - value) / span * (rows - 1))
        cells[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
    labels = {0: f"{high:.4g}", height - 1: f"{low:.4g}"}
    lines = []
    for number, row in enumerate(cells):
        curve = "".join(chr(_BASE + cell) for cell in row)
        lines.append(f"{labels.get(number, ''):>9} ┤{curve}")
    return "\n".join(lines)
