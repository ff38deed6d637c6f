import re
from dataclasses import replace

import pytest

from schema import migrations
from schema.block import build_block, layout_of
from schema.errors import MigrationChanged
from schema.migrations import MIGRATIONS, Migration, apply
from schema.streams import METRICS, STREAMS
from tests.schema.frames import training_frame

CHECKSUMS = {
    1: "dbecfdbb907fa93ecb7d488753db47a1",
    2: "918b350497f6da25d19c57fb133b913a",
    3: "28c1c32d9db8db9a3c2610f7013f7c9d",
    4: "6b122f4c3c9dfac63d9caec9b66e3055",
    5: "59a87f95a69733f7b0ffc9a95a18af9c",
    6: "3b514c8e23dea095c1a9b8c8dba318f5",
    7: "d86c5acfe98fed9193dce6bf89a3dee0",
    8: "08fe21a027252f61bfb2fb32d77a26d2",
}

NAMES = [f"{migration.number:04} {migration.name}" for migration in MIGRATIONS]


def test_a_migration_once_released_is_never_changed():
    """A declaration that changes needs a new migration; the old one keeps its former text."""
    assert {migration.number: migration.checksum for migration in MIGRATIONS} == CHECKSUMS


def test_numbers_have_no_gaps():
    assert [migration.number for migration in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))


async def test_the_first_time_makes_all_tables_and_the_second_does_nothing(engine, database):
    applied = await apply(engine.run, database)
    assert applied == NAMES
    tables = {name for (name,) in engine.rows(f"SHOW TABLES FROM {database}")}
    assert tables == {"charon_migrations", *(stream.table for stream in STREAMS.values())}
    ledger = engine.rows(f"SELECT number, checksum FROM {database}.charon_migrations")
    assert dict(ledger) == {migration.number: migration.checksum for migration in MIGRATIONS}
    assert await apply(engine.run, database) == []


async def test_a_database_that_is_not_there_is_made(engine):
    await apply(engine.run, "schema_test_new")
    assert engine.value("SELECT engine FROM system.databases WHERE name = 'schema_test_new'") == (
        "Atomic"
    )
    engine.rows("DROP DATABASE schema_test_new SYNC")


async def test_a_kill_between_a_table_and_its_line_in_the_ledger_heals(engine, database):
    async def killed(sql):
        if "INSERT INTO" in sql and "create mlop_data" in sql:
            raise KeyboardInterrupt
        return engine.rows(sql)

    with pytest.raises(KeyboardInterrupt):
        await apply(killed, database)
    assert await apply(engine.run, database) == NAMES[2:]


async def test_a_table_that_was_dropped_is_made_again(engine, database):
    await apply(engine.run, database)
    engine.rows(f"DROP TABLE {database}.mlop_logs SYNC")
    assert await apply(engine.run, database) == [
        *("0002 create mlop_logs", "0006 denser columns of mlop_logs")
    ]
    assert await apply(engine.run, database) == []


async def test_tables_end_as_declared_and_rows_of_the_first_ones_stay(
    engine, database, monkeypatch
):
    with monkeypatch.context() as earlier:
        earlier.setattr(migrations, "MIGRATIONS", MIGRATIONS[:4])
        await apply(engine.run, database)
    block = build_block(layout_of(METRICS), [training_frame(3)], 1)
    engine.insert_block(layout_of(METRICS), database, block)
    select = f"SELECT * EXCEPT batch FROM {database}.mlop_metrics ORDER BY step, logName"
    before = engine.rows(select)
    assert await apply(engine.run, database) == NAMES[4:]
    assert engine.rows(select) == before
    for stream in STREAMS.values():
        types = engine.rows(
            "SELECT name, type, compression_codec FROM system.columns WHERE"
            f" database = '{database}' AND table = '{stream.table}'"
        )
        assert {
            name: (type_name, re.sub(r"\(8\)", "", codec)) for name, type_name, codec in types
        } == {
            column.name: (column.type, f"CODEC({column.codec})" if column.codec else "")
            for column in stream.columns
        }


async def test_a_changed_text_is_refused_and_nothing_is_done(engine, database, monkeypatch):
    await apply(engine.run, database)
    changed = Migration(1, "create mlop_metrics", replace(METRICS, columns=METRICS.columns[:-1]))
    monkeypatch.setattr(migrations, "MIGRATIONS", (changed, *MIGRATIONS[1:]))
    with pytest.raises(MigrationChanged, match=r"migration 1 .* was changed after"):
        await apply(engine.run, database)


async def test_tables_of_a_newer_release_are_left_alone(engine, database, monkeypatch):
    await apply(engine.run, database)
    monkeypatch.setattr(migrations, "MIGRATIONS", MIGRATIONS[:-1])
    with pytest.raises(MigrationChanged, match="a newer one made the tables"):
        await apply(engine.run, database)


async def test_retention_is_set_changed_and_removed(engine, database):
    def ttls():
        rows = engine.rows(
            f"SELECT engine_full FROM system.tables WHERE database = '{database}'"
            " AND name LIKE 'mlop_%'"
        )
        return [full.count(" TTL ") for (full,) in rows]

    await apply(engine.run, database)
    assert ttls() == [0, 0, 0, 0]
    assert len(await apply(engine.run, database, retention_days=30)) == 4
    assert await apply(engine.run, database, retention_days=30) == []
    assert await apply(engine.run, database, retention_days=31) == [
        f"retention of {stream.table}: 31 days" for stream in STREAMS.values()
    ]
    assert ttls() == [1, 1, 1, 1]
    assert "retention of mlop_logs: for ever" in await apply(engine.run, database)
    assert ttls() == [0, 0, 0, 0]


async def test_a_ttl_of_someone_else_is_left_alone(engine, database):
    await apply(engine.run, database)
    engine.rows(f"ALTER TABLE {database}.mlop_logs MODIFY TTL toDateTime(time) + toIntervalYear(9)")
    assert await apply(engine.run, database) == []


async def test_every_statement_of_the_replicated_variant_names_the_cluster():
    statements = []

    async def record(sql):
        statements.append(sql)
        return [("ReplicatedReplacingMergeTree",)] if "engine_full" in sql else []

    await apply(record, "charon", cluster="main", retention_days=5)
    changes = [sql for sql in statements if sql.startswith(("CREATE", "ALTER"))]
    assert len(changes) == 2 + 4 + 4 + 4
    assert all("ON CLUSTER `main`" in sql for sql in changes)
