"""Numbers and their text."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from ingest.metric_names import KNOWN, METRICS
from ingest.metrics import NUMBERS, SECONDS, WorkerMetrics, merge, render

ROOT = Path(__file__).resolve().parents[2]


def test_a_duration_falls_into_the_bucket_whose_bound_it_does_not_pass():
    metrics = WorkerMetrics()
    for value in (0.0, SECONDS[0], SECONDS[0] * 1.01, 31.0):
        metrics.observe("request_seconds", value)
    cells = metrics.histograms["request_seconds", ()]
    assert (cells[0], cells[1], cells[len(SECONDS)]) == (2, 1, 1)
    assert len(cells) == len(SECONDS) + 2


def test_what_is_no_span_has_buckets_of_numbers():
    metrics = WorkerMetrics()
    metrics.observe("log_group_requests", 5)
    assert metrics.histograms["log_group_requests", ()][: len(NUMBERS)].index(1) == 2


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["repeats", "requests_refused"]),
            st.text(alphabet=st.characters(codec="utf-8"), max_size=5),
            st.integers(0, 2**40),
        )
    )
)
def test_text_is_read_back_by_prometheus_own_parser(samples):
    metrics = WorkerMetrics()
    expected: dict[tuple[str, str], float] = {}
    for name, label, value in samples:
        metrics.count(name, value, code=label)
        expected[name, label] = expected.get((name, label), 0) + value
    text = render(merge({0: metrics.snapshot()}, [0]), KNOWN)
    found = {
        (family.name.removeprefix("charon_"), sample.labels["code"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found == expected


def test_histograms_are_cumulative_and_labelled():
    metrics = WorkerMetrics()
    for value in (0.001, 0.2, 100.0):
        metrics.observe("request_seconds", value, stream="logs")
    [family] = text_string_to_metric_families(render(metrics, KNOWN))
    by_bound = {s.labels["le"]: s.value for s in family.samples if s.name.endswith("_bucket")}
    assert (by_bound["0.001"], by_bound["0.25"], by_bound["+Inf"]) == (1, 2, 3)
    assert {s.labels["stream"] for s in family.samples} == {"logs"}


def test_every_name_that_is_counted_is_in_a_typed_list_and_the_other_way_round():
    used = set()
    pattern = re.compile(r'(?:count|gauge|observe|key_of)\(\s*"([a-z_]+)"')
    for package in ("buffer", "ingest"):
        for path in (ROOT / package).glob("*.py"):
            used |= set(pattern.findall(path.read_text()))
    assert used - set(KNOWN) == set()
    assert {metric.name for metric in METRICS} - used == set()
