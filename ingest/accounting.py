"""What is counted and kept of each ingest request, whichever lane served it.

The keys of the counters are made once: putting one together from its labels takes longer than
adding to it.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from ingest.metrics import key_of
from ingest.refused_ring import RefusedLine
from schema.streams import StreamKind

if TYPE_CHECKING:
    from ingest.decode import Decoded
    from ingest.metrics import WorkerMetrics
    from ingest.refused_ring import RefusedRing
    from ingest.request_headers import Addressee
    from schema.ids import TenantId

_STREAMS = (StreamKind.METRICS, StreamKind.LOGS, StreamKind.DATA)
_ROWS = {kind: key_of("rows_accepted", stream=kind.name.lower()) for kind in _STREAMS}
_BYTES = {kind: key_of("body_bytes", stream=kind.name.lower()) for kind in _STREAMS}
_LANES = {lane: key_of("lane_requests", lane=lane) for lane in ("fast", "aiohttp")}
_ANSWERED = {
    kind: key_of("requests", route=f"/ingest/{kind.name.lower()}", status="200")
    for kind in _STREAMS
}
_SECONDS = key_of("request_seconds")


class Accounting:
    """One worker's books on ingest requests."""

    def __init__(self, metrics: WorkerMetrics, refused: RefusedRing) -> None:
        self._metrics = metrics
        self._refused = refused
        self._plain: dict[StreamKind, list[int]] = {}

    def served_by(self, lane: str) -> None:
        """An ingest request was served by this lane: fast or aiohttp."""
        self._metrics.count_key(_LANES[lane])

    def decoded(
        self, tenant: TenantId, kind: StreamKind, to: Addressee, decoded: Decoded, size: int
    ) -> None:
        """A body of `size` bytes has been decoded to this."""
        self._metrics.count_key(_BYTES[kind], size)
        self.remarks(tenant, kind, to, decoded)

    def remarks(self, tenant: TenantId, kind: StreamKind, to: Addressee, decoded: Decoded) -> None:
        """What there is to say about a body's lines."""
        metrics, stream = self._metrics, kind.name.lower()
        if decoded.rejected:
            metrics.count("refusals", decoded.rejected, stream=stream)
        if decoded.unknown_fields:
            metrics.count("unknown_fields", decoded.unknown_fields, stream=stream)
        if decoded.future_rows:
            metrics.count("future_rows", decoded.future_rows, stream=stream)
        if decoded.errors:
            # After the answer: nobody waits for it.
            asyncio.get_running_loop().call_soon(self._keep_refused, tenant, kind, to, decoded)

    def stored(self, kind: StreamKind, rows: int, started: float) -> None:
        """A request that began at `started` (`time.perf_counter`) is answered: rows accepted."""
        metrics = self._metrics
        metrics.count_key(_ROWS[kind], rows)
        metrics.observe_key(_SECONDS, time.perf_counter() - started)

    def stored_fast(self, kind: StreamKind, rows: int, size: int, started: float) -> None:
        """A request that the fast lane has answered 200; as the others together.

        Added up and counted once for all that end in one turn of the loop.
        """
        cells = self._plain.get(kind)
        if cells is None:
            if not self._plain:
                asyncio.get_running_loop().call_soon(self._count_plain)
            self._plain[kind] = [1, rows, size]
        else:
            cells[0] += 1
            cells[1] += rows
            cells[2] += size
        self._metrics.observe_key(_SECONDS, time.perf_counter() - started)

    def _count_plain(self) -> None:
        plain, self._plain = self._plain, {}
        count = self._metrics.count_key
        for kind, (requests, rows, size) in plain.items():
            count(_ANSWERED[kind], requests)
            count(_LANES["fast"], requests)
            count(_ROWS[kind], rows)
            count(_BYTES[kind], size)

    def repeated(self) -> None:
        """A request was answered with the counts of an earlier one."""
        self._metrics.count("repeats")

    def _keep_refused(
        self, tenant: TenantId, kind: StreamKind, to: Addressee, decoded: Decoded
    ) -> None:
        now_ms, stream = time.time_ns() // 1_000_000, kind.name.lower()
        lines = [
            RefusedLine(now_ms, stream, to.run_id, to.project, error, text)
            for error, text in zip(decoded.errors, decoded.refused_lines, strict=True)
        ]
        self._refused.add(tenant, lines)
