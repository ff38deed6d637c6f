"""Rows that can be checked one by one: every value follows from run, request, line and name.

A writer posts numbered requests and notes each acknowledged number in its own file, synced, before
it goes on; so after any crash the file says what the server has promised. The audit recomputes
every row of every acknowledged request and compares it with the table: none missing, none doubled,
none with another value, and none that nobody sent.

Source: the method of Jepsen's set test, with rows in the place of elements.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NewType

import aiohttp
import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

RequestNumber = NewType("RequestNumber", int)

TIME_BASE_MS = 1_764_423_221_123
"""An arbitrary fixed time, so that a row's time follows from its place too."""

Row = tuple[int, str, float, int, float]
"""runId, logName, step, time in ms, value."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How much one request holds: ``lines`` lines of ``names`` metrics."""

    lines: int = 10
    names: int = 10

    @property
    def rows(self) -> int:
        """Rows of one request."""
        return self.lines * self.names


def rows_of(run: int, number: RequestNumber, shape: Shape) -> Iterable[Row]:
    """Every row of one request, in the order in which it is sent."""
    for line in range(shape.lines):
        step = number * shape.lines + line
        for name in range(shape.names):
            yield run, f"load/m{name}", float(step), TIME_BASE_MS + step, value_of(run, step, name)


def value_of(run: int, step: int, name: int) -> float:
    """A value that differs from row to row and has no short decimal form."""
    return (run * 1_000_003 + step * 131 + name) / 7.0


def body_of(run: int, number: RequestNumber, shape: Shape) -> bytes:
    """The request's body, as lines of JSON."""
    lines = []
    for line in range(shape.lines):
        step = number * shape.lines + line
        data = {f"load/m{name}": value_of(run, step, name) for name in range(shape.names)}
        lines.append(orjson.dumps({"time": TIME_BASE_MS + step, "step": step, "data": data}))
    return b"\n".join(lines) + b"\n"


@dataclass(slots=True)
class Outcomes:
    """What the clients saw. A request is in exactly one of the three lists."""

    acknowledged: list[tuple[int, RequestNumber]] = field(default_factory=list)
    refused: list[tuple[int, RequestNumber, int]] = field(default_factory=list)
    """With the status that was read."""
    unknown: list[tuple[int, RequestNumber]] = field(default_factory=list)
    """No answer came: may be stored or not."""


class Writer:
    """One client with one connection, sending numbered requests of one run.

    Args:
        note: file in which acknowledged numbers are written and synced before the next request.
    """

    def __init__(
        self, url: str, key: str, run: int, note: Path, shape: Shape, outcomes: Outcomes
    ) -> None:
        self._url = url.rstrip("/") + "/ingest/metrics"
        self._headers = {
            "Authorization": f"Bearer {key}",
            "X-Run-Id": str(run),
            "X-Project-Name": "oracle",
            "Content-Type": "application/x-ndjson",
        }
        self._run = run
        self._note = note
        self._shape = shape
        self._outcomes = outcomes

    async def write(self, numbers: Iterable[int], stop: asyncio.Event) -> None:
        """Send the numbered requests until they end or `stop` is set; each is sent once."""
        descriptor = os.open(self._note, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        timeout = aiohttp.ClientTimeout(total=60)
        connector = aiohttp.TCPConnector(limit=1)
        try:
            async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
                for number in numbers:
                    if stop.is_set():
                        return
                    await self._send(session, RequestNumber(number), descriptor)
        finally:
            os.close(descriptor)

    async def _send(
        self, session: aiohttp.ClientSession, number: RequestNumber, descriptor: int
    ) -> None:
        body = body_of(self._run, number, self._shape)
        try:
            async with session.post(self._url, data=body, headers=self._headers) as response:
                answer = await response.read()
        except (aiohttp.ClientError, TimeoutError, ConnectionError):
            self._outcomes.unknown.append((self._run, number))
            await asyncio.sleep(0.05)  # the server may be restarting: do not spin
            return
        if response.status == 200 and orjson.loads(answer)["accepted"] == self._shape.rows:
            # Written and synced before the next request, off the loop, like any durable promise.
            await asyncio.to_thread(_note, descriptor, b"%d %d\n" % (self._run, number))
            self._outcomes.acknowledged.append((self._run, number))
        elif response.status in {500, 503}:
            self._outcomes.unknown.append((self._run, number))
        else:
            self._outcomes.refused.append((self._run, number, response.status))


def _note(descriptor: int, line: bytes) -> None:
    os.write(descriptor, line)
    os.fdatasync(descriptor)


def noted(files: Iterable[Path]) -> set[tuple[int, RequestNumber]]:
    """The acknowledged requests, as the synced files say."""
    return {
        (int(run), RequestNumber(int(number)))
        for file in files
        for run, number in (line.split() for line in file.read_text().splitlines())
    }


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of comparing acknowledged rows with stored ones; `str()` names examples."""

    expected: int
    stored: int
    missing: tuple[Row, ...]
    doubled: tuple[Row, ...]
    wrong: tuple[Row, ...]
    """Stored with a place that was sent but with another value or time."""
    foreign: tuple[Row, ...]
    """Stored, and neither acknowledged nor of unknown outcome."""

    @property
    def is_clean(self) -> bool:
        """Whether every acknowledged row is stored once, as sent, and nothing else is."""
        return not (self.missing or self.doubled or self.wrong or self.foreign)

    def __str__(self) -> str:
        """One line of counts, then a few examples of each kind of fault."""
        counts = {
            name: len(getattr(self, name)) for name in ("missing", "doubled", "wrong", "foreign")
        }
        examples = {name: getattr(self, name)[:3] for name, count in counts.items() if count}
        return f"{self.expected} rows acknowledged, {self.stored} stored, {counts} {examples or ''}"


def audit(
    stored: Mapping[Row, int],
    acknowledged: Iterable[tuple[int, RequestNumber]],
    unknown: Iterable[tuple[int, RequestNumber]],
    shape: Shape,
) -> Audit:
    """Compare, row by row.

    Args:
        stored: each stored row with the number of its copies.
        acknowledged: requests that got a 200.
        unknown: requests without an answer, or with a 5xx; their rows may be stored or not.
        shape: of every request.
    """
    expected = {row for run, number in acknowledged for row in rows_of(run, number, shape)}
    possible = {row for run, number in unknown for row in rows_of(run, number, shape)}
    places = {row[:3] for row in expected}
    return Audit(
        expected=len(expected),
        stored=sum(stored.values()),
        missing=tuple(row for row in expected if row not in stored),
        doubled=tuple(row for row, copies in stored.items() if copies > 1),
        wrong=tuple(row for row in stored if row not in expected and row[:3] in places),
        foreign=tuple(
            row
            for row in stored
            if row not in expected and row not in possible and row[:3] not in places
        ),
    )
