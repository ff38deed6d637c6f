"""What one generator saw: latencies second by second, and how much of what was acknowledged."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from loadtest.histogram import Histogram
from loadtest.payloads import Kind

if TYPE_CHECKING:
    from loadtest.scenarios import Due

Tally = dict[tuple[Kind, int], list[int]]
"""(stream, run) to [requests, sum of their numbers]."""


class Recording:
    """Counts of one generator, or of several merged.

    Attributes:
        latency: from when a request was due, second by second of the schedule.
        service: from when it was sent: what a closed loop would have reported.
        late: from when it was due until it was sent.
        answered: acknowledgements, by the second in which they came.
        acknowledged, unknown: how many requests of each stream and run; `unknown` got no answer,
            or one that leaves open whether the rows were stored.
        ended: when the last answer came, in seconds from the start of the schedule.
        cpu_seconds, wall_seconds: of the generators' processes, summed.

    Args:
        is_own: recorded in this process, whose CPU time belongs to it; else only merged.
    """

    def __init__(self, *, is_own: bool = True) -> None:
        self._is_own = is_own
        self._cpu_from, self._wall_from = time.process_time(), time.perf_counter()
        self._begin()

    def _begin(self) -> None:
        self.latency: defaultdict[int, Histogram] = defaultdict(Histogram)
        self.service = Histogram()
        self.late = Histogram()
        self.answered: Counter[int] = Counter()
        self.acknowledged: Tally = {}
        self.unknown: Tally = {}
        self.errors: Counter[str] = Counter()
        self.ended = 0.0
        self.cpu_seconds = 0.0
        self.wall_seconds = 0.0

    def record(self, due: Due, sent: float, ended: float, error: str | None) -> None:
        """One request's end.

        Args:
            due: the request.
            sent: seconds from the start of the schedule.
            ended: likewise.
            error: None for an acknowledgement of all its rows.
        """
        self.latency[int(due.seconds)].add(1e3 * (ended - due.seconds))
        self.service.add(1e3 * (ended - sent))
        self.late.add(1e3 * (sent - due.seconds))
        self.ended = max(self.ended, ended)
        if error is None:
            self.answered[int(ended)] += 1
        else:
            self.errors[error] += 1
        tally = self.acknowledged if error is None else self.unknown
        entry = tally.setdefault((due.kind, due.run), [0, 0])
        entry[0] += 1
        entry[1] += due.number

    @property
    def total(self) -> Histogram:
        """Latencies of the whole run."""
        total = Histogram()
        for part in self.latency.values():
            total.merge(part)
        return total

    def taken(self) -> dict[str, Any]:
        """What was counted since the last call, as JSON; counting goes on from nothing."""
        cpu, wall = time.process_time(), time.perf_counter()
        if self._is_own:
            self.cpu_seconds += cpu - self._cpu_from
            self.wall_seconds += wall - self._wall_from
        value = {
            "latency": {second: part.to_json() for second, part in self.latency.items()},
            "service": self.service.to_json(),
            "late": self.late.to_json(),
            "answered": dict(self.answered),
            "acknowledged": _tally_to_json(self.acknowledged),
            "unknown": _tally_to_json(self.unknown),
            "errors": dict(self.errors),
            "ended": self.ended,
            "cpu_seconds": self.cpu_seconds,
            "wall_seconds": self.wall_seconds,
        }
        self._begin()
        self._cpu_from, self._wall_from = cpu, wall
        return value

    def merge(self, value: dict[str, Any]) -> None:
        """Add what another recording's `taken` gave."""
        for second, part in value["latency"].items():
            self.latency[int(second)].merge(Histogram.from_json(part))
        self.service.merge(Histogram.from_json(value["service"]))
        self.late.merge(Histogram.from_json(value["late"]))
        self.answered.update({int(second): n for second, n in value["answered"].items()})
        self.errors.update(value["errors"])
        for name in ("acknowledged", "unknown"):
            tally: Tally = getattr(self, name)
            for kind, run, requests, numbers in value[name]:
                entry = tally.setdefault((Kind(kind), run), [0, 0])
                entry[0] += requests
                entry[1] += numbers
        self.ended = max(self.ended, value["ended"])
        self.cpu_seconds += value["cpu_seconds"]
        self.wall_seconds += value["wall_seconds"]


def progress(recording: Recording, second: int, slots: int) -> str:
    """A line on how the run is doing."""
    total = recording.total
    return (
        f"{second:6d} s  {len(total):>10,} of {slots:,} answered, "
        f"P50 {total.percentile(50):,.1f} ms, P95 {total.percentile(95):,.1f} ms, "
        f"{recording.errors.total():,} failed"
    )


def error_of(status: int, body: bytes, rows: int) -> str | None:
    """What is wrong with an answer; None when it acknowledges every row, and stored them anew."""
    if status != 200:
        return f"status {status}: {body[:120].decode(errors='replace')}"
    if b'"repeat"' in body:
        return "answered as a repeat: the bodies were not all different"
    if b'"accepted":%d,"rejected":0' % rows not in body.replace(b" ", b"")[:80]:
        return f"not all rows were accepted: {body[:120].decode(errors='replace')}"
    return None


def _tally_to_json(tally: Tally) -> list[list[Any]]:
    return [[kind.value, run, *entry] for (kind, run), entry in tally.items()]
