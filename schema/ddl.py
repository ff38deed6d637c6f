"""DDL from the declarations: one machine or a cluster's replicas, of the same columns and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schema.quoting import identifier, literal, qualified

if TYPE_CHECKING:
    from collections.abc import Collection

    from schema.streams import Column, Stream

DEDUPLICATION_WINDOW = 10_000
"""Tokens that a table remembers: 10,000 blocks of one table are hours of retries."""
DEDUPLICATION_SECONDS = 7 * 24 * 3600
"""Replicated tables forget by age too; an outage of a week is covered."""
RETENTION_DAYS_MAX = 18_000
"""Beyond this the day of deletion passes the last Date, in the year 2149."""

TABLE_SETTINGS: dict[str, int] = {
    "fsync_after_insert": 1,
    "fsync_part_directory": 1,
    # Merged parts are fsynced, and their sources outlive a power cut (chDB keeps them for 0 s).
    "old_parts_lifetime": 480,
    "min_rows_to_fsync_after_merge": 1,
    "min_compressed_bytes_to_fsync_after_merge": 1,
}
"""Durability, said for each table, never left to a default; 5,000 rows: 20.1 → 22.9 ms."""

_REPLICA_PATH = "/clickhouse/tables/{shard}/{database}/{table}"


def on_cluster(cluster: str | None) -> str:
    """The clause that sends a DDL to all hosts of a cluster, with the space before it."""
    return f" ON CLUSTER {identifier(cluster)}" if cluster else ""


def create_database(database: str, *, cluster: str | None) -> str:
    """The database; Atomic, so that a table's rename and drop are atomic."""
    return (
        f"CREATE DATABASE IF NOT EXISTS {identifier(database)}{on_cluster(cluster)} ENGINE = Atomic"
    )


def create_table(
    stream: Stream, database: str, *, cluster: str | None = None, retention_days: int | None = None
) -> str:
    """The table of a stream; with a cluster, its replicated variant on all hosts.

    Args:
        stream: the declaration.
        database: of our own.
        cluster: the cluster's name in the server's configuration.
        retention_days: rows older than this are deleted in merges; None keeps them.
    """
    columns = ",\n    ".join(_column(column) for column in stream.columns)
    retention = "" if retention_days is None else f"\nTTL {retention_clause(retention_days)}"
    settings = ", ".join(f"{name} = {value}" for name, value in table_settings(cluster).items())
    return (
        f"CREATE TABLE IF NOT EXISTS {qualified(database, stream.table)}{on_cluster(cluster)}\n"
        f"(\n    {columns}\n)\n"
        f"ENGINE = {replacing_engine(cluster)}\n"
        f"PRIMARY KEY ({', '.join(stream.primary_key)})\n"
        f"ORDER BY ({', '.join(stream.sorting_key)})"
        f"{retention}\n"
        f"SETTINGS {settings}"
    )


def replacing_engine(cluster: str | None) -> str:
    """The engine's clause."""
    if cluster:
        return f"ReplicatedReplacingMergeTree({literal(_REPLICA_PATH)}, '{{replica}}')"
    return "ReplacingMergeTree"


def table_settings(cluster: str | None) -> dict[str, int]:
    """All settings of a table: its window of tokens, then durability."""
    if cluster:
        return {
            "replicated_deduplication_window": DEDUPLICATION_WINDOW,
            "replicated_deduplication_window_seconds": DEDUPLICATION_SECONDS,
            **TABLE_SETTINGS,
        }
    return {"non_replicated_deduplication_window": DEDUPLICATION_WINDOW, **TABLE_SETTINGS}


def retention_clause(days: int) -> str:
    """The TTL expression: whole days, by a row's own time.

    A time is capped before it becomes a Date, which would else wrap to 1970 beyond the year 2149
    and delete rows that claim to be from the future.

    Raises:
        ValueError: days below 1 or above RETENTION_DAYS_MAX.
    """
    if not 1 <= days <= RETENTION_DAYS_MAX:
        raise ValueError(f"retention_days must be 1 to {RETENTION_DAYS_MAX}, not {days}")
    capped = "least(time, toDateTime64('2100-01-01 00:00:00', 3, 'UTC'))"
    return f"toDate({capped}) + toIntervalDay({days})"


def modify_retention(
    stream: Stream, database: str, *, cluster: str | None, retention_days: int | None
) -> str:
    """Change or remove a table's TTL."""
    head = f"ALTER TABLE {qualified(database, stream.table)}{on_cluster(cluster)}"
    if retention_days is None:
        return f"{head} REMOVE TTL"
    return f"{head} MODIFY TTL {retention_clause(retention_days)}"


def modify_columns(
    stream: Stream, names: Collection[str], database: str, *, cluster: str | None
) -> str:
    """Give columns of a table that is there the declared type and codec.

    It is not waited for: new rows are written so at once, older parts when the server comes to it.
    """
    changes = ", ".join(
        f"MODIFY COLUMN {_column(column)}" for column in stream.columns if column.name in names
    )
    table = qualified(database, stream.table)
    return f"ALTER TABLE {table}{on_cluster(cluster)} {changes} SETTINGS alter_sync = 0"


def _column(column: Column) -> str:
    codec = f" CODEC({column.codec})" if column.codec else ""
    return f"{identifier(column.name)} {column.type}{codec}"
