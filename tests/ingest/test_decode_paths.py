"""Every way through the decoder gives the same rows and the same refusals for the same body.

Goal: the quick ways (many lines in one call, known keys, orjson) never differ from the slow ones (a
line alone, value by value, Python's parser). Method: bodies made of good lines, odd lines and bare
tokens, with every way called by itself and compared with the slowest.
"""

from __future__ import annotations

import gc
import json
import struct

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingest.decode_data import DataDecoder
from ingest.decode_frames import Frames
from ingest.decode_json import parse_block, parse_lines, parse_tolerantly
from ingest.decode_lines import LineCutter
from ingest.decode_logs import LogsDecoder
from ingest.decode_metrics import MetricsDecoder
from ingest.decode_rows import DAY_MS, Tally
from ingest.decode_shapes import ShapeCache
from ingest.refusals import Refused
from schema.ids import RunId, TenantId
from schema.reading import rows_of
from schema.rows import DataRows, LogsRows, MetricsRows
from schema.streams import StreamKind
from tests.ingest.bodies import NOW_MS, decode, rows

OWNER = (TenantId("acme"), "fit", RunId(7))


def texts():
    return st.text(max_size=6) | st.sampled_from(
        ["", " ", "NaN", "Infinity", "-Infinity", "a/b", "}\n{", '},{"a":[', "true", "\ud800", "\0"]
    )


def numbers():
    return (
        st.integers(-(2**70), 2**70)
        | st.integers(-5, 5)
        | st.floats()
        | st.sampled_from(
            [2**53, 2**53 + 1, -(2**53), 2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**400, -0.0]
        )
    )


def scalars():
    return numbers() | texts() | st.booleans() | st.none()


def anything():
    return st.recursive(
        scalars(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts(), inner, max_size=3),
        max_leaves=6,
    )


def times():
    return (
        st.sampled_from(
            [
                NOW_MS,
                NOW_MS + 1,
                NOW_MS + 2 * DAY_MS,
                float(NOW_MS),
                10**11,
                10**11 - 1,
                10_413_791_999_999,
                10_413_792_000_000,
            ]
        )
        | anything()
    )


def metric_lines():
    data = (
        st.dictionaries(texts(), numbers(), max_size=4)
        | st.dictionaries(texts(), anything(), max_size=3)
        | anything()
    )
    good = st.dictionaries(st.sampled_from(["a", "b", "", " "]), numbers(), max_size=2)
    usual = st.fixed_dictionaries(
        {"time": st.just(NOW_MS), "step": st.integers(0, 9), "data": good},
        optional={"host": st.just("n1")},
    )
    odd = st.fixed_dictionaries(
        {},
        optional={
            "time": times(),
            "step": numbers() | anything(),
            "data": data,
            "host": anything(),
        },
    )
    return usual | odd


def log_lines():
    fields = {
        "time": times(),
        "message": texts() | anything(),
        "lineNumber": numbers() | anything(),
        "logType": texts() | anything(),
    }
    usual = st.fixed_dictionaries(
        {
            "time": st.just(NOW_MS),
            "message": texts(),
            "lineNumber": st.integers(0, 9),
            "logType": st.just("INFO"),
        }
    )
    return usual | st.fixed_dictionaries({}, optional=fields)


def data_lines():
    fields = {
        "time": times(),
        "step": anything(),
        "logName": texts() | anything(),
        "dataType": texts() | anything(),
        "data": texts() | anything(),
    }
    usual = st.fixed_dictionaries(
        {
            "time": st.just(NOW_MS),
            "step": st.integers(0, 9),
            "logName": st.just("h"),
            "dataType": st.just("TABLE"),
            "data": texts(),
        }
    )
    return usual | st.fixed_dictionaries({}, optional=fields)


TOKENS = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    '"',
    '"a"',
    "1",
    '{"a":1}',
    '{"a":[',
    '{"a":"',
    "},{",
    "\n",
    "\r\n",
    "}\n{",
    " ",
    "NaN",
    "\\",
    '{"time":1764423221123,"data":{"a":1}}',
]


def bodies(documents):
    spelled = st.builds(
        lambda document, is_ascii, tight: json.dumps(
            document, ensure_ascii=is_ascii, separators=(",", ":") if tight else None
        ).encode(errors="surrogatepass"),
        documents,
        st.booleans(),
        st.booleans(),
    )
    tokens = st.lists(st.sampled_from(TOKENS), max_size=8).map(
        lambda found: "".join(found).encode()
    )
    pieces = st.lists(spelled | spelled | spelled | tokens | st.binary(max_size=6), max_size=6)
    return st.builds(
        lambda found, end: end.join(found),
        pieces,
        st.sampled_from([b"\n", b"\n", b"\r\n", b"\n\n"]),
    )


def new_decoder(kind, tally, shapes):
    if kind is StreamKind.METRICS:
        return MetricsDecoder(Frames(lambda: MetricsRows(*OWNER)), shapes, tally)
    if kind is StreamKind.LOGS:
        return LogsDecoder(Frames(lambda: LogsRows(*OWNER)), tally)
    return DataDecoder(Frames(lambda: DataRows(*OWNER)), tally)


