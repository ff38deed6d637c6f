import pytest

from schema.ddl import create_table
from schema.findings import Severity, check_tables
from schema.migrations import apply
from schema.streams import METRICS


@pytest.fixture
async def tables(engine, database):
    await apply(engine.run, database)
    return database


async def test_tables_of_ours_have_nothing_to_find(engine, tables):
    assert await check_tables(engine.run, tables) == []


async def test_a_missing_table_is_an_error(engine, tables):
    engine.rows(f"DROP TABLE {tables}.mlop_data SYNC")
    [finding] = await check_tables(engine.run, tables)
    assert (finding.table, finding.severity) == ("mlop_data", Severity.ERROR)
    assert finding.advice == "run charon migrate"


async def test_a_column_that_cannot_take_our_values_is_an_error(engine, tables):
    engine.rows(f"ALTER TABLE {tables}.mlop_files MODIFY COLUMN fileSize UInt32")
    [finding] = await check_tables(engine.run, tables)
    assert finding.severity is Severity.ERROR
    assert "fileSize of mlop_files is UInt32" in finding.problem


async def test_a_window_that_is_too_small_is_found_and_the_advice_mends_it(engine, tables):
    """F25: what a live table has is compared with what deduplication needs."""
    engine.rows(
        f"ALTER TABLE {tables}.mlop_logs MODIFY SETTING non_replicated_deduplication_window = 100"
    )
    [finding] = await check_tables(engine.run, tables)
    assert "mlop_logs remembers 100 tokens" in finding.problem
    engine.rows(finding.advice)
    assert await check_tables(engine.run, tables) == []


async def test_a_table_of_someone_else_is_described_and_the_advice_runs(engine, database):
    await apply(engine.run, database)
    engine.rows(f"DROP TABLE {database}.mlop_metrics SYNC")
    declared = create_table(METRICS, database).replace("`step` Float64", "`step` UInt64")
    plain = declared.replace("`value` Float64 CODEC(ZSTD(1)),", "`value` Float64").replace(
        "`batch` UInt64 CODEC(Delta, ZSTD(1))", ""
    )
    engine.rows(plain.partition("SETTINGS")[0])
    findings = await check_tables(engine.run, database)
    assert {finding.severity for finding in findings} == {Severity.WARNING}
    problems = "\n".join(finding.problem for finding in findings)
    assert "no column batch" in problems
    assert "holds step as UInt64" in problems
    assert "remembers 0 tokens" in problems
    assert "power cut" in problems
    for finding in findings:
        if "MODIFY COLUMN" not in finding.advice:
            engine.rows(finding.advice)
    [left] = await check_tables(engine.run, database)
    assert "holds step" in left.problem


@pytest.mark.parametrize("has_own_table", [True, False])
async def test_a_views_target_without_a_window_is_found(engine, tables, has_own_table):
    body = f"SELECT logName, count() AS n FROM {tables}.mlop_metrics GROUP BY logName"
    if has_own_table:
        engine.rows(
            f"CREATE TABLE {tables}.sums (logName String, n UInt64) ENGINE = SummingMergeTree"
            " ORDER BY logName"
        )
        engine.rows(f"CREATE MATERIALIZED VIEW {tables}.seen TO {tables}.sums AS {body}")
    else:
        engine.rows(
            f"CREATE MATERIALIZED VIEW {tables}.seen ENGINE = SummingMergeTree ORDER BY logName"
            f" AS {body}"
        )
    [finding] = await check_tables(engine.run, tables)
    assert "filled by view seen, remembers 0 tokens" in finding.problem
    engine.rows(finding.advice)
    assert await check_tables(engine.run, tables) == []


async def test_the_quorum_of_replicated_tables_is_noted():
    async def replicated(sql):
        if "insert_quorum" in sql:
            return [("0",)]
        return []

    [note] = [f for f in await check_tables(replicated, "x") if f.severity is Severity.NOTE]
    assert "insert_quorum is 0" in note.problem
