"""Numbered migrations of the tables, and the ledger of those that a server has had.

Each migration's text comes from the declarations in `schema.streams`; its checksum is of that text,
and a test pins it. Whoever changes a declaration therefore adds a migration with the ALTER that
takes old tables there, and keeps the former text of the old one as a literal.

A migration may be applied twice (a kill between its statements and its line in the ledger; a table
that somebody dropped since), so every statement is one that does nothing the second time.
"""

# ruff: noqa: S608 - every name and value is quoted by schema.quoting

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from schema.ddl import (
    create_database,
    create_table,
    modify_columns,
    modify_retention,
    on_cluster,
    replacing_engine,
    table_settings,
)
from schema.errors import MigrationChanged
from schema.findings import Finding, Severity, check_tables
from schema.quoting import literal, qualified
from schema.streams import DATA, FILES, LOGS, METRICS, STREAMS

if TYPE_CHECKING:
    from schema.streams import Stream

__all__ = [
    "LEDGER",
    "MIGRATIONS",
    "Finding",
    "Migration",
    "Run",
    "Severity",
    "apply",
    "check_tables",
]

Run = Callable[[str], Awaitable[Sequence[Sequence[object]]]]
"""Runs one statement and gives its rows; values may be Python's own or their text."""

LEDGER = "charon_migrations"

_OUR_TTL = re.compile(r" TTL toDate\(least\(time, .*?\)\)\) \+ toIntervalDay\((\d+)\)")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the tables' history.

    Attributes:
        number: 1, 2, 3 without gaps.
        stream: the table that it makes or changes, as declared then.
        changed: the columns that it changes; none: it makes the table.
    """

    number: int
    name: str
    stream: Stream
    changed: frozenset[str] = frozenset()

    def statements(self, database: str, *, cluster: str | None) -> list[str]:
        """What is run, in order."""
        if self.changed:
            return [modify_columns(self.stream, self.changed, database, cluster=cluster)]
        return [create_table(self.stream, database, cluster=cluster)]

    @property
    def checksum(self) -> str:
        """Of the statements for one machine, whatever the database is called there."""
        script = ";\n".join(self.statements("charon", cluster=None))
        return hashlib.sha256(script.encode()).hexdigest()[:32]


_FIRST = {
    "projectName": ("String", "ZSTD(1)"),
    "runId": ("UInt64", "ZSTD(1)"),
    "logGroup": ("String", "ZSTD(1)"),
    "logName": ("String", "ZSTD(1)"),
    "time": ("DateTime64(3, 'UTC')", "DoubleDelta, ZSTD(1)"),
}
"""Types and codecs of the first tables, where they have changed since."""


def _first(stream: Stream) -> Stream:
    """A table's first declaration."""
    columns = [
        replace(column, type=_FIRST[column.name][0], codec=_FIRST[column.name][1])
        if column.name in _FIRST
        else column
        for column in stream.columns
    ]
    return replace(stream, columns=tuple(columns))


def _denser(number: int, stream: Stream) -> Migration:
    """What repeats becomes LowCardinality: half of an insert's CPU, a quarter of the bytes."""
    return Migration(number, f"denser columns of {stream.table}", stream, frozenset(_FIRST))


MIGRATIONS: tuple[Migration, ...] = (
    Migration(1, "create mlop_metrics", _first(METRICS)),
    Migration(2, "create mlop_logs", _first(LOGS)),
    Migration(3, "create mlop_data", _first(DATA)),
    Migration(4, "create mlop_files", _first(FILES)),
    _denser(5, METRICS),
    _denser(6, LOGS),
    _denser(7, DATA),
    _denser(8, FILES),
)
"""All migrations, in order of their numbers."""


