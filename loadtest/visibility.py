"""How long an acknowledged row takes until a reader of ClickHouse sees it, measured with markers.

Beside the load a thread posts one point at a time to a run of its own, and looks for it in
ClickHouse four times a second. A figure is therefore up to a quarter of a second too long.
"""

from __future__ import annotations

import json
import time
import urllib.request
from contextlib import suppress
from typing import TYPE_CHECKING

from loadtest.beside import Beside
from loadtest.histogram import Histogram
from loadtest.target import TargetUnusable

if TYPE_CHECKING:
    from loadtest.target import Target

MARKER_SECONDS = 0.3
LOOK_SECONDS = 0.25
"""A look costs ClickHouse 3 to 8 ms: more of them would be load of our own making."""
WAIT_SECONDS_MAX = 30.0


class Visibility(Beside):
    """Measures while it is entered; the last markers are waited for.

    Attributes:
        lags: milliseconds from acknowledgement to visibility.
        lost: markers that were acknowledged and not seen when the measuring ended.
    """

    def __init__(self, target: Target, project: str, run: int) -> None:
        super().__init__("visibility", end_seconds_max=WAIT_SECONDS_MAX + 60)
        self.lags = Histogram()
        self.lost = 0
        self._target = target
        self._project = f"{project}-markers"
        self._run = run
        self._waiting: list[tuple[int, float]] = []

    def _work(self) -> None:
        step, next_marker = 1, 0.0
        deadline = None
        while True:
            now = time.monotonic()
            if self._stop.is_set():
                deadline = deadline or now + WAIT_SECONDS_MAX
                if not self._waiting or now > deadline:
                    self.lost = len(self._waiting)
                    return
            elif now >= next_marker and self._post(step):
                self._waiting.append((step, time.monotonic()))
                step, next_marker = step + 1, now + MARKER_SECONDS
            if self._waiting:
                self._look()
            time.sleep(LOOK_SECONDS)

    def _post(self, step: int) -> bool:
        line = {"time": time.time_ns() // 10**6, "step": step, "data": {"marker": float(step)}}
        request = urllib.request.Request(
            f"{self._target.url}/ingest/metrics",
            data=json.dumps(line).encode(),
            headers={
                "Authorization": f"Bearer {self._target.key}",
                "X-Run-Id": str(self._run),
                "X-Project-Name": self._project,
                "Content-Type": "application/x-ndjson",
            },
        )
        with suppress(OSError), urllib.request.urlopen(request, timeout=30) as answer:
            return bool(answer.status == 200)
        return False

    def _look(self) -> None:
        query = (
            f"SELECT max(step) FROM mlop_metrics WHERE projectName = '{self._project}' "
            f"AND runId = {self._run}"
        )
        with suppress(TargetUnusable):
            seen = float(self._target.sql(query)[0][0] or 0)
            now = time.monotonic()
            for step, acknowledged in self._waiting:
                if step <= seen:
                    self.lags.add(1e3 * (now - acknowledged))
            self._waiting = [entry for entry in self._waiting if entry[0] > seen]
