"""The one statement and the one set of settings that every insert of ours goes out with."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from schema.quoting import identifier, qualified

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schema.layout import Layout

INSERT_SETTINGS: Mapping[str, str | int] = MappingProxyType(
    {
        # A retry is known by its token, in the table and in every view's target.
        "insert_deduplicate": 1,
        "deduplicate_insert": "enable",
        "deduplicate_blocks_in_dependent_materialized_views": 1,
        # The answer comes after the part is in place (async_insert is the server's default).
        "async_insert": 0,
        # One block is one part and one token: nothing may cut it, nothing is joined to it.
        "use_strict_insert_block_limits": 0,
        "max_insert_block_size_rows": 100_000_000,
        "max_insert_block_size_bytes": 0,
        "min_insert_block_size_rows": 100_000_000,
        "min_insert_block_size_bytes": 0,
        "max_partitions_per_insert_block": 0,
        "max_insert_threads": 1,
        "input_format_parallel_parsing": 0,
        # One value for all tries. Collapsing at insert takes a fifth more CPU (200,000 rows of 100
        # runs: 111 against 92 ms), and readers take the latest anyway: FINAL, or by time.
        "optimize_on_insert": 0,
        # A column that the table has not is an error, and never dropped without a word.
        "input_format_skip_unknown_fields": 0,
    }
)
"""Sent with every try of every insert, all alike, beside ``insert_deduplication_token``.

Source: measurements on chDB 26.9: with this set a retry added nothing, views included, under eleven
odd server defaults. A server too old for a setting answers 115 (UNKNOWN_SETTING).
"""


def insert_statement(layout: Layout, database: str) -> str:
    """The statement before a block of this layout; the block is the rest of the body."""
    names = ", ".join(identifier(entry.column.name) for entry in layout.columns)
    return f"INSERT INTO {qualified(database, layout.stream.table)} ({names}) FORMAT Native"
