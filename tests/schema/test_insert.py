from schema.insert import INSERT_SETTINGS, insert_statement
from schema.layout import layout_of, live_layout
from schema.streams import LOGS, METRICS


def test_the_statement_names_every_column_of_the_layout():
    assert insert_statement(layout_of(METRICS), "charon") == (
        "INSERT INTO `charon`.`mlop_metrics` (`tenantId`, `projectName`, `runId`, `logGroup`,"
        " `logName`, `time`, `step`, `value`, `batch`) FORMAT Native"
    )


def test_columns_that_a_live_table_has_not_are_not_named():
    types = {column.name: column.type for column in LOGS.columns}
    del types["batch"], types["step"]
    statement = insert_statement(live_layout(LOGS, types), "we`ird")
    assert statement.startswith("INSERT INTO `we\\`ird`.`mlop_logs` (")
    assert "batch" not in statement
    assert "step" not in statement


def test_nothing_that_splits_a_block_or_changes_a_token_is_left_to_a_default(engine):
    """The set of measurements; a setting that the engine does not know would be an error."""
    assert dict(INSERT_SETTINGS) == {
        "insert_deduplicate": 1,
        "deduplicate_insert": "enable",
        "deduplicate_blocks_in_dependent_materialized_views": 1,
        "async_insert": 0,
        "use_strict_insert_block_limits": 0,
        "max_insert_block_size_rows": 100_000_000,
        "max_insert_block_size_bytes": 0,
        "min_insert_block_size_rows": 100_000_000,
        "min_insert_block_size_bytes": 0,
        "max_partitions_per_insert_block": 0,
        "max_insert_threads": 1,
        "input_format_parallel_parsing": 0,
        "optimize_on_insert": 0,
        "input_format_skip_unknown_fields": 0,
    }
    clause = ", ".join(f"{name} = '{value}'" for name, value in INSERT_SETTINGS.items())
    assert engine.value(f"SELECT 1 SETTINGS {clause}") == 1
