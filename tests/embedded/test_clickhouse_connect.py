"""clickhouse-connect, unchanged, against the embedded engine: each kind of request it sends."""

from __future__ import annotations

import datetime
import math
import threading

import clickhouse_connect
import pytest
from clickhouse_connect.driver.exceptions import DatabaseError


@pytest.fixture
def table(client):
    client.command("drop table if exists things")
    client.command(
        "create table things (id UInt64, name String, value Nullable(Float64), "
        "at DateTime64(3)) engine = MergeTree order by id"
    )
    return "things"


@pytest.fixture
def client(engine):
    with clickhouse_connect.get_client(
        host="127.0.0.1",
        port=engine.port,
        username=engine.user,
        password=engine.password,
        database=engine.database,
    ) as client:
        yield client


ROWS = [
    [1, "one", 1.5, datetime.datetime(2025, 1, 2, 3, 4, 5, 678_000)],
    [2, "zwei'\\\n\t\x00", None, datetime.datetime(1970, 1, 1)],
    [3, "三", math.inf, datetime.datetime(2250, 12, 31, 23, 59, 59, 999_000)],
]
COLUMNS = ["id", "name", "value", "at"]


def test_it_connects_and_sees_version_zone_and_database(client, engine):
    assert client.server_version.startswith("26.")
    assert str(client.server_tz) == "UTC"
    assert client.database == engine.database
    assert client.command("select currentDatabase()") == engine.database
    assert client.ping()


@pytest.mark.parametrize("compress", [True, False, "lz4", "zstd", "gzip"])
def test_rows_come_back_as_they_were_inserted(engine, compress):
    with clickhouse_connect.get_client(
        host="127.0.0.1",
        port=engine.port,
        username=engine.user,
        password=engine.password,
        database=engine.database,
        compress=compress,
    ) as client:
        client.command("drop table if exists things")
        client.command(
            "create table things (id UInt64, name String, value Nullable(Float64), "
            "at DateTime64(3)) engine = MergeTree order by id"
        )
        summary = client.insert("things", ROWS, column_names=COLUMNS)
        assert summary.written_rows == 3
        rows = client.query("select * from things order by id").result_rows
        assert [list(row) for row in rows] == ROWS


def test_an_insert_of_many_blocks_and_bytes(client, table):
    rows = [[i, "x" * 100, float(i), datetime.datetime(2025, 1, 1)] for i in range(50_000)]
    client.insert(table, rows, column_names=COLUMNS)
    assert client.query(f"select count(), sum(id) from {table}").result_rows == [
        (50_000, sum(range(50_000)))
    ]


@pytest.mark.parametrize("compression", [None, "gzip", "lz4", "zstd"])
def test_a_raw_insert_in_any_format(client, table, compression):
    block = b'{"id":7,"name":"n","value":null,"at":"2025-01-01 00:00:00.000"}\n'
    if compression == "gzip":
        import gzip

        block = gzip.compress(block)
    elif compression == "lz4":
        import lz4.frame

        block = lz4.frame.compress(block)
    elif compression == "zstd":
        from backports import zstd

        block = zstd.compress(block)
    client.raw_insert(table, insert_block=block, fmt="JSONEachRow", compression=compression)
    assert client.command(f"select name from {table}") == "n"


def test_a_raw_query_in_other_formats(client):
    assert client.raw_query("select 1 as a", fmt="JSONEachRow") == b'{"a":1}\n'
    assert client.raw_query("select 1 as a", fmt="CSVWithNames") == b'"a"\n1\n'
    assert client.raw_query("select 1 as a format TSV") == b"1\n"


def test_parameters_are_bound_on_the_server(client):
    result = client.query(
        "select {a:Int64}, {b:String}, {c:Array(String)}, {d:DateTime}",
        parameters={
            "a": -5,
            "b": "it's \\ a\ttab\n",
            "c": ["x", "y'"],
            "d": datetime.datetime(2025, 1, 2, 3, 4, 5),
        },
    )
    assert result.result_rows == [
        (-5, "it's \\ a\ttab\n", ["x", "y'"], datetime.datetime(2025, 1, 2, 3, 4, 5))
    ]


