"""What ClickHouse has against what was acknowledged, run by run.

For each stream and run both the number of rows and the sum of their steps (of a console: line
numbers) must agree: a row that is missing is not made up for by another that is doubled.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadtest.payloads import Kind
    from loadtest.recording import Recording
    from loadtest.scenarios import Plan
    from loadtest.target import Target

WAIT_SECONDS_MAX = 120.0


@dataclass(frozen=True, slots=True)
class Audit:
    """What was found.

    Attributes:
        acknowledged, stored: rows.
        unknown: rows of requests without a clear answer: each may be stored or not.
        differences: a line for each run that does not agree.
        waited_seconds: from the last answer until the last acknowledged row was there.
    """

    acknowledged: int
    stored: int
    unknown: int
    differences: tuple[str, ...]
    waited_seconds: float

    @property
    def is_clean(self) -> bool:
        """Whether what is stored is what was acknowledged."""
        return not self.differences


def audit(
    target: Target, plan: Plan, recording: Recording, *, wait_seconds_max: float = WAIT_SECONDS_MAX
) -> Audit:
    """Wait until as many rows are stored as were acknowledged, and compare run by run."""
    kinds = {kind for kind, _ in (*recording.acknowledged, *recording.unknown)}
    acknowledged = {kind: _rows(plan, recording, kind, is_known=True) for kind in kinds}
    began = time.monotonic()
    while True:
        stored = {kind: _count(target, plan, kind) for kind in kinds}
        waited = time.monotonic() - began
        is_there = all(stored[kind] >= acknowledged[kind] for kind in kinds)
        if is_there or waited > wait_seconds_max:
            break
        time.sleep(0.1)
    differences = [line for kind in kinds for line in _differences(target, plan, recording, kind)]
    return Audit(
        acknowledged=sum(acknowledged.values()),
        stored=sum(stored.values()),
        unknown=sum(_rows(plan, recording, kind, is_known=False) for kind in kinds),
        differences=tuple(differences),
        waited_seconds=round(waited, 2),
    )


def _rows(plan: Plan, recording: Recording, kind: Kind, *, is_known: bool) -> int:
    tally = recording.acknowledged if is_known else recording.unknown
    requests = sum(entry[0] for (one, _), entry in tally.items() if one is kind)
    return requests * plan.shape.rows(kind)


def _count(target: Target, plan: Plan, kind: Kind) -> int:
    return int(target.sql(f"SELECT count() FROM {kind.table} WHERE {_where(plan)}")[0][0])


def _where(plan: Plan) -> str:
    return f"projectName = '{plan.project}'"


def _differences(target: Target, plan: Plan, recording: Recording, kind: Kind) -> list[str]:
    query = (
        f"SELECT runId, count(), sum(toInt64({kind.place})) FROM {kind.table} "
        f"WHERE {_where(plan)} GROUP BY runId"
    )
    stored = {int(run): (int(count), int(places)) for run, count, places in target.sql(query)}
    found = []
    for index, run in enumerate(plan.run_ids):
        requests, numbers = recording.acknowledged.get((kind, index), (0, 0))
        open_requests, _ = recording.unknown.get((kind, index), (0, 0))
        rows, places = stored.pop(run, (0, 0))
        least = requests * plan.shape.rows(kind)
        most = least + open_requests * plan.shape.rows(kind)
        if not least <= rows <= most:
            found.append(f"{kind.table}, run {run}: {least:,} rows acknowledged, {rows:,} stored")
        elif not open_requests and places != plan.shape.places(kind, requests, numbers):
            found.append(
                f"{kind.table}, run {run}: as many rows as acknowledged, but not the same ones"
            )
    found.extend(f"{kind.table}: rows of run {run}, which nobody sent" for run in stored)
    return found
