"""Line plots as SVG, by hand: a report is one file that opens anywhere, and asks no network."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH, HEIGHT = 860, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 34, 34
COLOURS = ("#1f6feb", "#d1242f", "#2da44e", "#9a6700", "#8250df")


@dataclass(frozen=True, slots=True)
class Line:
    """One curve; a value that is None leaves a gap."""

    name: str
    values: Sequence[float | None]


def plot(title: str, unit: str, seconds: Sequence[int], lines: Sequence[Line]) -> str:
    """A plot over time.

    Args:
        title: says what it shows.
        unit: of the values.
        seconds: of the values, ascending.
        lines: each with as many values.
    """
    highest = max((v for line in lines for v in line.values if v is not None), default=0.0)
    top = _round_up(highest)
    span = max(1, seconds[-1] - seconds[0]) if seconds else 1

    def x(second: float) -> float:
        return _LEFT + (second - seconds[0]) / span * (WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return HEIGHT - _BOTTOM - value / top * (HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        f'<text x="{_LEFT}" y="18" class="title">{escape(title)}, {escape(unit)}</text>',
    ]
    for quarter in range(5):
        value = top * quarter / 4
        parts.append(
            f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}" '
            f'class="grid"/><text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" class="left">'
            f"{value:,.4g}</text>"
        )
    for fifth in range(6 if seconds else 0):
        second = seconds[0] + span * fifth / 5
        parts.append(
            f'<text x="{x(second):.1f}" y="{HEIGHT - 12}" class="below">{second:,.0f} s</text>'
        )
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        for piece in _pieces(seconds, line.values):
            points = " ".join(f"{x(second):.1f},{y(value):.1f}" for second, value in piece)
            parts.append(f'<polyline points="{points}" stroke="{colour}"/>')
        parts.append(
            f'<text x="{WIDTH - _RIGHT - 110 * (len(lines) - number - 1)}" y="18" class="left" '
            f'fill="{colour}">{escape(line.name)}</text>'
        )
    return "".join([*parts, "</svg>"])


def _pieces(
    seconds: Sequence[int], values: Sequence[float | None]
) -> list[list[tuple[int, float]]]:
    """The curve, cut where values are missing."""
    pieces: list[list[tuple[int, float]]] = [[]]
    for second, value in zip(seconds, values, strict=True):
        if value is None:
            pieces.append([])
        else:
            pieces[-1].append((second, value))
    return [piece for piece in pieces if piece]


def _round_up(value: float) -> float:
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 5, 8, 10) if step * power >= value)
