"""Metrics: what is stored, bit for bit; what is refused; that a refusal takes nothing with it."""

from __future__ import annotations

import json
import math
import time as clock
import tracemalloc

import pytest

from ingest.decode import ShapeCache
from tests.ingest.bodies import NOW_MS, bits, decode, errors, line, lines, points, rows


@pytest.fixture(params=["new keys", "known keys"])
def shapes(request: pytest.FixtureRequest) -> ShapeCache:
    cache = ShapeCache()
    if request.param == "known keys":
        for _ in range(2):
            cache.shape(("loss", "acc"))
            cache.shape(("x",))
    return cache


def test_a_line_becomes_a_row_a_metric(shapes):
    decoded = decode(line({"loss": 0.25, "acc": 1}), shapes=shapes)
    assert points(decoded) == [("loss", NOW_MS, 3.0, 0.25), ("acc", NOW_MS, 3.0, 1.0)]
    assert (decoded.rejected, decoded.errors, decoded.hint, decoded.unknown_fields) == (
        0,
        (),
        None,
        0,
    )
    row = rows(decoded)[0]
    assert (row["tenantId"], row["projectName"], row["runId"]) == ("acme", "fit", 7)


def test_the_group_is_what_comes_before_the_last_slash():
    found = rows(decode(line({"a/b/c": 1, "d": 2, "/": 3})))
    assert [(row["logGroup"], row["logName"]) for row in found] == [
        ("a/b", "a/b/c"),
        ("", "d"),
        ("", "/"),
    ]


def test_f01_non_finite_values_are_stored_as_such_and_names_are_left_alone():
    body = (
        '{"time":1764423221123,"step":3,"data":{"loss":NaN,"g":Infinity,"h":-Infinity,'
        '"acc":0.9,"is NaN, -Infinity":1}}'
    )
    for spelled in (
        body,
        body.replace(":NaN", ':"NaN"')
        .replace(":Inf", ':"Inf')
        .replace(":-Inf", ':"-Inf')
        .replace("finity,", 'finity",', 2),
    ):
        decoded = decode(spelled)
        assert decoded.rejected == 0
        loss, g, h, acc, name = points(decoded)
        assert math.isnan(loss[3])
        assert (g[3], h[3], acc[3]) == (math.inf, -math.inf, 0.9)
        assert name[0] == "is NaN, -Infinity"


def test_f01_a_nan_in_one_line_leaves_its_neighbours_alone():
    body = "\n".join([line({"x": 1}), line({"x": math.nan}), line({"x": 2})])
    assert [str(point[3]) for point in points(decode(body))] == ["1.0", "nan", "2.0"]


def test_f02_infinity_and_the_largest_double_are_two_values():
    first, second = points(
        decode('{"time":1764423221123,"data":{"x":Infinity,"y":1.7976931348623157e308}}')
    )
    assert (first[3], second[3]) == (math.inf, 1.7976931348623157e308)


@pytest.mark.parametrize(
    ("spelled", "value"),
    [
        ("1180591620717411303424", 2.0**70),
        ("18446744073709551615", 2.0**64),
        ("18446744073709551616", 2.0**64),
        ("9007199254740993", 9007199254740992.0),
        ("-9223372036854775809", -(2.0**63)),
        ("1e999", math.inf),
        ("-1e999", -math.inf),
        ("9" * 400, math.inf),
        ("-" + "9" * 5_000, -math.inf),
        ("1" + "0" * 308, 1e308),
        ("1e-999", 0.0),
        ("-0.0", -0.0),
        ("-0", 0.0),
        ("5e-324", 5e-324),
        ("0.1", 0.1),
    ],
)
def test_numbers_of_any_size_become_the_nearest_float64(spelled, value, shapes):
    ((_, _, _, found),) = points(
        decode(f'{{"time":1764423221123,"step":3,"data":{{"x":{spelled}}}}}', shapes=shapes)
    )
    assert bits(found) == bits(value)


@pytest.mark.parametrize("bad", [True, False, "1.0", "nan", "inf", "", [], [1], {}, {"a": 1}])
def test_a_bad_value_loses_only_itself(bad, shapes):
    decoded = decode(line({"loss": bad, "acc": 2}), shapes=shapes)
    assert points(decoded) == [("acc", NOW_MS, 3.0, 2.0)]
    assert decoded.rejected == 1
    assert errors(decoded) == [(1, "data.loss")]
    assert "must be a number" in decoded.errors[0].error


