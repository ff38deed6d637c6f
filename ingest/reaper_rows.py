"""What ClickHouse knows of silent runs: when their latest metric row is of."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import structlog

from ingest.answers import Code, RequestRefused
from schema.streams import METRICS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from catalog.stale_runs import SilentRun
    from ingest.reader import Reader

_QUERY = (
    "SELECT tenantId, projectName, runId, toUnixTimestamp64Milli(max(time)) AS latest_ms "  # noqa: S608 - ours
    f"FROM {METRICS.table} WHERE tenantId IN {{tenants:Array(String)}} "
    "AND projectName IN {projects:Array(String)} AND runId IN {runs:Array(UInt64)} "
    # A row of a client whose clock is ahead says nothing of when it was sent.
    "AND time <= now64(3, 'UTC') GROUP BY tenantId, projectName, runId"
)
ADDRESS_BYTES_MAX = 4_096
"""Of an address's query, where the names and numbers go: servers take 8 KiB and more."""
NAME_MARGIN = 9
"""Two quotes and a comma, as an address spells them; what must be escaped is rare."""
NUMBER_BYTES = 22
_TOO_MUCH = {159, 160, 241, 307}
"""Time, estimated time, memory, bytes: fewer runs at once may do."""

log = structlog.get_logger()


async def latest_rows(reader: Reader, silent: Sequence[SilentRun]) -> Mapping[int, int | None]:
    """By run id: the latest time of a metric row, in ms; a run without rows is missing.

    A run that is too large to be asked about is None: nobody judges it.

    Raises:
        RequestRefused: ClickHouse cannot be read.
    """
    latest: dict[int, int | None] = {}
    for part in _parts(silent):
        latest |= await _ask(reader, part)
    return latest


async def _ask(reader: Reader, silent: Sequence[SilentRun]) -> dict[int, int | None]:
    try:
        rows = await reader.rows(
            _QUERY,
            tenants=sorted({run.tenant for run in silent}),
            projects=sorted({run.project for run in silent}),
            runs=f"[{','.join(str(run.run_id) for run in silent)}]",
        )
    except RequestRefused as refusal:
        if not _is_too_much(refusal):
            raise
        if len(silent) == 1:
            log.warning("silent_run_too_large", run_id=silent[0].run_id)
            return {silent[0].run_id: None}
        half = len(silent) // 2
        return {
            **await _ask(reader, silent[:half]),
            **await _ask(reader, silent[half:]),
        }
    wanted = {(run.tenant, run.project, run.run_id) for run in silent}
    return {
        int(row["runId"]): int(row["latest_ms"])
        for row in rows
        if (row["tenantId"], row["projectName"], int(row["runId"])) in wanted
    }


def _parts(silent: Sequence[SilentRun]) -> Iterator[list[SilentRun]]:
    """The same, as many at once as an address has room for."""
    part: list[SilentRun] = []
    seen: set[str] = set()
    size = 0
    for run in silent:
        more = _size(run, seen)
        if part and size + more > ADDRESS_BYTES_MAX:
            yield part
            part, seen, size = [], set(), 0
            more = _size(run, seen)
        part.append(run)
        seen |= {run.tenant, run.project}
        size += more
    if part:
        yield part


def _size(run: SilentRun, seen: set[str]) -> int:
    """Bytes that the run adds to an address that holds those names already."""
    names = {run.tenant, run.project} - seen
    return sum(len(quote(name)) + NAME_MARGIN for name in names) + NUMBER_BYTES


def _is_too_much(refusal: RequestRefused) -> bool:
    code = getattr(refusal.__cause__, "code", None)
    return refusal.code is Code.QUERY_FAILED and code in _TOO_MUCH
