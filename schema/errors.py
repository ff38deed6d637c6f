"""What can go wrong in the schema package; none of it touches a file or a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class SchemaError(Exception):
    """Any error of this package."""


class MalformedChunks(SchemaError):
    """A frame's payload is not what its stream declares; names the column and what was found."""


class MalformedNative(SchemaError):
    """Bytes that should be Native blocks are not; says the offset, what was expected and found."""


class UnknownType(SchemaError):
    """A ClickHouse type that this package does not write or read."""


class LayoutMismatch(SchemaError):
    """A live table cannot take our rows: a column is missing or of a type that would change values.

    Attributes:
        table: the table's name.
        column: the first column that does not fit.
    """

    def __init__(self, table: str, column: str, message: str) -> None:
        super().__init__(message)
        self.table = table
        self.column = column


class RowsUnfit(SchemaError):
    """Some rows cannot be stored in the live table as they are; the others can.

    Attributes:
        rows: ascending row indices, counted from row 0 of the first frame given to `build_block`
            (not from its ``first_row``).
        reason: what is wrong with them, for the operator.
    """

    def __init__(self, rows: Sequence[int], reason: str) -> None:
        super().__init__(f"{len(rows)} rows do not fit, the first is {rows[0]}: {reason}")
        self.rows = list(rows)
        self.reason = reason


class MigrationChanged(SchemaError):
    """The ledger names a migration that this release does not know, or knows with other text."""