async def apply(
    run: Run, database: str, *, cluster: str | None = None, retention_days: int | None = None
) -> list[str]:
    """Bring a database up to this release.

    Args:
        run: runs one statement on the server.
        database: made if it is not there.
        cluster: makes the replicated variant on all hosts of that cluster.
        retention_days: rows older than this go; None keeps all. A TTL of another form than ours is
            left alone.

    A table that the ledger has and the database has not is made again: somebody dropped it, and
    rows wait for it.

    Returns:
        The names of what was applied, changes of retention included; empty when all was there.

    Raises:
        MigrationChanged: the ledger has a migration that this release does not know, or knows with
            another text. Nothing was changed.
    """
    await run(create_database(database, cluster=cluster))
    await run(_create_ledger(database, cluster))
    applied: list[str] = []
    for migration in await _pending(run, database):
        for statement in migration.statements(database, cluster=cluster):
            await run(statement)
        await run(_ledger_line(migration, database))
        applied.append(f"{migration.number:04} {migration.name}")
    for stream in STREAMS.values():
        change = await _retention_change(run, stream, database, cluster, retention_days)
        if change:
            applied.append(change)
    return applied


async def _pending(run: Run, database: str) -> list[Migration]:
    """What is to be run, after a look at what was: new migrations, and those of a table gone."""
    tables = {
        str(name)
        for (name,) in await run(
            f"SELECT name FROM system.tables WHERE database = {literal(database)}"
        )
    }
    ledger = await run(
        f"SELECT number, name, checksum FROM {qualified(database, LEDGER)} FINAL ORDER BY number"
    )
    known = {migration.number: migration for migration in MIGRATIONS}
    done: set[int] = set()
    for number_text, name, checksum in ledger:
        number = int(str(number_text))
        done.add(number)
        if number not in known:
            raise MigrationChanged(
                f"{database}.{LEDGER} has migration {number} ({name}), which this release does not"
                " know: a newer one made the tables. Run that one, or a later one"
            )
        if known[number].checksum != checksum:
            raise MigrationChanged(
                f"{database}.{LEDGER} has migration {number} ({name}) with checksum {checksum},"
                f" this release has {known[number].checksum}: its text was changed after it was"
                " applied. Restore the text and add a new migration"
            )
    return [
        migration
        for migration in MIGRATIONS
        if migration.number not in done or migration.stream.table not in tables
    ]


async def _retention_change(
    run: Run, stream: Stream, database: str, cluster: str | None, retention_days: int | None
) -> str | None:
    """Give a table the retention that is asked for; says what was changed."""
    rows = await run(
        f"SELECT engine_full FROM system.tables WHERE database = {literal(database)}"
        f" AND name = {literal(stream.table)}"
    )
    engine = str(rows[0][0]) if rows else ""
    match = _OUR_TTL.search(engine)
    current = int(match[1]) if match else None
    if current == retention_days or (match is None and " TTL " in engine):
        return None
    await run(modify_retention(stream, database, cluster=cluster, retention_days=retention_days))
    kept = "for ever" if retention_days is None else f"{retention_days} days"
    return f"retention of {stream.table}: {kept}"


def _create_ledger(database: str, cluster: str | None) -> str:
    settings = ", ".join(f"{name} = {value}" for name, value in table_settings(cluster).items())
    return (
        f"CREATE TABLE IF NOT EXISTS {qualified(database, LEDGER)}{on_cluster(cluster)}"
        " (number UInt32, name String, checksum String, applied_at DateTime64(3, 'UTC'))"
        f" ENGINE = {replacing_engine(cluster)} ORDER BY number SETTINGS {settings}"
    )


def _ledger_line(migration: Migration, database: str) -> str:
    """An INSERT … SELECT: one statement without data behind it, for any interface.

    Such an insert is never asynchronous, whatever the server's default, so it needs no setting;
    and with a SETTINGS clause chDB takes it for a control statement.
    """
    return (
        f"INSERT INTO {qualified(database, LEDGER)} (number, name, checksum, applied_at)"
        f" SELECT {migration.number}, {literal(migration.name)}, {literal(migration.checksum)},"
        " now64(3, 'UTC')"
    )
