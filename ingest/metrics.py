"""A worker's own numbers: three dicts, and the Prometheus text made of many workers' dicts.

Counting is on the path of every request, so it is a dict look-up and an addition. Nothing is shared
between processes: once a second a worker writes its numbers into its status file, and whichever
worker is asked for `/metrics` merges the files (`ingest.status`). Counters and histograms are added
up; a gauge is shown for each worker, under the label `worker`, because no one rule of adding fits
all gauges.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from buffer.metrics import Metric

Labels = tuple[tuple[str, str], ...]
Key = tuple[str, Labels]

SECONDS = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
"""Upper bounds of buckets for spans: from a sync (0.6 ms here) to the client's patience (30 s)."""
NUMBERS = (*(float(2**n) for n in range(0, 21, 2)),)
"""For everything else that is observed: requests of a group, rows of a batch."""


class WorkerMetrics:
    """Counters, gauges and histograms of one worker; implements `buffer.metrics.Metrics`.

    Label names come in the same order at every call of one metric: each is made at one place.
    """

    __slots__ = ("counters", "gauges", "histograms")

    def __init__(self) -> None:
        self.counters: dict[Key, float] = {}
        self.gauges: dict[Key, float] = {}
        self.histograms: dict[Key, list[float]] = {}
        """The count of each bucket, of what is above all bounds, and the sum of the values."""

    def count(self, name: str, n: float = 1, **labels: str) -> None:
        """Add `n` to a counter."""
        self.count_key((name, tuple(labels.items())), n)

    def count_key(self, key: Key, n: float = 1) -> None:
        """Add `n` to the counter of a key made before by `key_of`: half of what `count` costs."""
        counters = self.counters
        counters[key] = counters.get(key, 0.0) + n

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        self.gauges[name, tuple(labels.items())] = value

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Put one value into a histogram."""
        self.observe_key((name, tuple(labels.items())), value)

    def observe_key(self, key: Key, value: float) -> None:
        """As `observe`, for a key made before."""
        bounds = _bounds(key[0])
        cells = self.histograms.get(key)
        if cells is None:
            cells = self.histograms[key] = [0.0] * (len(bounds) + 2)
        cells[bisect_left(bounds, value)] += 1
        cells[-1] += value

    def snapshot(self) -> dict[str, Any]:
        """Everything as JSON types; what `add` takes."""
        return {
            "counters": [[name, labels, value] for (name, labels), value in self.counters.items()],
            "gauges": [[name, labels, value] for (name, labels), value in self.gauges.items()],
            "histograms": [[*key, list(cells)] for key, cells in self.histograms.items()],
        }

    def add(self, snapshot: Mapping[str, Any]) -> None:
        """Add a snapshot's counters and histograms to these; its gauges are left out.

        Raises:
            ValueError, TypeError, KeyError: it is no snapshot; counters before the bad one are
                added.
        """
        for name, labels, value in snapshot["counters"]:
            key = _key(name, labels)
            self.counters[key] = self.counters.get(key, 0.0) + float(value)
        for name, labels, cells in snapshot["histograms"]:
            key = _key(name, labels)
            former = self.histograms.get(key) or [0.0] * (len(_bounds(name)) + 2)
            self.histograms[key] = [a + float(b) for a, b in zip(former, cells, strict=True)]


def key_of(name: str, **labels: str) -> Key:
    """The key of a counter or histogram, for what is counted at each request."""
    return name, tuple(labels.items())


def merge(snapshots: Mapping[int, Mapping[str, Any]], living: Iterable[int]) -> WorkerMetrics:
    """The whole server's numbers.

    Args:
        snapshots: by worker slot, dead workers' among them: their counters are kept.
        living: slots whose gauges still mean something.
    """
    whole = WorkerMetrics()
    alive = set(living)
    for slot, snapshot in snapshots.items():
        whole.add(snapshot)
        if slot in alive:
            for name, labels, value in snapshot["gauges"]:
                whole.gauge(name, value, worker=str(slot), **dict(labels))
    return whole


def render(metrics: WorkerMetrics, known: Mapping[str, Metric]) -> str:
    """The Prometheus text format, version 0.0.4.

    A name that the typed lists do not have is shown all the same, with its name for help: a missing
    number is worse than an odd one.
    """
    lines: list[str] = []
    for kind, values in (("counter", metrics.counters), ("gauge", metrics.gauges)):
        by_name: dict[str, list[tuple[Labels, float]]] = {}
        for (name, labels), value in values.items():
            by_name.setdefault(name, []).append((labels, value))
        for name, samples in sorted(by_name.items()):
            full = _full_name(name, kind)
            lines += _head(full, kind, known.get(name))
            lines += [
                f"{full}{_label_text(labels)} {_number(value)}" for labels, value in sorted(samples)
            ]
    former = ""
    for (name, labels), cells in sorted(metrics.histograms.items()):
        full = _full_name(name, "histogram")
        if name != former:
            lines += _head(full, "histogram", known.get(name))
            former = name
        total = 0.0
        for bound, count in zip((*map(str, _bounds(name)), "+Inf"), cells, strict=False):
            total += count
            bucket = _label_text((*labels, ("le", bound)))
            lines.append(f"{full}_bucket{bucket} {_number(total)}")
        lines.append(f"{full}_sum{_label_text(labels)} {_number(cells[-1])}")
        lines.append(f"{full}_count{_label_text(labels)} {_number(total)}")
    return "\n".join(lines) + "\n"


def _bounds(name: str) -> tuple[float, ...]:
    return SECONDS if name.endswith("_seconds") else NUMBERS


def _key(name: object, labels: Iterable[tuple[object, object]]) -> Key:
    return str(name), tuple((str(label), str(text)) for label, text in labels)


def _full_name(name: str, kind: str) -> str:
    name = name if name.startswith("charon_") else f"charon_{name}"
    if kind == "counter" and not name.endswith("_total"):
        return f"{name}_total"
    return name


def _head(full: str, kind: str, metric: Metric | None) -> list[str]:
    meaning = full if metric is None else metric.meaning
    text = meaning.replace("\\", "\\\\").replace("\n", " ")
    return [f"# HELP {full} {text}", f"# TYPE {full} {kind}"]


def _label_text(labels: Labels) -> str:
    if not labels:
        return ""
    quoted = (f'{name}="{_escape(value)}"' for name, value in labels)
    return "{" + ",".join(quoted) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)
