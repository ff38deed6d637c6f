"""What a live database has, against what exactly-once delivery needs of it."""

# ruff: noqa: S608 - every name and value is quoted by schema.quoting

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from schema.ddl import DEDUPLICATION_WINDOW, TABLE_SETTINGS
from schema.errors import LayoutMismatch
from schema.layout import live_layout
from schema.quoting import literal, qualified
from schema.streams import BATCH_CODEC, STREAMS

if TYPE_CHECKING:
    from schema.migrations import Run
    from schema.streams import Stream


class Severity(Enum):
    """How much a finding matters."""

    ERROR = "error"
    """Rows of the table cannot be delivered."""
    WARNING = "warning"
    """Rows are delivered; a promise (once, durable) does not hold as it does for our own tables."""
    NOTE = "note"
    """Worth knowing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing about one table, and what to do about it."""

    table: str
    severity: Severity
    problem: str
    advice: str


async def check_tables(run: Run, database: str) -> list[Finding]:
    """Look at the live tables of a database and at the targets of their views.

    Args:
        run: runs one statement on the server.
        database: where the tables should be.

    Returns:
        Findings, worst first within a table; empty when all is as `charon migrate` makes it.
    """
    findings: list[Finding] = []
    for stream in STREAMS.values():
        engine = await _engine(run, database, stream.table)
        if engine is None:
            findings.append(
                Finding(
                    stream.table,
                    Severity.ERROR,
                    f"table {database}.{stream.table} does not exist; its rows wait in the log",
                    "run charon migrate",
                )
            )
            continue
        findings += await _check_columns(run, stream, database)
        name = qualified(database, stream.table)
        findings += await _check_engine(run, stream.table, name, engine)
        findings += await _check_views(run, stream, database)
    findings += await _check_quorum(run, database)
    return findings


async def _engine(run: Run, database: str, table: str) -> str | None:
    """The engine's clause with keys and settings; None when there is no such table."""
    rows = await run(
        f"SELECT engine_full FROM system.tables WHERE database = {literal(database)}"
        f" AND name = {literal(table)}"
    )
    return str(rows[0][0]) if rows else None


async def _check_columns(run: Run, stream: Stream, database: str) -> list[Finding]:
    rows = await run(
        f"SELECT name, type FROM system.columns WHERE database = {literal(database)}"
        f" AND table = {literal(stream.table)}"
    )
    table = stream.table
    types = {str(name): str(type_name) for name, type_name in rows}
    try:
        layout = live_layout(stream, types)
    except LayoutMismatch as error:
        advice = "change the column, or write to a database of Charon's own"
        return [Finding(table, Severity.ERROR, str(error), advice)]
    findings: list[Finding] = []
    if not layout.has_batch:
        findings.append(
            Finding(
                table,
                Severity.WARNING,
                f"{table} has no column batch: an insert of unknown outcome cannot be looked up,"
                " so rows arrive at least once",
                f"ALTER TABLE {qualified(database, table)} ADD COLUMN batch UInt64"
                f" CODEC({BATCH_CODEC})",
            )
        )
    findings += [
        Finding(
            table,
            Severity.WARNING,
            f"{table} holds {entry.column.name} as {entry.type}: rows that do not fit it"
            " (negative or fractional) go to quarantine",
            f"ALTER TABLE {qualified(database, table)} MODIFY COLUMN {entry.column.name}"
            f" {entry.column.type}, where it is not part of the key",
        )
        for entry in layout.columns
        if entry.type != entry.column.type and entry.column.name == "step"
    ]
    return findings