def test_null_is_passed_over_and_is_no_refusal(shapes):
    decoded = decode(line({"loss": None, "acc": 2}), shapes=shapes)
    assert points(decoded) == [("acc", NOW_MS, 3.0, 2.0)]
    assert decoded.rejected == 0
    nothing = decode(line({"loss": None}))
    assert (nothing.accepted, nothing.rejected, nothing.chunks) == (0, 0, ())
    assert nothing.hint == "no line holds a value: nulls are passed over"


def test_f03_unusual_names_are_accepted_and_a_blank_one_loses_only_itself():
    documents = [{"time": NOW_MS, "step": i, "data": {"loss": i}} for i in range(100)]
    documents[39]["data"]["timing(s)/gen@95%"] = 1
    documents[40]["data"][""] = 1
    documents[41]["data"][" \t"] = 1
    documents[42]["data"]["\0 é 😀 \u2028"] = 1
    decoded = decode(lines(documents))
    assert decoded.accepted == 102
    assert errors(decoded) == [(41, "data."), (42, "data. \\t")]
    names = {point[0] for point in points(decoded)}
    assert names == {"loss", "timing(s)/gen@95%", "\0 é 😀 \u2028"}


def test_f04_one_broken_line_of_a_hundred_loses_only_itself():
    whole = [line({"loss": i}, step=i) for i in range(100)]
    whole[59] = '{"time":1'
    decoded = decode("\n".join(whole))
    assert (decoded.accepted, decoded.rejected, errors(decoded)) == (99, 1, [(60, "line")])
    assert decoded.errors[0].error == (
        "not JSON: Expecting ',' delimiter at character 10; send one JSON object a line"
    )
    assert [point[2] for point in points(decoded)] == [float(i) for i in range(100) if i != 59]


def test_f06_the_last_of_equal_keys_wins():
    body = '{"time":1764423221123,"step":1,"step":2,"data":{"z":0},"data":{"a":1,"b":5,"a":2}}'
    for spelled in (body, body.replace("5", "NaN")):
        found = points(decode(spelled))
        assert [(name, step) for name, _, step, _ in found] == [("a", 2.0), ("b", 2.0)]
        assert found[0][3] == 2.0


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
def test_f07_deep_nesting_is_refused_quickly_and_alone(opening):
    deep = '{"time":1,"step":0,"data":' + opening * 100_000
    started = clock.perf_counter()
    decoded = decode("\n".join([line({"x": 1}), deep, line({"x": 2})]))
    assert clock.perf_counter() - started < 1
    assert (decoded.accepted, decoded.rejected, errors(decoded)) == (2, 1, [(2, "line")])
    assert decoded.errors[0].error == "nested too deeply"


@pytest.mark.parametrize("levels", [1_100, 9_000])  # Python 3.12's own parser takes these
@pytest.mark.parametrize("leaf", ["1", "NaN"])
def test_what_is_nested_too_deeply_goes_by_no_python(levels, leaf):
    deep = '{"time":1,"step":0,"data":{"a":1},"more":%s}' % ("[" * levels + leaf + "]" * levels)
    decoded = decode("\n".join([deep, line({"x": 2})]))
    assert (decoded.accepted, decoded.rejected) == (1, 1)
    assert decoded.errors[0].error == "nested too deeply"


def test_f08_ever_new_names_cost_no_memory():
    shapes = ShapeCache()
    body = lines(
        {"time": NOW_MS, "step": i, "data": {f"metric_{i}": i}} for i in range(10_000)
    ).encode()
    assert decode(body, shapes=shapes).accepted == 10_000
    assert (len(shapes), shapes.byte_count) == (0, 0)
    tracemalloc.start()
    for round_ in range(1, 4):
        fresh = body.replace(b"metric_", b"metric_%d_" % round_)
        assert decode(fresh, shapes=shapes).accepted == 10_000
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < len(fresh) + 2 * 2**20, "one body, and hashes of names seen once"
    assert len(shapes) == 0


def test_f10_steps_may_come_in_any_order():
    body = "\n".join(line({"x": i}, step=step) for i, step in enumerate([10, 5, 7, 5, 0]))
    assert [point[2] for point in points(decode(body))] == [10, 5, 7, 5, 0]


