"""ClickHouse's HTTP interface, byte by byte: who may, what is answered, what is refused."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json

import aiohttp
import lz4.frame
import pytest


@pytest.fixture
async def http():
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def ask(http, engine):
    async def ask(sql=None, *, data=None, method="POST", headers=None, **params):
        if data is None and method == "POST":
            data, sql = sql, None
        if sql is not None:
            params["query"] = sql
        credentials = {"X-ClickHouse-User": engine.user, "X-ClickHouse-Key": engine.password}
        async with http.request(
            method, engine.url, params=params, data=data, headers={**credentials, **(headers or {})}
        ) as answer:
            return answer.status, await answer.read(), answer.headers

    return ask


async def test_ping_needs_nobody(http, engine):
    async with http.get(f"{engine.url}ping") as answer:
        assert (answer.status, await answer.text()) == (200, "Ok.\n")


async def test_an_empty_query_is_ok(ask):
    assert (await ask(method="GET"))[:2] == (200, b"Ok.\n")


@pytest.mark.parametrize("way", ["headers", "basic", "url"])
@pytest.mark.parametrize("wrong", [None, "user", "password", "both", "none"])
async def test_only_the_one_user_comes_in(http, engine, way, wrong):
    user = "other" if wrong in ("user", "both") else engine.user
    password = "x" if wrong in ("password", "both") else engine.password
    headers, params = {}, {"query": "SELECT 1"}
    if wrong != "none":
        if way == "headers":
            headers = {"X-ClickHouse-User": user, "X-ClickHouse-Key": password}
        elif way == "basic":
            token = base64.b64encode(f"{user}:{password}".encode()).decode()
            headers = {"Authorization": f"Basic {token}"}
        else:
            params |= {"user": user, "password": password}
    async with http.get(engine.url, params=params, headers=headers) as answer:
        if wrong is None:
            assert (answer.status, await answer.text()) == (200, "1\n")
        else:
            assert answer.status == 403
            assert answer.headers["X-ClickHouse-Exception-Code"] == "516"
            assert "AUTHENTICATION_FAILED" in await answer.text()


@pytest.mark.parametrize(
    "header", ["Basic", "Basic !!!", "Basic /w==", "Bearer x", "Basic OnJvb3Q="]
)
async def test_broken_credentials_are_516_too(http, engine, header):
    async with http.get(
        engine.url, params={"query": "SELECT 1"}, headers={"Authorization": header}
    ) as answer:
        assert answer.headers["X-ClickHouse-Exception-Code"] == "516"


@pytest.mark.parametrize(
    ("sql", "status", "code", "name"),
    [
        ("SELECT * FROM nowhere", 404, 60, "UNKNOWN_TABLE"),
        ("SELECT * FROM nowhere.t", 404, 81, "UNKNOWN_DATABASE"),
        ("SELECT nothing", 404, 47, "UNKNOWN_IDENTIFIER"),
        ("SELECT nosuch()", 404, 46, "UNKNOWN_FUNCTION"),
        ("SELEKT", 400, 62, "SYNTAX_ERROR"),
        ("SELECT 1 +", 400, 62, "SYNTAX_ERROR"),
        ("SELECT 1; SELECT 2", 400, 62, "SYNTAX_ERROR"),
        ("SELECT 1 FORMAT Nope", 404, 73, "UNKNOWN_FORMAT"),
        ("SELECT 1 SETTINGS nope = 1", 404, 115, "UNKNOWN_SETTING"),
        ("SELECT toUInt8('x')", 400, 6, "CANNOT_PARSE_TEXT"),
        ("SELECT throwIf(1)", 500, 395, "FUNCTION_THROW_IF_VALUE_IS_NON_ZERO"),
        ("GRANT ALL ON *.* TO default", 403, 497, "ACCESS_DENIED"),
        ("SELECT {a:Int8}", 500, 456, "UNKNOWN_QUERY_PARAMETER"),
    ],
)
async def test_errors_have_clickhouses_status_code_and_name(ask, sql, status, code, name):
    found, body, headers = await ask(sql)
    assert found == status
    assert headers["X-ClickHouse-Exception-Code"] == str(code)
    assert body.startswith(f"Code: {code}. DB::Exception: ".encode())
    assert f"({name})".encode() in body


async def test_the_format_is_the_querys_then_the_requests_then_tab_separated(ask):
    assert (await ask("SELECT 1 AS a"))[1] == b"1\n"
    assert (await ask("SELECT 1 AS a", default_format="JSONEachRow"))[1] == b'{"a":1}\n'
    assert (await ask("SELECT 1 AS a FORMAT CSVWithNames", default_format="JSON"))[1] == b'"a"\n1\n'
    _, _, headers = await ask("SELECT 1 AS a FORMAT JSON")
    assert headers["X-ClickHouse-Format"] == "JSON"
    assert headers["Content-Type"].startswith("application/json")
    assert (await ask("SELECT 1", default_format="TSV; DROP TABLE x"))[0] == 404


async def test_a_column_named_format_at_the_end_is_a_column(ask):
    sql = "SELECT format FROM (SELECT 1 AS format) ORDER BY format DESC"
    assert (await ask(sql))[:2] == (200, b"1\n")


async def test_a_query_may_be_in_url_body_or_both(ask):
    assert (await ask("SELECT 1", method="GET"))[1] == b"1\n"
    assert (await ask("SELECT 1", data=b""))[1] == b"1\n"
    assert (await ask(data=b"SELECT 1"))[1] == b"1\n"
    assert (await ask("SELECT", data=b"2"))[1] == b"2\n"


async def test_get_changes_nothing(ask):
    status, _, headers = await ask("CREATE TABLE never (a Int8) ENGINE = Log", method="GET")
    assert (status, headers["X-ClickHouse-Exception-Code"]) == (500, "164")


async def test_parameters_come_escaped(ask):
    status, body, _ = await ask("SELECT {a:Int64}, {b:String}", param_a="-3", param_b="x\\'\\ty")
    assert (status, body) == (200, b"-3\tx\\'\\ty\n")


@pytest.mark.parametrize(
    "params",
    [
        {"wait_end_of_query": "1", "buffer_size": "100"},
        {"client_protocol_version": "54454", "send_progress_in_http_headers": "1"},
        {"enable_http_compression": "1", "http_headers_progress_interval_ms": "1000"},
        {"cancel_http_readonly_queries_on_client_close": "1", "quota_key": "x"},
        {"compress": "0", "log_comment": "mine"},
    ],
)
async def test_names_of_the_interface_are_no_settings(ask, params):
    assert (await ask("SELECT 1", data=b"", **params))[:2] == (200, b"1\n")


@pytest.mark.parametrize("name", ["compress", "decompress"])
async def test_clickhouses_own_framing_is_refused_clearly(ask, name):
    status, body, _ = await ask("SELECT 1", data=b"", **{name: "1"})
    assert status == 501
    assert b"Content-Encoding" in body


@pytest.mark.parametrize("name", ["a b", "x=1, y", "1a", "max_threads`"])
async def test_a_setting_with_an_odd_name_is_unknown(ask, name):
    status, _, headers = await ask("SELECT 1", data=b"", **{name: "1"})
    assert (status, headers["X-ClickHouse-Exception-Code"]) == (404, "115")


async def test_a_settings_value_is_only_a_value(ask):
    status, body, _ = await ask(
        "SELECT getSetting('cluster_for_parallel_replicas')",
        data=b"",
        cluster_for_parallel_replicas="a', max_threads = '9\\",
    )
    assert (status, body) == (200, b"a\\', max_threads = \\'9\\\\\n")


@pytest.mark.parametrize("database", ["system", "od`d", "od\\d"])
async def test_the_database_is_a_name_and_nothing_else(ask, database):
    status, body, _ = await ask("SELECT currentDatabase()", data=b"", database=database)
    assert (status, body) == (200, b"system\n") if database == "system" else status == 404


async def test_a_summary_counts(ask):
    await ask("CREATE TABLE IF NOT EXISTS counted (a UInt8) ENGINE = MergeTree ORDER BY a")
    _, _, headers = await ask("INSERT INTO counted FORMAT CSV", data=b"1\n2\n3\n", query_id="abc")
    summary = json.loads(headers["X-ClickHouse-Summary"])
    assert summary["written_rows"] == "3"
    assert headers["X-ClickHouse-Query-Id"] == "abc"
    _, _, headers = await ask("SELECT * FROM counted")
    assert json.loads(headers["X-ClickHouse-Summary"])["read_rows"] == "3"
    assert headers["X-ClickHouse-Timezone"] == "UTC"


async def test_a_query_id_cannot_break_a_header(ask):
    status, _, headers = await ask("SELECT 1", data=b"", query_id="a\r\nX-Evil: 1")
    assert (status, "X-Evil" in headers) == (400, False)


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(b"SELECT 1", mtime=0)[:-3]),
        ("gzip", b"SELECT 1"),
        ("lz4", lz4.frame.compress(b"SELECT 1")[:-6]),
        ("lz4", b"SELECT 1"),
        ("zstd", b"SELECT 1"),
        ("deflate", b"SELECT 1"),
    ],
)
async def test_a_body_that_is_cut_or_not_in_its_encoding_is_refused(ask, encoding, body):
    status, _, headers = await ask(data=body, headers={"Content-Encoding": encoding})
    assert (status, headers["X-ClickHouse-Exception-Code"]) == (400, "36")


async def test_lz4_frames_may_follow_one_another(ask):
    body = lz4.frame.compress(b"SELECT") + lz4.frame.compress(b" 1")
    assert (await ask(data=body, headers={"Content-Encoding": "lz4"}))[1] == b"1\n"


async def test_an_unknown_encoding_is_refused(ask):
    status, body, _ = await ask(data=b"x", headers={"Content-Encoding": "br"})
    assert status == 501
    assert b"gzip" in body


async def test_a_statement_that_is_no_utf8_is_a_syntax_error(ask):
    assert (await ask(data=b"SELECT '\xff\xfe'"))[0] == 400


async def test_other_paths_and_methods_are_refused(http, engine):
    async with http.get(f"{engine.url}play") as answer:
        assert answer.status == 404
    async with http.delete(engine.url) as answer:
        assert answer.status == 405


async def test_a_session_serves_one_request_at_a_time(ask):
    slow = asyncio.create_task(
        ask("SELECT sleep(1)", data=b"", session_id="one", query_id="holds-one")
    )
    running = "SELECT count() FROM system.processes WHERE query_id = 'holds-one'"
    while (await ask(running))[1] != b"1\n":
        assert not slow.done()
    codes = set()
    while not slow.done():
        _, _, headers = await ask("SELECT 1", data=b"", session_id="one")
        codes.add(headers.get("X-ClickHouse-Exception-Code"))
        await asyncio.sleep(0.02)
    assert (await slow)[0] == 200
    assert "373" in codes


async def test_a_session_that_must_exist_is_looked_for(ask):
    _, _, headers = await ask("SELECT 1", data=b"", session_id="never", session_check="1")
    assert headers["X-ClickHouse-Exception-Code"] == "372"


async def test_a_session_remembers_its_database(ask):
    await ask("USE system", data=b"", session_id="two")
    assert (await ask("SELECT currentDatabase()", data=b"", session_id="two"))[1] == b"system\n"
    assert (await ask("SELECT currentDatabase()", data=b""))[1] == b"charon\n"


async def test_an_idle_session_ends(ask):
    await ask(
        "CREATE TEMPORARY TABLE brief (a Int8)", data=b"", session_id="three", session_timeout="1"
    )
    async with asyncio.timeout(10):
        while (
            await ask(
                "EXISTS TEMPORARY TABLE brief", data=b"", session_id="three", session_timeout="1"
            )
        )[1] == b"1\n":
            await asyncio.sleep(2.2)
