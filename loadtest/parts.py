"""What each part of a request's way costs by itself, in CPU time of this process.

Each figure is the least of several tries, which is what noise leaves alone. Bodies are the load
tests' own; no two are equal, and the caches are as warm as in a server that has seen the names.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from buffer.clock import SystemClock
from buffer.frame import Seal, Submission, encode_frames
from buffer.fs import RealFileSystem
from buffer.metrics import NoMetrics
from buffer.options import BufferOptions
from buffer.sink import SinkError
from buffer.writeahead import WriteAheadBuffer
from ingest.decode import ShapeCache, decode_whole
from loadtest import payloads
from loadtest.payloads import Shape
from schema.block import build_block, layout_of
from schema.chcodes import ErrorClass
from schema.ids import BlockNumber, RunId, TenantId
from schema.streams import STREAMS, StreamKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from buffer.sink import Sink
    from schema.block import Block, Layout
    from schema.columns import Chunks

SHAPES = {10: Shape(1, 10), 100: Shape(10, 10), 1_000: Shape(100, 10)}
BLOCK_ROWS = 200_000
TRIES = 5
TRY_SECONDS = 0.15
APPENDS = 2_000
APPENDS_AT_ONCE = 64

_SECOND = 1_764_423_221
_KIND = StreamKind.METRICS


def measure_parts(sizes: Sequence[int] = tuple(SHAPES)) -> dict[str, float]:
    """Figures by name; units are in the names."""
    found: dict[str, float] = {}
    for points in sizes:
        shape = SHAPES[points]
        template = payloads.metrics(shape, seed=1)
        bodies = [template.stamped(_SECOND + n, n + 1) for n in range(256)]
        shapes = ShapeCache()
        chunks = [_decode(body, shapes) for body in bodies]
        decode = _least(lambda b=bodies, s=shapes: [_decode(body, s) for body in b])  # type: ignore[misc]
        found[f"decode_{points}_us_per_request"] = decode * 1e6 / len(bodies)
        submissions = [_submission(n, one) for n, one in enumerate(chunks)]
        encode = _least(lambda s=submissions: _encode(s))  # type: ignore[misc]
        found[f"encode_{points}_us_per_request"] = encode * 1e6 / len(bodies)
        found[f"log_{points}_bytes_per_point"] = len(chunks[0].payload) / points
        found[f"append_{points}_us_per_request"] = 1e6 * asyncio.run(_append(chunks[0]))
        block = [one for _ in range(BLOCK_ROWS // points // len(chunks) + 1) for one in chunks]
        block = block[: BLOCK_ROWS // points]
        layout = layout_of(STREAMS[_KIND])
        build = _least(lambda b=block, at=layout: build_block(at, b, BlockNumber(1)))  # type: ignore[misc]
        found[f"build_{points}_rows_per_second"] = BLOCK_ROWS / build
    return {name: round(value, 3 if value < 1_000 else None) for name, value in found.items()}


def _decode(body: bytes, shapes: ShapeCache) -> Chunks:
    decoded = decode_whole(
        body,
        _KIND,
        TenantId("acme"),
        "bench",
        RunId(7),
        now_ms=1_000 * (_SECOND + 1_000),
        shapes=shapes,
    )
    (chunks,) = decoded.chunks
    return chunks


def _submission(number: int, chunks: Chunks) -> Submission:
    return Submission((chunks,), number.to_bytes(16, "little"), chunks.row_count, 0)


def _encode(submissions: Sequence[Submission]) -> None:
    seal = Seal.of(b"8 bytes.")
    into: list[bytes] = []
    for lsn, submission in enumerate(submissions):
        encode_frames(submission, 1_000_000_000 * _SECOND, lsn, seal, into)


def _least(work: Callable[[], object]) -> float:
    """CPU seconds of one call: the least of `TRIES` averages."""
    began = time.process_time()
    work()
    calls = max(1, int(TRY_SECONDS / max(1e-6, time.process_time() - began)))
    tries = []
    for _ in range(TRIES):
        began = time.process_time()
        for _ in range(calls):
            work()
        tries.append((time.process_time() - began) / calls)
    return min(tries)


async def _append(chunks: Chunks) -> float:
    """CPU seconds a request, from append to durable, 64 at once, on a real disk."""
    with tempfile.TemporaryDirectory(prefix="charon-bench-") as directory:
        sink: Sink = _Nowhere()
        buffer = await WriteAheadBuffer.open(
            Path(directory),
            BufferOptions(disk_free_bytes_min=0),
            sink=sink,
            clock=SystemClock(),
            fs=RealFileSystem(),
            metrics=NoMetrics(),
        )
        await buffer.start()
        best = float("inf")
        number = 0
        for _ in range(TRIES):
            began = time.process_time()
            for _ in range(APPENDS // APPENDS_AT_ONCE):
                group = range(number, number + APPENDS_AT_ONCE)
                number += APPENDS_AT_ONCE
                await asyncio.gather(*(buffer.append(_submission(n, chunks)) for n in group))
            used = time.process_time() - began
            best = min(best, used / (APPENDS // APPENDS_AT_ONCE * APPENDS_AT_ONCE))
        await buffer.close(0)
        return best


class _Nowhere:
    """A ClickHouse that is away, so that appending is all that happens."""

    async def layout(self, kind: StreamKind) -> Layout:
        """Never."""
        _be_away(kind)

    async def is_replicated(self, kind: StreamKind) -> bool:
        """Never."""
        _be_away(kind)

    async def insert(self, layout: Layout, block: Block, *, token: str, query_id: str) -> None:
        """Never."""
        _be_away(layout, block, token, query_id)

    async def settle(self, query_id: str) -> None:
        """Never."""
        _be_away(query_id)

    async def has_batch(self, layout: Layout, number: BlockNumber) -> bool:
        """Never."""
        _be_away(layout, number)

    async def stored_rows(
        self, layout: Layout, numbers: Sequence[BlockNumber], *, since_s: int | None
    ) -> Mapping[int, int]:
        """Never."""
        _be_away(layout, numbers, since_s)

    async def count_rows(self, layout: Layout, rows: Sequence[Mapping[str, object]]) -> int:
        """Never."""
        _be_away(layout, rows)

    async def close(self) -> None:
        """Nothing is open."""


def _be_away(*_: object) -> NoReturn:
    raise SinkError(ErrorClass.TRANSIENT, None, "away", is_outcome_unknown=False)
