"""What is no HTTP, in the log: a line a second of what strangers send, and none of their bytes.

It would else be theirs to fill the disk with.
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog

LOG_SECONDS = 1.0

log = structlog.get_logger()


@dataclass(slots=True)
class _Said:
    at: float = float("-inf")
    unsaid: int = 0


_said = _Said()


def say_malformed(now: float, status: int, error: str) -> None:
    """Logs a connection's answer to it, and how many were not logged since.

    Args:
        now: by the event loop's clock, seconds.
        status: of HTTP.
        error: the exception's name.
    """
    if now - _said.at < LOG_SECONDS:
        _said.unsaid += 1
        return
    log.info("http_malformed", status=status, error=error, unsaid=_said.unsaid)
    _said.at, _said.unsaid = now, 0