async def _check_engine(run: Run, table: str, name: str, engine: str) -> list[Finding]:
    """The window of tokens, then durability."""
    settings = await _settings(run, engine)
    findings: list[Finding] = []
    window = _window_name(engine)
    if settings.get(window, 0) < DEDUPLICATION_WINDOW:
        findings.append(
            Finding(
                table,
                Severity.WARNING,
                f"{table} remembers {settings.get(window, 0)} tokens ({window}): a repeated insert"
                " may add its rows a second time",
                f"ALTER TABLE {name} MODIFY SETTING {window} = {DEDUPLICATION_WINDOW}",
            )
        )
    lacking = [key for key, value in TABLE_SETTINGS.items() if settings.get(key, 0) < value]
    if lacking:
        changes = ", ".join(f"{key} = {TABLE_SETTINGS[key]}" for key in lacking)
        findings.append(
            Finding(
                table,
                Severity.WARNING,
                f"{table} may lose acknowledged rows in a power cut: {', '.join(lacking)} too low",
                f"ALTER TABLE {name} MODIFY SETTING {changes}",
            )
        )
    return findings


async def _check_views(run: Run, stream: Stream, database: str) -> list[Finding]:
    """Each view's target needs a window of its own, or a retry doubles its rows there."""
    rows = await run(
        "SELECT database, name, create_table_query, toString(uuid) FROM system.tables"
        " WHERE engine = 'MaterializedView' AND has(("
        " SELECT groupArrayArray(arrayZip(dependencies_database, dependencies_table))"
        f" FROM system.tables WHERE database = {literal(database)} AND name ="
        f" {literal(stream.table)}), (database, name))"
    )
    findings: list[Finding] = []
    for view_database, view, query, uuid in rows:
        target_database, target = _view_target(str(view_database), str(query), str(uuid))
        engine = await _engine(run, target_database, target)
        if engine is None or "MergeTree" not in engine:
            continue
        window = _window_name(engine)
        current = (await _settings(run, engine)).get(window, 0)
        if current < DEDUPLICATION_WINDOW:
            findings.append(
                Finding(
                    stream.table,
                    Severity.WARNING,
                    f"{target_database}.{target}, filled by view {view}, remembers {current}"
                    f" tokens ({window}): a repeated insert adds to it twice",
                    f"ALTER TABLE {qualified(target_database, target)} MODIFY SETTING"
                    f" {window} = {DEDUPLICATION_WINDOW}",
                )
            )
    return findings


async def _check_quorum(run: Run, database: str) -> list[Finding]:
    tables = ", ".join(literal(stream.table) for stream in STREAMS.values())
    rows = await run(
        "SELECT value FROM system.settings WHERE name = 'insert_quorum' AND (SELECT count() FROM"
        f" system.tables WHERE database = {literal(database)} AND name IN ({tables})"
        " AND engine LIKE 'Replicated%') > 0"
    )
    if not rows:
        return []
    return [
        Finding(
            database,
            Severity.NOTE,
            f"insert_quorum is {rows[0][0]}: with 0 a replica that is lost for good right after an"
            " insert takes those rows with it",
            "set insert_quorum in the user's profile if that matters more than latency",
        )
    ]


def _window_name(engine: str) -> str:
    if engine.startswith(("Replicated", "Shared")):
        return "replicated_deduplication_window"
    return "non_replicated_deduplication_window"


async def _settings(run: Run, engine: str) -> dict[str, int]:
    """A table's window and durability as they hold: its own settings, else the server's."""
    replicated = _window_name(engine) == "replicated_deduplication_window"
    source = "replicated_merge_tree_settings" if replicated else "merge_tree_settings"
    names = ", ".join(literal(name) for name in (*TABLE_SETTINGS, _window_name(engine)))
    rows = await run(f"SELECT name, value FROM system.{source} WHERE name IN ({names})")
    found = {str(name): int(str(value)) for name, value in rows}
    for name, value in re.findall(r"\b(\w+) = (\d+)", engine):
        found[name] = int(value)
    return found


def _view_target(database: str, query: str, uuid: str) -> tuple[str, str]:
    """The table a view writes to: the one it names, or the hidden one of its own."""
    match = re.match(r"CREATE MATERIALIZED VIEW \S+ TO (?:(\S+?)\.)?(\S+)", query)
    if match:
        return (match[1] or database).strip("`"), match[2].strip("`")
    return database, f".inner_id.{uuid}"
