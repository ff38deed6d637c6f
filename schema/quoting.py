"""Names and values in SQL text."""

from __future__ import annotations


def identifier(name: str) -> str:
    """A name in backticks."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def literal(value: str) -> str:
    """A string literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def qualified(database: str, table: str) -> str:
    """A table by its database."""
    return f"{identifier(database)}.{identifier(table)}"
