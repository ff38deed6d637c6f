"""The quick way of an ordinary body gives the very payload of the general one, or gives way."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingest.decode_quick import QUICK_BYTES_MAX, quick_metrics
from ingest.decode_shapes import ShapeCache
from schema.ids import RunId, TenantId
from tests.ingest.bodies import NOW_MS, decode, line

NUMBERS = st.integers(-(2**70), 2**70) | st.floats() | st.sampled_from([-0.0, 2**64 - 1, 1e308])
VALUES = NUMBERS | st.booleans() | st.none() | st.text(max_size=2)
NAMES = st.sampled_from(["a", "loss", "train/loss", "äö/ü", " ", ""]) | st.text(max_size=3)
STEPS = st.integers(-(2**54), 2**54) | st.sampled_from([-0.0, 1.5, None, True, "3"])
TIMES = st.sampled_from([NOW_MS, NOW_MS + 1, 10**12, 10**9, NOW_MS + 10**9, 1e12, None])


def usual_lines():
    data = st.dictionaries(st.sampled_from(["a", "b/c", "ü"]), st.floats(width=32), min_size=1)
    return st.builds(line, data)


def odd_lines():
    data = st.dictionaries(NAMES, VALUES, max_size=4) | st.text(max_size=2) | st.lists(VALUES)
    built = st.builds(lambda d, t, s: line(d, time=t, step=s), data, TIMES, STEPS)
    return built | st.sampled_from(["", " ", "{}", "[1]", "null", "\ufeff{}", '{"a":', "x"])


def quick(body: bytes, shapes: ShapeCache):
    return quick_metrics(body, TenantId("acme"), "fit", RunId(7), now_ms=NOW_MS, shapes=shapes)


@settings(max_examples=150)
@given(st.lists(usual_lines() | odd_lines(), max_size=6), st.sampled_from(["\n", "\r\n", ""]))
@example([line({"a": 1}), line({"a": 2})], "\n")
@example([line({"a": 1, "b": 2}), line({"b": 1})], "\n")
@example([line({"a": True})], "\n")
@example([line({"a": 1}) + line({"a": 1})], "\n")
@example([line({"a": 1})[:-1], ',"b":1},' + line({"a": 1})], "\n")
@example([line({"a": 1}), "", " " + line({"a": 1})], "\n")
def test_the_quick_way_gives_the_same_payload_or_gives_way(found, end):
    body = "".join(one + end for one in found).encode(errors="surrogatepass")
    shapes = ShapeCache()
    for _ in range(2):  # the second time with the shapes that the first has left
        chunks = quick(body, shapes)
        if chunks is None:
            continue
        decoded = decode(body)
        assert decoded.chunks == (chunks,)
        assert decoded.rejected == decoded.unknown_fields == decoded.future_rows == 0


@pytest.mark.parametrize("count", [1, 2, 3, 40])
@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["train/a_long_name_of_some_metric"], ["/"]])
def test_ordinary_bodies_are_taken(names, count):
    body = "\n".join(
        json.dumps({"time": NOW_MS + one, "step": one, "data": dict.fromkeys(names, one / 3)})
        for one in range(count)
    ).encode()
    assert (quick(body, ShapeCache()),) == decode(body).chunks


def test_a_body_above_the_bound_gives_way():
    body = (line({"a": 1}) + "\n").encode() * (QUICK_BYTES_MAX // 40)
    assert len(body) > QUICK_BYTES_MAX
    assert quick(body, ShapeCache()) is None
