"""Latencies counted in buckets of one per cent: bounded memory, however long a run is."""

from __future__ import annotations

import math
from collections import Counter
from typing import Self

_STEP = math.log(1.01)
_LEAST_MS = 0.01


class Histogram:
    """Counts of latencies; percentiles are right within one per cent. Made of parts by `merge`."""

    __slots__ = ("counts", "total_ms")

    def __init__(self, counts: dict[int, int] | None = None, total_ms: float = 0.0) -> None:
        self.counts: Counter[int] = Counter(counts or {})
        self.total_ms = total_ms

    def add(self, latency_ms: float) -> None:
        """Count one."""
        self.counts[int(math.log(max(latency_ms, _LEAST_MS) / _LEAST_MS) / _STEP)] += 1
        self.total_ms += latency_ms

    def merge(self, other: Histogram) -> None:
        """Count all of another's."""
        self.counts.update(other.counts)
        self.total_ms += other.total_ms

    def __len__(self) -> int:
        """How many were counted."""
        return self.counts.total()

    @property
    def mean_ms(self) -> float:
        """The average; 0 when nothing was counted."""
        return self.total_ms / len(self) if self.counts else 0.0

    def percentile(self, percent: float) -> float:
        """The milliseconds that so many per cent do not exceed; 0 when there are none."""
        wanted = len(self) * percent / 100
        seen = 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= wanted:
                return _LEAST_MS * math.exp((bucket + 1) * _STEP)
        return 0.0

    def to_json(self) -> list[object]:
        """What `from_json` takes."""
        return [list(self.counts.items()), self.total_ms]

    @classmethod
    def from_json(cls, value: list[object]) -> Self:
        """Of what `to_json` gave, in another process."""
        counts, total = value
        assert isinstance(counts, list)
        assert isinstance(total, int | float)
        return cls({int(bucket): int(count) for bucket, count in counts}, float(total))
