"""Any bytes: no exception but the declared ones, and no way through that tells another story."""

from __future__ import annotations

import json

from hypothesis import example, given, settings
from hypothesis import strategies as st

from schema.streams import StreamKind
from tests.fuzz import targets

TOKENS = [
    *(b"{", b"}", b"[", b"]", b":", b",", b'"', b"\\", b"\n", b"\r\n", b" ", b"\t", b"\0"),
    *(b'"time"', b'"step"', b'"data"', b'"logName"', b'"dataType"', b'"message"', b'"logType"'),
    *(
        b'"lineNumber"',
        b"1764423221123",
        b"1764423221",
        b"1e11",
        b"-0",
        b"0.5",
        b"1e999",
        b"9" * 25,
    ),
    *(b"NaN", b"Infinity", b"-Infinity", b'"NaN"', b"null", b"true", b"[[[[", b"}}}}", b'"a/b"'),
    *(b"\\ud800", b"\xff", b"\xc0\xaf", b"\xef\xbb\xbf", "é".encode(), b'{"a":', b"},{", b"{}\n"),
    b'{"time":1764423221123,"step":1,"data":{"a":1,"b":NaN}}\n',
    b'{"time":1764423221123,"message":"m","lineNumber":1,"logType":"INFO"}\n',
    b'{"time":1764423221123,"step":1,"data":"{}","dataType":"T","logName":"n"}\n',
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-(2**70), 2**70) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "time": st.sampled_from([1764423221123, 1764423221, 1e11, 2e12, -1]) | VALUES,
        "step": VALUES,
        "data": st.dictionaries(st.text(max_size=4), VALUES, max_size=4) | VALUES,
        "logName": VALUES,
        "dataType": VALUES,
        "message": VALUES,
        "logType": VALUES,
        "lineNumber": VALUES,
    },
)
LINES = OBJECTS.map(lambda value: json.dumps(value).encode() + b"\n")
BODIES = st.lists(st.sampled_from(TOKENS) | LINES | st.binary(max_size=4), max_size=40).map(
    b"".join
)
# Many short lines go a way of their own once the first refusals have been told.
CROWDS = st.tuples(
    st.sampled_from([b"{}\n", b"[]\n", b"\n", b"x\n", b' {"time":1e11,"data":{}} \n', b" \r\n"]),
    st.integers(1_000, 2_200),
    BODIES,
).map(lambda crowd: crowd[0] * crowd[1] + crowd[2])


@settings(max_examples=300, deadline=None)
@given(BODIES, st.lists(st.integers(0, 4_000), max_size=6), st.sampled_from(targets.KINDS))
def test_the_decoder_agrees_with_itself(body, cuts, kind):
    targets.decoder_agrees_with_itself(body, cuts, kind)


@example(b"{}\n" * 1_024 + b'{"step": null}\n', [1], StreamKind.LOGS)
@settings(max_examples=20, deadline=None)
@given(CROWDS, st.lists(st.integers(0, 9_000), max_size=3), st.sampled_from(targets.KINDS))
def test_crowds_of_short_lines_come_to_the_same_by_every_way(body, cuts, kind):
    targets.decoder_agrees_with_itself(body, cuts, kind)


@settings(max_examples=200, deadline=None)
@given(
    st.binary(max_size=200)
    | st.tuples(
        st.sampled_from([b"\x1f\x8b\x08\0\0\0\0\0\0\3", b"\x78\x9c", b"\x28\xb5\x2f\xfd"]),
        st.binary(max_size=200),
    ).map(b"".join)
)
def test_any_bytes_in_any_encoding_end(data):
    targets.encodings_end(data)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.binary(min_size=8, max_size=8), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 255)), max_size=4),
    st.binary(max_size=50),
)
def test_frames_planted_in_values_are_never_read(nonces, damage, before):
    targets.planted_frames_stay_values(nonces, damage, before)
