"""Runs that beat: thousands of connections, each of which asks every 4 s whether it may go on.

As the SDK does it: a connection a run, kept open, with the SDK's headers. The schedule is open, the
runs' beats spread evenly; each latency counts from when its beat was due.
"""

from __future__ import annotations

import asyncio
import json
import resource
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from loadtest.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

INTERVAL_SECONDS = 4.0
TICK_SECONDS = 0.002
OPENED_AT_ONCE = 100
ANSWER_SECONDS_MAX = 10.0


class Beats:
    """What was seen."""

    def __init__(self) -> None:
        self.latency = Histogram()
        self.errors: Counter[str] = Counter()
        self.skipped = 0
        """Beats that were due while the run's last one was not answered."""


class Beater(asyncio.Protocol):
    """One run's connection."""

    def __init__(self, beats: Beats, request: bytes) -> None:
        self._beats = beats
        self._request = request
        self._transport: asyncio.Transport | None = None
        self._due: float | None = None
        self._answer = b""

    @property
    def is_waiting(self) -> bool:
        """Whether its last beat is not answered yet."""
        return self._due is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the time."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not say that it is

    def beat(self, due: float) -> None:
        """Send one, due at that moment of the performance counter."""
        if self._due is not None:
            self._beats.skipped += 1
            return
        assert self._transport is not None
        if self._transport.is_closing():
            self._beats.errors["connection lost"] += 1
            return
        self._due, self._answer = due, b""
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Take an answer; a heartbeat's is short, and whole when it ends with a brace."""
        self._answer += data
        if self._due is None or not self._answer.endswith(b"}"):
            return
        self._beats.latency.add(1e3 * (time.perf_counter() - self._due))
        self._due = None
        if b'"RUNNING"' not in self._answer:
            self._beats.errors[self._answer[:80].decode(errors="replace")] += 1

    def connection_lost(self, error: Exception | None) -> None:
        """Count what will not be answered."""
        if self._due is not None:
            self._beats.errors[f"connection lost: {error or 'closed'}"] += 1
            self._due = None

    def close(self) -> None:
        """No more beats."""
        if self._transport is not None:
            self._transport.close()


async def beat(
    url: str,
    key: str,
    run_ids: Sequence[int],
    seconds: float,
    *,
    connected: Callable[[], None] = lambda: None,
) -> Beats:
    """Let the runs beat for so long; `connected` is called when all have their connections."""
    _allow_descriptors(len(run_ids) + 100)
    beats = Beats()
    loop = asyncio.get_running_loop()
    address = urlsplit(url)
    host, port = address.hostname or "127.0.0.1", address.port or 80
    beaters = [Beater(beats, _request(host, port, key, run_id)) for run_id in run_ids]
    for start in range(0, len(beaters), OPENED_AT_ONCE):
        part = beaters[start : start + OPENED_AT_ONCE]
        opened = (loop.create_connection(partial(_same, one), host, port) for one in part)
        await asyncio.gather(*opened)
    connected()
    gap = INTERVAL_SECONDS / len(beaters)
    last = seconds - gap / 2
    begun, sent = time.perf_counter(), 0
    while sent * gap < last:
        now = time.perf_counter() - begun
        while sent * gap <= min(now, last):
            beaters[sent % len(beaters)].beat(begun + sent * gap)
            sent += 1
        await asyncio.sleep(TICK_SECONDS)
    deadline = time.perf_counter() + ANSWER_SECONDS_MAX
    for one in beaters:
        while one.is_waiting and time.perf_counter() < deadline:  # noqa: ASYNC110 - no event a beat
            await asyncio.sleep(0.05)
    beats.errors["no answer"] += sum(one.is_waiting for one in beaters)
    for one in beaters:
        one.close()
    return beats


def _same(one: Beater) -> Beater:
    return one


def _request(host: str, port: int, key: str, run_id: int) -> bytes:
    body = json.dumps({"runId": run_id}).encode()
    head = (
        f"POST /api/runs/trigger HTTP/1.1\r\nHost: {host}:{port}\r\nAccept: */*\r\n"
        "Accept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\n"
        f"User-Agent: pluto\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n"
        f"X-Run-Id: {run_id}\r\nX-Run-Name: load-{run_id}\r\nX-Project-Name: loadtest\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _allow_descriptors(number: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < number:
        if hard != resource.RLIM_INFINITY and hard < number:
            raise RuntimeError(f"{number} connections need `ulimit -n {number}`; here it is {hard}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
