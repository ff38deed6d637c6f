"""How commands answer: JSON for programs, a Rich table or a line for people."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

READABLE = 8
"""Characters of a column that folds its values."""


def print_json(value: Any) -> None:  # noqa: ANN401 - whatever JSON holds
    """One JSON value on standard output."""
    print(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, numbers: Iterable[int] = ()
) -> None:
    """A table as wide as the terminal; in a pipe as wide as its values.

    In a terminal that is too narrow for it, where whole columns would vanish, each row is a block
    with a line for each value.

    Args:
        columns: the headings.
        rows: one value a column each.
        numbers: indices of the columns to be aligned right.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console.width = 10_000
    texts = [[shown(value) for value in row] for row in rows]
    if console.width < _narrowest(columns, texts):
        for row in texts:
            print("".join(f"{name}: {text}\n" for name, text in zip(columns, row, strict=True)))
        return
    table = Table(header_style="bold")
    right = set(numbers)
    for index, column in enumerate(columns):
        table.add_column(
            Text(column), justify="right" if index in right else "left", overflow="fold"
        )
    for row in texts:
        table.add_row(*map(Text, row))
    console.print(table)


def _narrowest(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """Characters that the table needs to be read: so many of each column, and its frame."""
    longest = [max(map(len, texts)) for texts in zip(columns, *rows, strict=True)]
    return 1 + sum(min(length, READABLE) + 3 for length in longest)


def shown(value: Any) -> str:  # noqa: ANN401
    """A value as text for people, without characters that would steer the terminal."""
    if value is None:
        return "NULL"
    text = value if isinstance(value, str) else str(value)
    return "".join(
        char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text
    )


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun: `1 row`, `2 rows`, `2 entries`."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def moment(epoch_ms: int | None) -> str | None:
    """A time as ISO 8601 in UTC."""
    if epoch_ms is None:
        return None
    try:
        return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError):  # the wire takes times beyond the year 9999
        from catalog.iso_times import iso_time

        return iso_time(epoch_ms, "seconds").replace("Z", "+00:00")