@pytest.mark.parametrize(
    ("spelled", "step"),
    [
        ("7", 7.0),
        ("7.0", 7.0),
        ("2.5", 2.5),
        ("-5", -5.0),
        ("-0.0", 0.0),
        ("-0", 0.0),
        ("1e3", 1000.0),
        ("9007199254740992", 2.0**53),
        ("-9007199254740992", -(2.0**53)),
        ("null", 0.0),
    ],
)
def test_steps_are_taken_however_they_are_spelled(spelled, step, shapes):
    body = f'{{"time":1764423221123,"step":{spelled},"data":{{"x":1}}}}'
    ((_, _, found, _),) = points(decode(body, shapes=shapes))
    assert bits(found) == bits(step)


def test_a_missing_step_is_zero():
    assert points(decode('{"time":1764423221123,"data":{"x":1}}')) == [("x", NOW_MS, 0.0, 1.0)]


@pytest.mark.parametrize(
    "spelled",
    [
        '"7"',
        "true",
        "[]",
        "{}",
        "NaN",
        "Infinity",
        "-Infinity",
        "1e999",
        "9007199254740993",
        "9007199254740994.0",
        "9" * 500,
    ],
)
def test_a_bad_step_refuses_its_line_alone(spelled, shapes):
    bad = f'{{"time":1764423221123,"step":{spelled},"data":{{"x":1,"y":2}}}}'
    body = "\n".join([line({"x": 1}), bad, line({"x": 3})])
    decoded = decode(body, shapes=shapes)
    assert [point[3] for point in points(decoded)] == [1.0, 3.0]
    assert (decoded.rejected, errors(decoded)) == (1, [(2, "step")])


@pytest.mark.parametrize(
    ("spelled", "says"),
    [
        ("1764423221", "looks like seconds; send milliseconds: 1764423221000"),
        ("99999999999", "looks like seconds"),
        ("0", "before 1973"),
        ("-5", "before 1973"),
        ("10413792000000", "after the year 2299"),
        ("1764423221123000", "microseconds"),
        ("1e300", "after the year 2299"),
        ("1764423221123.5", "not a fraction 1764423221123.5"),
        ("NaN", "not a fraction nan"),
        ('"1764423221123"', "not a string '1764423221123'"),
        ("true", "not a boolean"),
        ("null", "not null"),
        ("[]", "not a list"),
    ],
)
def test_f09_a_bad_time_refuses_its_line_and_says_what_to_send(spelled, says, shapes):
    body = f'{line({"x": 1})}\n{{"time":{spelled},"step":1,"data":{{"x":1}}}}'
    decoded = decode(body, shapes=shapes)
    assert (decoded.accepted, decoded.rejected, errors(decoded)) == (1, 1, [(2, "time")])
    assert says in decoded.errors[0].error


def test_a_missing_time_refuses_its_line():
    decoded = decode('{"step":1,"data":{"x":1}}')
    assert decoded.errors[0].error == "must be integer milliseconds since 1970, but is missing"


@pytest.mark.parametrize(
    "spelled",
    ["100000000000", "10413791999999", "1764423221123", "1764423221123.0", "1669728821123"],
)
def test_times_are_stored_as_sent(spelled, shapes):
    body = f'{{"time":{spelled},"step":1,"data":{{"x":1}}}}'
    ((_, time, _, _),) = points(decode(body, shapes=shapes))
    assert time == int(float(spelled))


def test_f09_times_more_than_a_day_ahead_are_stored_and_counted(shapes):
    day = 86_400_000
    body = "\n".join(
        line({"x": 1, "y": 2}, time=NOW_MS + ahead) for ahead in (0, day, day + 1, 10 * day)
    )
    decoded = decode(body, shapes=shapes)
    assert (decoded.accepted, decoded.future_rows, decoded.rejected) == (8, 4, 0)
    assert points(decoded)[-1][1] == NOW_MS + 10 * day


@pytest.mark.parametrize("bad", [None, [], "x", 5, True])
def test_data_that_is_no_object_is_refused(bad):
    decoded = decode(line(bad))
    assert (decoded.accepted, errors(decoded)) == (0, [(1, "data")])


