import pytest

from schema.ddl import create_database, create_table, modify_retention, retention_clause
from schema.layout import layout_of, live_layout
from schema.streams import METRICS, STREAMS

GOLDEN = """\
CREATE TABLE IF NOT EXISTS `charon`.`mlop_metrics`
(
    `tenantId` LowCardinality(String),
    `projectName` LowCardinality(String) CODEC(ZSTD(1)),
    `runId` UInt64 CODEC(Delta, ZSTD(1)),
    `logGroup` LowCardinality(String) CODEC(ZSTD(1)),
    `logName` LowCardinality(String) CODEC(ZSTD(1)),
    `time` DateTime64(3, 'UTC') CODEC(Delta, T64, ZSTD(1)),
    `step` Float64 CODEC(DoubleDelta, ZSTD(1)),
    `value` Float64 CODEC(ZSTD(1)),
    `batch` UInt64 CODEC(Delta, ZSTD(1))
)
ENGINE = ReplacingMergeTree
PRIMARY KEY (tenantId, projectName, runId, logGroup, logName, step)
ORDER BY (tenantId, projectName, runId, logGroup, logName, step, time, reinterpretAsUInt64(value))
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, \
fsync_part_directory = 1, old_parts_lifetime = 480, min_rows_to_fsync_after_merge = 1, \
min_compressed_bytes_to_fsync_after_merge = 1"""


def test_the_table_of_metrics_is_made_so():
    assert create_table(METRICS, "charon") == GOLDEN


def test_the_replicated_variant_has_the_same_columns_and_keys():
    ours = create_table(METRICS, "charon", cluster="main")
    head, rest = ours.split("\n", 1)
    assert head == "CREATE TABLE IF NOT EXISTS `charon`.`mlop_metrics` ON CLUSTER `main`"
    assert (
        "ENGINE = ReplicatedReplacingMergeTree("
        "'/clickhouse/tables/{shard}/{database}/{table}', '{replica}')" in rest
    )
    assert "replicated_deduplication_window = 10000" in rest
    assert "replicated_deduplication_window_seconds = 604800" in rest
    assert "non_replicated" not in rest
    columns = slice(GOLDEN.index("("), GOLDEN.index("ENGINE"))
    assert GOLDEN[columns] in ours
    assert create_database("charon", cluster="main").endswith("ON CLUSTER `main` ENGINE = Atomic")


@pytest.mark.parametrize("stream", STREAMS.values(), ids=lambda stream: stream.table)
@pytest.mark.parametrize("retention_days", [None, 30])
def test_the_engine_makes_each_table_as_declared(engine, database, stream, retention_days):
    engine.rows(create_table(stream, database, retention_days=retention_days))
    live = dict(
        engine.rows(
            "SELECT name, type FROM system.columns WHERE"
            f" database = '{database}' AND table = '{stream.table}'"
        )
    )
    assert live == {column.name: column.type for column in stream.columns}
    assert live_layout(stream, live) == layout_of(stream)
    [[primary, sorting, full]] = engine.rows(
        "SELECT primary_key, sorting_key, engine_full FROM system.tables WHERE"
        f" database = '{database}' AND name = '{stream.table}'"
    )
    assert primary == ", ".join(stream.primary_key)
    assert sorting == ", ".join(stream.sorting_key)
    assert (" TTL " in full) is (retention_days is not None)


@pytest.mark.parametrize("cluster", [None, "main"])
def test_every_setting_of_a_table_is_one_that_the_engine_knows(engine, cluster):
    settings = create_table(METRICS, "x", cluster=cluster).rpartition("SETTINGS ")[2]
    names = [setting.split(" = ")[0] for setting in settings.split(", ")]
    source = "replicated_merge_tree_settings" if cluster else "merge_tree_settings"
    known = {name for (name,) in engine.rows(f"SELECT name FROM system.{source}")}
    assert set(names) <= known


def test_rows_past_their_days_go_and_rows_that_claim_the_far_future_stay(engine, database):
    engine.rows(create_table(METRICS, database, retention_days=18_000))
    engine.rows(modify_retention(METRICS, database, cluster=None, retention_days=7))
    engine.rows(
        f"INSERT INTO {database}.mlop_metrics (logName, time) SELECT 'old', now64(3) -"
        " toIntervalDay(9) UNION ALL SELECT 'new', now64(3) UNION ALL"
        " SELECT 'far', toDateTime64('2290-01-01', 3, 'UTC')"
    )
    engine.rows(f"OPTIMIZE TABLE {database}.mlop_metrics FINAL")
    rows = engine.rows(f"SELECT logName FROM {database}.mlop_metrics ORDER BY logName")
    assert rows == [("far",), ("new",)]


@pytest.mark.parametrize("days", [0, -1, 18_001])
def test_a_retention_that_makes_no_sense_is_refused(days):
    with pytest.raises(ValueError, match="retention_days must be"):
        retention_clause(days)


@pytest.mark.parametrize("stream", STREAMS.values(), ids=lambda stream: stream.table)
def test_the_engine_parses_the_replicated_variant(engine, stream):
    statement = create_table(stream, "charon", cluster="main", retention_days=30)
    quoted = statement.replace("\\", "\\\\").replace("'", "\\'")
    parsed = engine.value(f"SELECT formatQuerySingleLine('{quoted}')")
    assert f"CREATE TABLE IF NOT EXISTS charon.{stream.table} ON CLUSTER main" in parsed
    assert "ReplicatedReplacingMergeTree(" in parsed
    assert parsed.count("TTL") == 1
