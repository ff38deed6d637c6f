"""One request at a time, with all of its answer: for tests that count what each one was told."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loadtest.oracle import RequestNumber, Shape, audit, body_of
from tests.chaos.load import stored_rows

if TYPE_CHECKING:
    from loadtest.throwaway import Server
    from tests.chaos.load import Ask


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client read, and how long it waited for it."""

    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float


def post(server: Server, path: str, body: bytes, run: int) -> Answer:
    """POST one body to the server; raises when there is no answer."""
    request = urllib.request.Request(
        server.url + path,
        data=body,
        headers={
            "Authorization": f"Bearer {server.key}",
            "X-Run-Id": str(run),
            "X-Project-Name": "oracle",
            "Content-Type": "application/x-ndjson",
        },
    )
    begun = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            status, headers, text = answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        status, headers, text = error.code, dict(error.headers), error.read()
    return Answer(status, headers, text, time.monotonic() - begun)


class Ledger:
    """Numbered requests of one run; a 503 is held to have stored nothing at all."""

    def __init__(self, server: Server, run: int, shape: Shape) -> None:
        self._server = server
        self._run = run
        self._shape = shape
        self._next = 0
        self.acknowledged: list[tuple[int, RequestNumber]] = []
        self.refused = 0

    def post(self) -> Answer:
        """The next request."""
        number, self._next = RequestNumber(self._next), self._next + 1
        answer = post(
            self._server,
            "/ingest/metrics",
            body_of(self._run, number, self._shape),
            self._run,
        )
        if answer.status == 200:
            assert json.loads(answer.body)["accepted"] == self._shape.rows
            self.acknowledged.append((self._run, number))
        else:
            assert answer.status == 503, answer
            self.refused += 1
        return answer

    def audit(self, ask: Ask) -> int:
        """Acknowledged = stored exactly, refused = not stored."""
        for table in ("mlop_metrics", "mlop_metrics FINAL"):
            result = audit(stored_rows(ask, table, [self._run]), self.acknowledged, [], self._shape)
            assert result.is_clean, f"{table}: {result}"
        return result.expected