@pytest.mark.parametrize("spelled", ["5", '"x"', "null", "[]", "true"])
def test_a_line_that_is_no_object_is_refused_alone(spelled):
    decoded = decode(f"{line({'x': 1})}\n{spelled}\n{line({'x': 2})}")
    assert (decoded.accepted, errors(decoded)) == (2, [(2, "line")])


def test_unknown_fields_are_ignored_and_counted(shapes):
    decoded = decode("\n".join([line({"x": 1}, host="a", rank=3), line({"x": 1})]), shapes=shapes)
    assert (decoded.accepted, decoded.rejected, decoded.unknown_fields) == (2, 0, 2)


def test_a_line_of_50_000_names_is_taken_whole_and_not_remembered():
    shapes = ShapeCache()
    wide = line({f"layer/{i}": i for i in range(50_000)})
    for _ in range(2):
        decoded = decode(wide, shapes=shapes)
        assert decoded.accepted == 50_000
        assert [point[3] for point in points(decoded)] == [float(i) for i in range(50_000)]
    assert len(shapes) <= 50_000 // 8_192 + 1


def test_names_at_the_bound_are_taken_and_longer_ones_lose_only_themselves():
    decoded = decode(line({"a" * 65_536: 1, "é" * 32_768: 2, "b" * 65_537: 3, "é" * 32_769: 4}))
    assert [point[3] for point in points(decoded)] == [1.0, 2.0]
    assert [error.error for error in decoded.errors] == [
        "the name must be at most 65,536 bytes of UTF-8"
    ] * 2
    assert all(len(error.field) < 200 for error in decoded.errors)


def test_lone_surrogates_become_replacement_characters():
    decoded = decode(r'{"time":1764423221123,"data":{"a\ud800b":1,"\udfff":2,"\ud83d\ude00":3}}')
    assert [point[0] for point in points(decoded)] == ["a\ufffdb", "\ufffd", "😀"]


def test_bytes_that_are_not_utf8_refuse_their_line():
    body = (
        line({"x": 1}).encode()
        + b'\n{"time":1764423221123,"data":{"\xff":1}}\n'
        + line({"x": 2}).encode()
    )
    decoded = decode(body)
    assert (decoded.accepted, errors(decoded)) == (2, [(2, "line")])
    assert decoded.errors[0].error == "not UTF-8: 0xff at byte 32; encode the line as UTF-8"


def test_errors_are_the_first_twenty_and_the_rest_is_counted():
    decoded = decode("\n".join("{" if i % 2 else line({"x": True}) for i in range(1_000)))
    assert (decoded.accepted, decoded.rejected, len(decoded.errors)) == (0, 1_000, 20)
    assert [error.line for error in decoded.errors] == list(range(1, 21))


def test_strict_stores_nothing_where_anything_is_refused():
    body = "\n".join([line({"x": 1}), line({"x": True})])
    decoded = decode(body, strict=True)
    assert (decoded.accepted, decoded.rejected, decoded.chunks) == (0, 1, ())
    assert decode(line({"x": 1}), strict=True).accepted == 1


def test_rows_split_into_frames_within_their_bounds():
    names = [f"metric_{i}" for i in range(1_000)]
    body = lines(
        {"time": NOW_MS + i, "step": i, "data": dict.fromkeys(names, i)} for i in range(200)
    )
    decoded = decode(body)
    assert decoded.accepted == 200_000
    assert [chunks.row_count for chunks in decoded.chunks] == [65_000, 65_000, 65_000, 5_000]
    found = points(decoded)
    assert [found[i * 1_000][2] for i in range(200)] == [float(i) for i in range(200)]


def test_names_of_megabytes_split_into_frames_within_their_bounds():
    body = line({f"{'g' * 60_000}/{i}": i for i in range(130)})
    decoded = decode(body)
    assert (decoded.accepted, decoded.rejected) == (130, 0)
    assert len(decoded.chunks) >= 2
    assert all(len(chunks.payload) <= 4 * 2**20 for chunks in decoded.chunks)


def test_the_usual_body_takes_less_than_12_bytes_a_point():
    body = lines(
        {"time": NOW_MS + i, "step": i, "data": {f"train/m{j}": i / (j + 1) for j in range(20)}}
        for i in range(100)
    )
    (chunks,) = decode(body).chunks
    assert len(chunks.payload) / 2_000 < 12
    assert json.loads(body.split("\n")[0])["data"]["train/m0"] == 0
