"""Histograms and recordings: what is merged is what was counted."""

import json
import random

from loadtest.histogram import Histogram
from loadtest.payloads import Kind
from loadtest.recording import Recording, error_of
from loadtest.scenarios import Due


def test_percentiles_are_right_within_one_per_cent():
    draw = random.Random(3)
    values = [draw.expovariate(1 / 20) + 0.02 for _ in range(20_000)]
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    values.sort()
    for percent in (1, 50, 95, 99, 99.9):
        exact = values[int(len(values) * percent / 100) - 1]
        assert abs(histogram.percentile(percent) / exact - 1) < 0.021, percent
    assert len(histogram) == 20_000
    assert abs(histogram.mean_ms / (sum(values) / len(values)) - 1) < 1e-9


def test_an_empty_histogram_says_nothing():
    assert Histogram().percentile(99) == 0 == Histogram().mean_ms


def test_parts_that_went_through_json_add_up_to_the_whole():
    whole, merged = Recording(), Recording(is_own=False)
    for part in range(3):
        recording = Recording()
        for number in range(1, 40):
            due = Due(number / 10, Kind.METRICS, number % 3, number, b"")
            error = "status 503" if number == 7 else None
            for one in (whole, recording):
                one.record(due, number / 10 + 0.01, number / 10 + 0.02 * (part + 1), error)
        merged.merge(json.loads(json.dumps(recording.taken())))
    assert merged.total.counts == whole.total.counts
    assert merged.service.counts == whole.service.counts
    assert merged.answered == whole.answered
    assert merged.errors == whole.errors == {"status 503": 3}
    assert merged.acknowledged == whole.acknowledged
    assert merged.unknown == whole.unknown == {(Kind.METRICS, 1): [3, 21]}


def test_what_was_taken_is_not_taken_again():
    recording = Recording()
    recording.record(Due(0.0, Kind.LOGS, 0, 1, b""), 0.0, 0.1, None)
    assert recording.taken()["acknowledged"]
    assert not recording.taken()["acknowledged"]


def test_an_answer_counts_only_when_every_row_of_it_was_stored_anew():
    good = b'{"accepted": 100, "rejected": 0, "errors": []}'
    assert error_of(200, good, 100) is None
    assert error_of(200, good.replace(b" ", b""), 100) is None
    assert "not all rows" in error_of(200, good, 101)
    assert "not all rows" in error_of(200, b'{"accepted": 99, "rejected": 1}', 100)
    repeat = b'{"accepted": 100, "rejected": 0, "repeat": true}'
    assert "repeat" in error_of(200, repeat, 100)
    assert "status 503" in error_of(503, b"", 100)
