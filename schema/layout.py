"""Which columns of a live table are written, and as what type.

Our own tables take each column as it is declared. A table that someone else made may lack columns,
or hold steps as UInt64: what loses nothing is written so, anything else is refused by name, because
the server would convert or drop values without a word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from schema.coltypes import datetime64_precision
from schema.errors import LayoutMismatch
from schema.streams import Origin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schema.streams import Column, Stream

BATCH_COLUMN = "batch"
STEP_COLUMN = "step"
STEP_INTEGER_TYPES = ("UInt64", "Int64")
"""What a foreign table may have for a step; rows that do not fit are found by `build_block`."""

DATETIME64_PRECISION_MAX = 8
"""The engine multiplies our milliseconds; at 9 digits it would overflow in the year 2262."""

_TEXTS = frozenset({"String", "LowCardinality(String)"})
_NULLABLE = re.compile(r"Nullable\((.*)\)")


@dataclass(frozen=True, slots=True)
class LayoutColumn:
    """A column as it is written: its declaration, and the type in the block's header.

    The engine converts a block's String to a table's LowCardinality and the like without loss, so
    ``type`` is the declared one but where values must be converted by us.
    """

    column: Column
    type: str


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of one table's blocks, in the order of the stream's declaration.

    Attributes:
        has_batch: whether the table has our column ``batch``, so that an insert of unknown outcome
            can be looked up.
    """

    stream: Stream
    columns: tuple[LayoutColumn, ...]
    has_batch: bool


def layout_of(stream: Stream) -> Layout:
    """The layout of the table that our own DDL makes."""
    return Layout(
        stream, tuple(LayoutColumn(column, column.type) for column in stream.columns), True
    )


def live_layout(stream: Stream, types: Mapping[str, str]) -> Layout:
    """The layout of a table as a server has it.

    Args:
        stream: what the table is for.
        types: the live table's columns, name to type, as ``system.columns`` says. Columns that are
            not ours are left to the server's defaults.

    Raises:
        LayoutMismatch: a column that we fill is missing, or of a type that would change values.
    """
    columns: list[LayoutColumn] = []
    for column in stream.columns:
        live = types.get(column.name)
        if column.origin is Origin.BLOCK:
            if live == column.type:
                columns.append(LayoutColumn(column, column.type))
            continue
        if column.origin is Origin.ZERO and live != column.type:
            continue  # no one fills it: a table of someone else keeps its own default
        if live is None:
            raise LayoutMismatch(
                stream.table,
                column.name,
                f"table {stream.table} has no column {column.name} ({column.type}): add it with"
                f" ALTER TABLE … ADD COLUMN, or let charon migrate make the table",
            )
        columns.append(LayoutColumn(column, _written_type(stream, column, live)))
    has_batch = any(entry.column.name == BATCH_COLUMN for entry in columns)
    return Layout(stream, tuple(columns), has_batch)


def _written_type(stream: Stream, column: Column, live: str) -> str:
    """The type to write a column as, so that the live type takes every value unchanged."""
    low = re.fullmatch(r"LowCardinality\((.*)\)", live)
    inner = low[1] if low else live
    nullable = _NULLABLE.fullmatch(inner)
    plain = nullable[1] if nullable else inner
    ours = column.type
    if ours == "Nullable(String)":
        if plain == "String":
            return ours if nullable else "String"  # no null there: the empty string stands for it
    elif ours in _TEXTS:
        if plain == "String":
            return ours
    elif ours.startswith("DateTime64"):
        precision = datetime64_precision(plain)
        if precision is not None and 3 <= precision <= DATETIME64_PRECISION_MAX:
            return ours
    elif plain == ours or (ours, plain) == ("UInt32", "UInt64"):
        return ours
    elif column.name == STEP_COLUMN and plain in STEP_INTEGER_TYPES:
        return plain
    raise LayoutMismatch(
        stream.table,
        column.name,
        f"column {column.name} of {stream.table} is {live}, which cannot take {ours} unchanged",
    )
