"""What a client may not do, tried against the engine itself.

Each attempt must be refused, and by a code that says so.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

import pytest
import urllib3

from ingest.embedded_functions import ALLOWED_TABLE_FUNCTIONS

DENIED = {"497", "344", "452", "481", "62"}
"""Access denied; experimental and off; a fixed setting; a path outside; not one statement."""


@pytest.fixture(scope="module")
def ask(engine):
    pool = urllib3.PoolManager()

    def ask(sql, **params):
        answer = pool.request(
            "POST",
            f"{engine.url}?{urlencode(params)}",
            body=sql.encode(),
            headers={"X-ClickHouse-User": engine.user, "X-ClickHouse-Key": engine.password},
        )
        return answer.headers.get("X-ClickHouse-Exception-Code"), answer.data.decode()

    yield ask
    pool.clear()


READS = [
    "file('/etc/passwd', 'LineAsString')",
    "url('http://127.0.0.1:1/', 'CSV', 'a Int8')",
    "url('file:///etc/passwd', 'LineAsString', 'a String')",
    "s3('http://127.0.0.1:1/b/k', 'CSV', 'a Int8')",
    "gcs('http://127.0.0.1:1/b/k', 'CSV', 'a Int8')",
    "azureBlobStorage('a', 'b', 'c')",
    "hdfs('hdfs://127.0.0.1:1/x', 'CSV', 'a Int8')",
    "remote('127.0.0.1', system.one)",
    "remoteSecure('127.0.0.1', system.one)",
    "cluster('default', system.one)",
    "clusterAllReplicas('default', system.one)",
    "mysql('127.0.0.1:1', 'b', 'c', 'd', 'e')",
    "postgresql('127.0.0.1:1', 'b', 'c', 'd', 'e')",
    "mongodb('127.0.0.1:1', 'b', 'c', 'd', 'e', 'a Int8')",
    "redis('127.0.0.1:1', 'k', 'k Int8')",
    "sqlite('/tmp/x', 't')",
    "jdbc('a', 'b', 'c')",
    "odbc('a', 'b', 'c')",
    "executable('x', 'TSV', 'a Int8')",
    "filesystem('/etc')",
    "iceberg('http://127.0.0.1:1/x')",
    "icebergLocal('/etc')",
    "deltaLake('http://127.0.0.1:1/x')",
    "deltaLakeLocal('/etc')",
    "hudi('http://127.0.0.1:1/x')",
    "paimonLocal('/etc')",
    "bigquery('x', 'y', 'z')",
    "arrowstream('x')",
    "python('os')",
    "eval('select 1')",
    "dictionary('x')",
    "input('a Int8')",
    "fileCluster('default', '/etc/passwd')",
    "urlCluster('default', 'http://127.0.0.1:1/')",
    "ytsaurus('a', 'b', 'c', 'a Int8')",
    "prometheusQuery('a', 'b', 'c', 1)",
]


@pytest.mark.parametrize("call", READS)
@pytest.mark.parametrize(
    "form",
    [
        "SELECT * FROM {}",
        "DESCRIBE TABLE {}",
        "EXPLAIN SELECT * FROM {}",
        "SELECT 1 WHERE 1 IN (SELECT * FROM {})",
        "WITH x AS (SELECT * FROM {}) SELECT * FROM x",
        "CREATE VIEW stolen AS SELECT * FROM {}",
        "INSERT INTO FUNCTION {} SELECT 1",
    ],
)
def test_no_function_reaches_out_of_the_tables(ask, call, form):
    code, text = ask(form.format(call))
    assert code in DENIED, text


def test_every_table_function_of_the_engine_is_known_to_be_harmless_or_is_refused(ask):
    _, names = ask("SELECT name FROM system.table_functions")
    for name in names.split():
        if name.lower() not in ALLOWED_TABLE_FUNCTIONS:
            code, text = ask(f"SELECT * FROM {name}('x')")
            assert code == "497", (name, text)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT file('/etc/passwd')",
        "SELECT FiLe/**/('/etc/passwd')",
        "SELECT `file`('/etc/passwd')",
        "SELECT \"file\"('/etc/passwd')",
        r"SELECT `fi\x6ce`('/etc/passwd')",
        "SELECT \u201cfile\u201d('/etc/passwd')",
        "SELECT * FROM default.`/etc/passwd`",
        "SELECT 1 INTO OUTFILE '/tmp/charon-stolen'",
        "SELECT 1 INTO OUTFILE '/tmp/charon-stolen' FORMAT CSV",
        "INSERT INTO t FROM INFILE '/etc/passwd' FORMAT LineAsString",
        "SELECT catboostEvaluate('/etc/passwd', 1)",
        "SELECT addressToLine(1)",
        "CREATE TABLE s (a String) ENGINE = File(CSV)",
        "CREATE TABLE s (a String) ENGINE = File(CSV, '/etc/passwd')",
        "CREATE TABLE s (a String) ENGINE = URL('http://127.0.0.1:1/')",
        "CREATE TABLE s (a String) ENGINE = S3('http://127.0.0.1:1/b/k', 'CSV')",
        "CREATE TABLE s (a Int8) ENGINE = Distributed('default', 'system', 'one')",
        "CREATE TABLE s (a Int8) ENGINE = Kafka('x', 'x', 'x', 'CSV')",
        "CREATE TABLE s (a Int8) ENGINE = MySQL('127.0.0.1:1', 'a', 'b', 'c', 'd')",
        "CREATE TABLE s (a Int8) ENGINE = Python('x')",
        "CREATE TABLE s (a Int8) ENGINE = Executable('x', 'TSV')",
        (
            "CREATE TABLE s (a Int8) ENGINE = MergeTree ORDER BY a "
            "SETTINGS disk = disk(type = local, path = '/tmp/')"
        ),
        "CREATE TABLE s (a String DEFAULT file('/etc/passwd')) ENGINE = Memory",
        "CREATE DATABASE s ENGINE = MySQL('127.0.0.1:1', 'b', 'c', 'd')",
        "CREATE DATABASE s ENGINE = SQLite('/tmp/x')",
        "CREATE DATABASE s ENGINE = Filesystem('/etc')",
        "CREATE DATABASE s ENGINE = Overlay('charon')",
        (
            "CREATE DICTIONARY s (a UInt64) PRIMARY KEY a "
            "SOURCE(FILE(path '/etc/passwd' format 'CSV')) LAYOUT(FLAT()) LIFETIME(1)"
        ),
        "CREATE FUNCTION s AS x -> file(x)",
        "CREATE FUNCTION s AS x -> x",
        "CREATE NAMED COLLECTION s AS a = 1",
        "CREATE USER s",
        "CREATE WORKLOAD s",
        "ATTACH TABLE s FROM '/etc' (a Int8) ENGINE = MergeTree ORDER BY a",
        "ATTACH DATABASE s",
        "DETACH DATABASE charon",
        "BACKUP DATABASE charon TO File('/tmp/charon-backup.zip')",
        "RESTORE DATABASE charon FROM File('/tmp/charon-backup.zip')",
        "GRANT ALL ON *.* TO default",
        "GRANT READ ON FILE TO default",
        "EXECUTE AS default SELECT 1",
        "SYSTEM SHUTDOWN",
        "SYSTEM KILL",
        "CREATE TABLE default.s (a Int8) ENGINE = Log",
        "SET allow_experimental_eval_table_function = 1",
        "SET format_template_row = '/etc/passwd'",
        "SET implicit_select = 1",
        "SET max_memory_usage = 0",
        "SET max_memory_usage = 1000000000000",
        "SET max_execution_time = 0",
        "SET max_threads = 1000",
        "SELECT 1 SETTINGS max_execution_time = 0",
        "SELECT 1 SETTINGS max_memory_usage = 0",
        "SELECT 1 FORMAT Template SETTINGS format_template_row = '/etc/passwd'",
        "SELECT 1 SETTINGS dialect = 'prql'",
        "SELECT * FROM system.users",
        "ALTER TABLE system.one ADD COLUMN b Int8",
        "SELECT 1; SELECT 2",
    ],
)
def test_each_attempt_is_refused(ask, sql):
    code, text = ask(sql)
    assert code in DENIED | {"36", "46"}, text
    assert "root:" not in text


@pytest.mark.parametrize("database", ["default", "charon", "system"])
@pytest.mark.parametrize("name", ["'/etc/passwd'", "`/etc/passwd`", '"/etc/passwd"'])
def test_a_file_is_no_table(ask, database, name):
    assert ask(f"SELECT * FROM {name}", database=database)[0] in {"497", "60", "62"}


def test_nothing_was_written_outside():
    assert not Path("/tmp/charon-stolen").exists()
    assert not Path("/tmp/charon-backup.zip").exists()


def test_a_parameter_cannot_name_a_function(ask):
    for sql in ("SELECT {f:Identifier}('/etc/passwd')", "SELECT * FROM {f:Identifier}('/x')"):
        assert ask(sql, param_f="file")[0] == "62"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "SELECT * FROM numbers(3)",
        "SELECT * FROM merge('charon', '^nothing$|^plain$')",
        "SELECT * FROM system.parts LIMIT 1",
        "SELECT name FROM system.tables LIMIT 1",
        "SHOW DATABASES",
        "SHOW CREATE TABLE plain",
        "OPTIMIZE TABLE plain FINAL",
        "ALTER TABLE plain ADD COLUMN IF NOT EXISTS b Int8",
        "ALTER TABLE plain MODIFY TTL toDateTime(a) + INTERVAL 400 YEAR",
        "ALTER TABLE plain DELETE WHERE 0",
        "DELETE FROM plain WHERE 0",
        "SYSTEM STOP MERGES plain",
        "SYSTEM START MERGES plain",
        "CHECK TABLE plain",
        "TRUNCATE TABLE plain",
        "RENAME TABLE plain TO other, other TO plain",
        "CREATE DATABASE IF NOT EXISTS second ENGINE = Atomic",
        "CREATE TABLE IF NOT EXISTS second.t (a Int8) ENGINE = Memory",
        "DROP DATABASE second",
        "KILL QUERY WHERE 0",
        "SET max_threads = 1",
        (
            "CREATE MATERIALIZED VIEW IF NOT EXISTS seen ENGINE = ReplacingMergeTree ORDER BY a "
            "AS SELECT a FROM plain"
        ),
        "DROP VIEW seen",
    ],
)
def test_work_on_tables_is_allowed(ask, sql):
    ask("CREATE TABLE IF NOT EXISTS plain (a UInt32) ENGINE = MergeTree ORDER BY a")
    code, text = ask(sql)
    assert code is None, text