def by_python(block, refusals):
    """Every line by Python's parser."""
    for number, raw in enumerate(block.lines, block.first_line):
        line = raw.strip(b" \t\r\n")
        if line:
            try:
                yield number, parse_tolerantly(line)
            except Refused as refused:
                refusals.add_refused(number, refused)


def outcome(body, kind, way, shapes):
    """Rows with floats as bits, refusals and counts; None where that way does not take the body."""
    tally = Tally(NOW_MS + DAY_MS)
    decoder = new_decoder(kind, tally, shapes)
    for block in LineCutter().cut(body, is_last=True):
        if way == "one call":
            values = parse_block(block)
            if values is None:
                return None
            decoder.add(enumerate(values, block.first_line))
        elif way == "line by line":
            decoder.add(parse_lines(block, tally.refusals))
        elif way == "Python's parser":
            decoder.add(by_python(block, tally.refusals))
        else:
            for number, value in by_python(block, tally.refusals):
                decoder._add_checked(number, value)
    found = [comparable(row) for chunks in decoder.finish() for row in rows_of(chunks)]
    return (
        found,
        tally.refusals.errors,
        tally.refusals.count,
        tally.refusals.by_reason,
        tally.unknown_fields,
        tally.future_rows,
    )


def comparable(row):
    return {
        name: struct.pack("<d", value) if type(value) is float else value
        for name, value in row.items()
    }


def all_agree(body, kind):
    slowest = "value by value" if kind is StreamKind.METRICS else "Python's parser"
    expected = outcome(body, kind, slowest, ShapeCache())
    shapes = ShapeCache()
    for _ in range(3):  # keys unknown, seen once, known
        for way in ("line by line", "one call", "Python's parser"):
            found = outcome(body, kind, way, shapes)
            assert found in (expected, None) if way == "one call" else found == expected, way


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":"x}\n{y"},{"b":1}',
        b'{"a":[{"x":1}\n{"y":2}]},{"b":1}',
        b'{"a":[{}\n{}]},5',
        b'{"a":[1\n{}]},{}',
        b"{\n}",
        b'{"a":1\n"b":2},{}',
        b"{},{}\n",
        b"{}],[{}",
        b"{}]\n[{}",
    ],
)
def test_the_one_call_refuses_bodies_whose_lines_are_broken(body):
    (block,) = LineCutter().cut(body, is_last=True)
    assert parse_block(block) is None


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(TOKENS), max_size=14).map(lambda found: "".join(found).encode()))
def test_what_the_one_call_takes_every_line_alone_is_taken_for_too(body):
    for block in LineCutter().cut(body, is_last=True):
        values = parse_block(block)
        if values is not None:
            assert values == [orjson.loads(line) for line in block.lines]


@settings(max_examples=250, deadline=None)
@given(bodies(metric_lines()))
@example(b'{"time":1764423221123,"step":0,"data":{"a":true}}')
@example(b'{"time":1764423221123,"step":true,"data":{"a":1}}')
@example(b'{"time":1764423221123,"step":0,"data":"ab"}')
@example(b'{"time":1764423221123,"step":0,"data":["a","b"]}')
def test_every_way_gives_the_same_metrics(body):
    all_agree(body, StreamKind.METRICS)


@settings(max_examples=100, deadline=None)
@given(bodies(log_lines()))
def test_every_way_gives_the_same_logs(body):
    all_agree(body, StreamKind.LOGS)


@settings(max_examples=100, deadline=None)
@given(bodies(data_lines()))
def test_every_way_gives_the_same_data(body):
    all_agree(body, StreamKind.DATA)


@settings(max_examples=100, deadline=None)
@given(bodies(metric_lines()), st.integers(1, 50))
def test_slices_make_no_difference(body, slice_bytes):
    whole, sliced = decode(body), decode(body, slice_bytes=slice_bytes)
    assert [comparable(row) for row in rows(whole)] == [comparable(row) for row in rows(sliced)]
    assert (whole.rejected, whole.errors, whole.unknown_fields, whole.future_rows) == (
        sliced.rejected,
        sliced.errors,
        sliced.unknown_fields,
        sliced.future_rows,
    )
    assert (whole.hint is None) == (sliced.hint is None) == bool(whole.accepted)


@settings(max_examples=150, deadline=None)
@example(b'{"time":1e11,"data":{}}', StreamKind.METRICS)  # a good line that holds no value
@given(
    st.binary(max_size=60), st.sampled_from([StreamKind.METRICS, StreamKind.LOGS, StreamKind.DATA])
)
def test_no_bytes_raise_or_are_stored_without_a_line(body, kind):
    decoded = decode(body, kind)
    lines = [line.strip(b" \t\r\n") for line in body.removeprefix(b"\xef\xbb\xbf").split(b"\n")]
    good = sum(is_object(line) for line in lines)
    assert decoded.accepted == len(rows(decoded)) <= 60 * good
    assert decoded.rejected >= sum(map(bool, lines)) - good
    if not good:
        assert decoded.rejected == sum(map(bool, lines))


def is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


@pytest.mark.parametrize("end", [b"0]}", b"NaN]}", b"}"])
def test_the_collector_of_cycles_is_on_again_after_a_large_parse(end):
    assert gc.isenabled()
    decode(b'{"time":1764423221123,"x":[' + b"[]," * 100_000 + end)
    assert gc.isenabled()
