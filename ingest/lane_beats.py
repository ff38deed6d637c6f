"""Heartbeats in the fast lane: a known key, a run that is remembered, and a short answer.

Thousands of runs send one every 4 s each; through aiohttp one costs several times what it does
here. Whatever is not plain (a key or run that has to be looked up, a cancelled run, a body with
anything but the run's number) goes to aiohttp, which answers it in full.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aiohttp.helpers import rfc822_formatted_time

from ingest.lane_answers import plain_answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from catalog.statuses import Status
    from ingest.auth import Authenticator
    from ingest.heartbeats import HeartbeatBoard
    from ingest.lane_heads import BeatHead
    from ingest.metrics import WorkerMetrics

BODY_BYTES_MAX = 256

_BODY = re.compile(rb'\s*\{\s*"runId"\s*:\s*([1-9][0-9]{0,17})\s*\}\s*')


class LaneBeats:
    """Answers the plain heartbeats of one worker.

    Args:
        is_draining: whether answers have to end their connections.
    """

    def __init__(
        self,
        *,
        auth: Authenticator,
        heartbeats: HeartbeatBoard,
        metrics: WorkerMetrics,
        is_draining: Callable[[], bool],
    ) -> None:
        self._auth = auth
        self._heartbeats = heartbeats
        self._metrics = metrics
        self._is_draining = is_draining
        self._date = ""
        self._answers: dict[Status, bytes] = {}
        """Of this second."""

    def take(self, head: BeatHead, body: bytes) -> bytes | None:
        """The answer of a heartbeat; None: aiohttp has to serve it, and nothing was done here."""
        found = _BODY.fullmatch(body) if len(body) <= BODY_BYTES_MAX else None
        if found is None:
            return None
        record = self._auth.valid(head.authorization)
        if record is None:
            return None  # a refusal is said in another dialect than that of ingest
        status = self._heartbeats.known(record.tenant, int(found[1]))
        if status is None:
            return None
        self._metrics.count("requests", route=head.path, status="200")
        if self._is_draining():
            return _answer(status, is_last=True)
        if self._date is not (date := rfc822_formatted_time()):
            self._date = date
            self._answers.clear()
        answer = self._answers.get(status)
        if answer is None:
            answer = self._answers[status] = _answer(status, is_last=False)
        return answer


def _answer(status: Status, *, is_last: bool) -> bytes:
    body = b'{"status":"%b","triggers":null}' % status.value.encode()
    return plain_answer(body, is_last=is_last)
