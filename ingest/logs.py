"""How a process logs: structlog to standard error, a line an event, secrets cut out of each.

Event names are fixed and in snake_case; one line a state change, none a row. What libraries log
through the standard library's `logging` takes the same way out. Each line, tracebacks included,
passes `redact` as its last step, so that no key reaches a log whoever wrote the line.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from typing import TYPE_CHECKING, Any, TextIO

import orjson
import structlog

if TYPE_CHECKING:
    from collections.abc import MutableMapping

LINE_CHARACTERS_MAX = 16_384
"""A longer line is cut: a traceback through a deep stack is still read from its end."""

_KEY = re.compile(r"(mlp[a-z]_)[A-Za-z0-9._-]+")
_CREDENTIALS = re.compile(r"(?i)\b(bearer|basic)(\s+)[^\s'\",;]+")
_DSN = re.compile(r"(://[^\s:/@]{0,256}:)[^\s@]{1,256}@")
# Each is linear in the line: a client's value in a log line must not cost a second of a worker.
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def set_up(level: str, form: str, *, output: TextIO | None = None, **bound: object) -> None:
    """Configure logging of this process. Once, before the first line.

    Args:
        level: debug, info, warning or error.
        form: `json`, or `console` for people.
        output: default: standard error.
        bound: in every line, like `worker=0`.
    """
    stream = sys.stderr if output is None else output
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(**bound)
    render = _as_json if form == "json" else _as_text
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _with_traceback,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers[:] = [_Through()]
    # Libraries speak of each connection and statement below warning; that is not an operator's log.
    root.setLevel(max(_LEVELS[level], logging.WARNING))


def redact(text: str) -> str:
    """The text without API keys, credentials and passwords in addresses; a key's kind is left."""
    text = _KEY.sub(r"\1…", text)
    text = _CREDENTIALS.sub(r"\1\2…", text)
    return _DSN.sub(r"\1…@", text)


class _Through(logging.Handler):
    """The standard library's records as events of ours."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log the record; never raises, as a handler must not."""
        try:
            structlog.get_logger().log(
                record.levelno,
                "library_log",
                logger=record.name,
                message=record.getMessage(),
                exc_info=record.exc_info,
            )
        except Exception:  # noqa: BLE001 - logging's own contract: report, and go on
            self.handleError(record)


def _with_traceback(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """The exception's traceback as text. Python's own form, which shows no values of locals."""
    error = event.pop("exc_info", None)
    if error is True:
        error = sys.exc_info()
    if isinstance(error, tuple):
        error = error[1]
    if isinstance(error, BaseException):
        event["traceback"] = "".join(traceback.format_exception(error))
    return event


def _as_json(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    return _cut(redact(orjson.dumps(dict(event), default=str).decode()))


def _as_text(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    stamp, level, name = event.pop("timestamp"), event.pop("level"), event.pop("event")
    trace = event.pop("traceback", None)
    fields = " ".join(f"{key}={_shown(value)}" for key, value in event.items())
    line = f"{stamp} {level:<8}{name} {fields}".rstrip()
    return _cut(redact(line if trace is None else f"{line}\n{trace.rstrip()}"))


def _shown(value: object) -> str:
    text = str(value)
    return (
        repr(text)
        if not text or any(char.isspace() or not char.isprintable() for char in text)
        else text
    )


def _cut(line: str) -> str:
    if len(line) <= LINE_CHARACTERS_MAX:
        return line
    half = LINE_CHARACTERS_MAX // 2
    return f"{line[:half]} … {line[-half:]}"
