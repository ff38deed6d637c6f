import pytest

from schema.errors import LayoutMismatch
from schema.layout import layout_of, live_layout
from schema.streams import FILES, LOGS, METRICS, STREAMS

PLUTO_METRICS = {
    "tenantId": "LowCardinality(String)",
    "projectName": "String",
    "runId": "UInt64",
    "logGroup": "String",
    "logName": "String",
    "time": "DateTime64(3)",
    "step": "UInt64",
    "value": "Float64",
}


def types_of(stream, **changes):
    types = {column.name: column.type for column in stream.columns} | changes
    return {name: type_name for name, type_name in types.items() if type_name}


@pytest.mark.parametrize("stream", STREAMS.values(), ids=lambda stream: stream.table)
def test_a_table_of_ours_has_the_declared_layout(stream):
    layout = live_layout(stream, types_of(stream))
    assert layout == layout_of(stream)
    assert layout.has_batch


def test_a_pluto_table_is_written_with_integer_steps_and_without_batch():
    layout = live_layout(METRICS, PLUTO_METRICS)
    assert not layout.has_batch
    assert {entry.column.name: entry.type for entry in layout.columns} == {
        **PLUTO_METRICS,
        **dict.fromkeys(("projectName", "logGroup", "logName"), "LowCardinality(String)"),
        "time": "DateTime64(3, 'UTC')",
    }


def test_columns_that_are_not_ours_are_left_alone():
    layout = live_layout(METRICS, {**PLUTO_METRICS, "extra": "Array(Tuple(UInt8, String))"})
    assert "extra" not in {entry.column.name for entry in layout.columns}


@pytest.mark.parametrize(
    ("column", "live", "written"),
    [
        ("logName", "String", "LowCardinality(String)"),
        ("logName", "Nullable(String)", "LowCardinality(String)"),
        ("tenantId", "String", "LowCardinality(String)"),
        ("tenantId", "LowCardinality(Nullable(String))", "LowCardinality(String)"),
        ("time", "DateTime64(6, 'Asia/Tokyo')", "DateTime64(3, 'UTC')"),
        ("step", "Int64", "Int64"),
        ("value", "Nullable(Float64)", "Float64"),
    ],
)
def test_types_that_lose_nothing_are_taken(column, live, written):
    layout = live_layout(METRICS, types_of(METRICS, **{column: live}))
    assert {entry.column.name: entry.type for entry in layout.columns}[column] == written


@pytest.mark.parametrize(
    ("column", "live"),
    [
        *(("logName", "FixedString(16)"), ("logName", "Enum8('a' = 1)"), ("logName", "UInt64")),
        *(("value", "Float32"), ("value", "UInt64"), ("runId", "UInt32"), ("runId", "String")),
        *(("time", "DateTime"), ("time", "DateTime64(0)"), ("time", "DateTime64(9)")),
        *(("step", "UInt32"), ("step", "Float32"), ("step", "String")),
        *(("tenantId", ""), ("value", ""), ("step", "")),
    ],
)
def test_types_that_would_change_values_and_missing_columns_are_refused_by_name(column, live):
    with pytest.raises(LayoutMismatch, match=column) as caught:
        live_layout(METRICS, types_of(METRICS, **{column: live}))
    assert (caught.value.table, caught.value.column) == ("mlop_metrics", column)


@pytest.mark.parametrize("live", ["", "UInt64", "UInt32"])
def test_a_column_that_no_writer_fills_may_be_missing_or_of_another_type(live):
    layout = live_layout(LOGS, types_of(LOGS, step=live))
    assert "step" not in {entry.column.name for entry in layout.columns}


def test_a_batch_of_another_type_is_someone_elses():
    assert not live_layout(METRICS, types_of(METRICS, batch="String")).has_batch


def test_a_table_without_nulls_gets_empty_strings():
    layout = live_layout(FILES, types_of(FILES, caption="String"))
    assert {entry.column.name: entry.type for entry in layout.columns}["caption"] == "String"
