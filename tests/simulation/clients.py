"""Clients: rows that nobody else sends, requests that are repeated, and what they were told."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from buffer.errors import Closed, LogFull, Unavailable
from buffer.frame import Submission
from schema.ids import RunId, TenantId
from schema.rows import DataRows, FilesRows, LogsRows, MetricsRows, name_shape
from schema.streams import StreamKind

if TYPE_CHECKING:
    from random import Random

    from buffer.writeahead import WriteAheadBuffer
    from schema.columns import Chunks
    from tests.simulation.loop import Process

TIME_MS = 1_764_423_221_000
TENANT = TenantId("acme")
SHAPE = name_shape(["loss"])
ROOM_SECONDS = 2.0


class Told(Enum):
    """What a client knows of one try."""

    STORED = "stored"
    REFUSED = "refused"
    """Nothing of it is stored."""
    UNKNOWN = "unknown"
    """A sync failed."""
    NOTHING = "nothing"
    """No answer came."""


@dataclass
class Try:
    shard: str
    told: Told = Told.NOTHING
    is_repeat: bool = False


@dataclass
class Request:
    """One request, and all tries at it."""

    number: int
    submission: Submission
    rows: dict[StreamKind, list[int]]
    tries: list[Try] = field(default_factory=list)

    @property
    def is_acknowledged(self) -> bool:
        return any(one.told is Told.STORED for one in self.tries)

    @property
    def shards(self) -> set[str]:
        """Where it may be stored."""
        return {one.shard for one in self.tries if one.told is not Told.REFUSED}


def make_request(number: int, random: Random, next_row: int) -> Request:
    """A request of one to four frames; its rows are numbered from ``next_row`` on."""
    kinds = random.choices(
        [StreamKind.METRICS, StreamKind.LOGS, StreamKind.DATA, StreamKind.FILES],
        [6, 3, 1, 1],
        k=random.choice([1, 1, 1, 2, 4]),
    )
    rows: dict[StreamKind, list[int]] = {}
    chunks: list[Chunks] = []
    for kind in kinds:
        ids = list(range(next_row, next_row + random.choice([1, 2, 3, 9])))
        next_row += len(ids)
        rows.setdefault(kind, []).extend(ids)
        chunks.append(_chunks(kind, ids))
    total = sum(map(len, rows.values()))
    digest = hashlib.blake2b(str(number).encode(), digest_size=16).digest()
    return Request(number, Submission(tuple(chunks), digest, total, number % 3), rows)


def _chunks(kind: StreamKind, ids: list[int]) -> Chunks:
    who = TENANT, "project", RunId(7)
    if kind is StreamKind.METRICS:
        metrics = MetricsRows(*who)
        for row in ids:
            metrics.add_line(TIME_MS + row, float(row), SHAPE, [float(row)])
        return metrics.finish()
    if kind is StreamKind.LOGS:
        logs = LogsRows(*who)
        for row in ids:
            logs.add(TIME_MS + row, "INFO", row, str(row))
        return logs.finish()
    if kind is StreamKind.DATA:
        data = DataRows(*who)
        for row in ids:
            data.add(TIME_MS + row, float(row), "a/b", "text", str(row))
        return data.finish()
    files = FilesRows(*who)
    for row in ids:
        files.add(TIME_MS + row, float(row), "a/b", str(row), "png", row, None, 0, None)
    return files.finish()


async def submit(
    buffer: WriteAheadBuffer, process: Process, request: Request, shard: str, random: Random
) -> Told:
    """One try, as a request handler makes it; ends with what the client has heard."""
    attempt = Try(shard)
    request.tries.append(attempt)
    handler = process.spawn(_handle(buffer, process, request, attempt))
    patience = random.random() * 0.05 if random.random() < 0.08 else None
    await asyncio.wait(
        [handler, process.died], timeout=patience, return_when=asyncio.FIRST_COMPLETED
    )
    if not handler.done():
        handler.cancel()  # the client went away: cancelled, as the web server does it
        await asyncio.wait([handler, process.died], return_when=asyncio.FIRST_COMPLETED)
    if attempt.told is Told.STORED and random.random() < 0.06:
        attempt.told = Told.NOTHING  # the answer is lost on its way
    return attempt.told


async def _handle(
    buffer: WriteAheadBuffer, process: Process, request: Request, attempt: Try
) -> None:
    try:
        try:
            waiting = buffer.append(request.submission)
        except LogFull:
            if not await buffer.room(ROOM_SECONDS, 400):
                raise
            waiting = buffer.append(request.submission)
        receipt = await waiting
    except (LogFull, Closed):
        told = Told.REFUSED
    except Unavailable as error:
        # A new segment that could not be made stores nothing; only a failed sync is unknown.
        told = Told.REFUSED if type(error) is Unavailable else Told.UNKNOWN
    else:
        told = Told.STORED
        attempt.is_repeat = receipt.is_repeat
        expected = request.submission.accepted, request.submission.rejected
        assert (receipt.accepted, receipt.rejected) == expected, "a receipt of another request"
    if process.is_alive:
        attempt.told = told
