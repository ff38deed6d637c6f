"""What passes and what is refused, before the engine sees a text."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.embedded_errors import EngineError
from ingest.embedded_functions import REFUSED_FUNCTIONS
from ingest.embedded_lexer import TokenKind, tokens_of
from ingest.embedded_statement import (
    StatementKind,
    insert_from,
    output_format,
    read_statement,
    select_into,
)


def read(text):
    return read_statement(text, REFUSED_FUNCTIONS)


def refused_with(text):
    with pytest.raises(EngineError) as caught:
        read(text)
    return caught.value.code


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("select 1", StatementKind.SELECT),
        ("  -- why\n/* so */ SELECT 1;", StatementKind.SELECT),
        ("with 1 as x select x", StatementKind.SELECT),
        ("(select 1) union all (select 2)", StatementKind.SELECT),
        ("show tables", StatementKind.DESCRIBE),
        ("insert into t select * from u", StatementKind.COMMAND),
        ("insert into t values (1)", StatementKind.INSERT_DATA),
        ("insert into t (a, b) settings x = 1 format Native\n\x01", StatementKind.INSERT_DATA),
        ("create table t (a Int8) engine = Log", StatementKind.COMMAND),
        ("kill query where 1", StatementKind.CONTROL),
        ("grant all on *.* to default", StatementKind.OTHER),
        ("nonsense", StatementKind.OTHER),
    ],
)
def test_the_first_word_decides_the_path(text, kind):
    assert read(text).kind is kind


@pytest.mark.parametrize("text", ["", "  \n", "-- only a comment", ";", "/* */"])
def test_an_empty_text_is_a_syntax_error(text):
    assert refused_with(text) == 62


@pytest.mark.parametrize(
    "text", ["select 1; select 2", "select 1;;drop table t", "insert into t select 1; drop table t"]
)
def test_a_second_statement_is_a_syntax_error(text):
    assert refused_with(text) == 62


def test_semicolons_in_quotes_comments_and_at_the_end_are_no_second_statement():
    assert read("select ';', `a;b` /* ; */ ;; -- ;\n").text == "select ';', `a;b`"


@pytest.mark.parametrize(
    "text",
    [
        "select file('/etc/passwd')",
        "select FILE ('/etc/passwd')",
        "select fIlE/**/('/etc/passwd')",
        "select file -- x\n ('/etc/passwd')",
        "select `file`('/etc/passwd')",
        "select \"File\" ('/etc/passwd')",
        "select 'it''s', file('/etc/passwd')",
        r"select 'a\'', file('/etc/passwd'), '",
        "select * from system.one where a = url('http://x')",
        "explain select * from s3('x')",
        "create view v as select file('/etc/passwd')",
        "insert into t select * from remote('x', system.one)",
        "insert into function file('x', 'CSV', 'a Int8') select 1",
        "insert into function url('x', 'CSV', 'a Int8') format CSV\n1",
        "alter table t add column c String default file('/etc/passwd')",
        "create table t (a Int8) engine = MergeTree order by a settings disk = disk(type = s3)",
        "select 1 into outfile 'x'",
        "select 1 INTO\tOutFile 'x'",
        "insert into t from infile 'x' format CSV",
        "select * from eval('select 1')",
    ],
)
def test_functions_that_reach_out_are_refused_however_they_are_written(text):
    assert refused_with(text) in (497, 62)


@pytest.mark.parametrize(
    "text",
    [
        r"select `fi\x6ce`('/etc/passwd')",
        "select \u201cfile\u201d('/etc/passwd')",
        "select \u2018a\u2019, file('x')",
        r"select x'\', file('/etc/passwd'), '",
        "select 'unclosed",
        "select `unclosed",
    ],
)
def test_what_would_be_cut_otherwise_by_the_engine_is_refused(text):
    assert refused_with(text) in (62, 497)


@pytest.mark.parametrize(
    "text",
    [
        "select 'file(''/etc/passwd'')'",
        "select file, url from t",
        "select 1 -- file('x')",
        "select 1 /* into outfile */",
        "select 'outfile'",
        "select `outfile` from t",
        "select $$file('x')$$",
        "select $a$into outfile$a$, 1",
    ],
)
def test_words_in_quotes_comments_and_columns_pass(text):
    read(text)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("insert into t format CSV\n1,2", "1,2"),
        ("insert into t format CSV 1,2", "1,2"),
        ("insert into t format CSV\r\n1,2", "1,2"),
        ("insert into t format CSV", ""),
        ("insert into t format CSV;", ""),
        ("insert into t values (1);", " (1);"),
        ("insert into t format Native\n\n\x01", "\n\x01"),
        ("insert into t format Native\n", ""),
    ],
)
def test_data_begins_after_one_line_break(text, data):
    assert text[read(text).data_start :] == data


def test_a_select_of_an_insert_is_no_data():
    statement = read("insert into t (a) select b as values from u")
    assert statement.kind is StatementKind.COMMAND


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("insert into t format CSV\n1", "insert into t  FROM INFILE 'F' format CSV"),
        ("insert into t (a) values (1)", "insert into t (a)  FROM INFILE 'F'  FORMAT Values"),
        (
            "insert into t settings a = 1 format CSV",
            "insert into t  FROM INFILE 'F' settings a = 1 format CSV",
        ),
        (
            "insert into t settings a=1 values (1)",
            "insert into t  FROM INFILE 'F' settings a=1  FORMAT Values",
        ),
    ],
)
def test_an_insert_reads_a_file_of_ours(text, result):
    assert insert_from(read(text), "F") == result


@pytest.mark.parametrize(
    ("text", "head", "name"),
    [
        ("select 1", "select 1", "TSV"),
        ("select 1;", "select 1", "TSV"),
        ("select 1 format JSON", "select 1 ", "JSON"),
        ("select 1 format JSON settings max_threads = 1", "select 1 ", "JSON"),
        ("select (select 1 format CSV)", "select (select 1 format CSV)", "TSV"),
        ("select format from t", "select format from t", "TSV"),
    ],
)
def test_a_select_writes_into_a_file_of_ours(text, head, name):
    sql, format_name = select_into(read(text), "F", "TSV")
    assert sql.startswith(f"{head}\nINTO OUTFILE 'F' APPEND\n")
    assert format_name == name


def test_a_format_at_the_end_is_found_before_settings():
    statement = read("select 1 format Native settings a = 1")
    assert statement.tokens[output_format(statement)].text == "format"


@given(st.text(max_size=80))
def test_any_text_is_cut_or_refused(text):
    tokens = []
    with contextlib.suppress(EngineError):
        tokens.extend(tokens_of(text))
    assert all(text[token.start : token.end] == token.text for token in tokens)


@given(st.text(max_size=40))
def test_a_quoted_text_is_one_string(text):
    quoted = "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    (token,) = tokens_of(quoted)
    assert token.kind is TokenKind.STRING


def test_a_long_insert_is_cut_only_up_to_its_data():
    text = "insert into t values " + "(1, 'x')," * 200_000
    assert read(text).data_start == len("insert into t values")


def test_a_statement_beyond_the_bound_is_refused():
    assert refused_with("select " + "1," * 150_000 + "1") == 62