def test_parameters_too_long_for_a_url_go_as_a_form(engine):
    with clickhouse_connect.get_client(
        host="127.0.0.1",
        port=engine.port,
        username=engine.user,
        password=engine.password,
        form_encode_query_params=True,
    ) as client:
        result = client.query("select length({a:String})", parameters={"a": "x" * 100_000})
        assert result.result_rows == [(100_000,)]


def test_settings_of_client_and_query_are_applied_and_do_not_stay(client, engine):
    assert client.command("select getSetting('max_block_size')") == 65_409
    assert (
        client.command("select getSetting('max_block_size')", settings={"max_block_size": 7}) == 7
    )
    assert client.command("select getSetting('max_block_size')") == 65_409
    with clickhouse_connect.get_client(
        host="127.0.0.1",
        port=engine.port,
        username=engine.user,
        password=engine.password,
        settings={"max_block_size": 11},
    ) as other:
        assert other.command("select getSetting('max_block_size')") == 11


def test_a_session_keeps_settings_database_and_temporary_tables(client):
    client.command("set max_block_size = 123")
    assert client.command("select getSetting('max_block_size')") == 123
    assert (
        client.command("select getSetting('max_block_size')", settings={"max_block_size": 7}) == 7
    )
    assert client.command("select getSetting('max_block_size')") == 123
    client.command("create temporary table mine (a UInt8)")
    client.insert("mine", [[1], [2]], column_names=["a"], database="")
    assert client.command("select count() from mine") == 2


def test_another_session_sees_none_of_it(client, engine):
    client.command("create temporary table mine (a UInt8)")
    with (
        clickhouse_connect.get_client(
            host="127.0.0.1", port=engine.port, username=engine.user, password=engine.password
        ) as other,
        pytest.raises(DatabaseError) as caught,
    ):
        other.command("select count() from mine")
    assert caught.value.code == 60


def test_commands_answer_values_lists_and_summaries(client, table):
    assert client.command("select 1") == 1
    assert client.command("select 'a', 'b'") == ["a", "b"]
    assert client.command(f"exists {table}") == 1
    assert "things" in client.command("show tables").split("\n")
    summary = client.command(f"insert into {table} select number, '', 0, 0 from numbers(5)")
    assert summary.written_rows == 5
    client.command(f"insert into {table} values (9, 'x', 1, 0)")
    assert client.command(f"select count() from {table}") == 6


def test_a_command_with_data(client, table):
    client.command(f"insert into {table} (id, name) format CSV", data="5,five\n6,six\n")
    assert client.command(f"select name from {table} where id = 6") == "six"


def test_a_probe_of_columns_only(client):
    result = client.query("select 1 as a, 'x' as b limit 0")
    assert result.column_names == ("a", "b")
    assert result.result_rows == []


def test_an_answer_is_streamed_in_blocks(client):
    with client.query_row_block_stream("select number from numbers(1000000)") as stream:
        assert sum(len(block) for block in stream) == 1_000_000


def test_an_answer_of_many_megabytes_is_whole(client):
    rows = client.query("select number, toString(number) from numbers(700000)").result_columns
    assert len(rows[0]) == 700_000
    assert rows[1][-1] == "699999"


def test_an_error_has_code_and_name(client):
    with pytest.raises(DatabaseError) as caught:
        client.query("select * from nowhere")
    assert caught.value.code == 60
    assert caught.value.name == "UNKNOWN_TABLE"


def test_an_error_in_the_middle_of_a_stream_is_an_error(client):
    sql = "select number, throwIf(number = 3000000) from numbers(10000000)"
    with (
        pytest.raises(DatabaseError) as caught,
        client.query_row_block_stream(sql, settings={"max_block_size": 65_536}) as stream,
    ):
        for _ in stream:
            pass
    assert "FUNCTION_THROW_IF_VALUE_IS_NON_ZERO" in str(caught.value)


def test_a_wrong_password_is_516(engine):
    with pytest.raises(DatabaseError) as caught:
        clickhouse_connect.get_client(
            host="127.0.0.1", port=engine.port, username=engine.user, password="wrong"
        )
    assert caught.value.code == 516


def test_several_clients_at_once(engine):
    failures = []

    def work(number):
        try:
            with clickhouse_connect.get_client(
                host="127.0.0.1", port=engine.port, username=engine.user, password=engine.password
            ) as client:
                for _ in range(10):
                    assert client.command(f"select {number} from numbers(3) limit 1") == number
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
