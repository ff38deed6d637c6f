"""The one table from error to HTTP answer, and the shape of every answer that is not a success.

An error's body is `{"code": "SCREAMING_SNAKE", "message": "what was expected"}`, with `details`
where a list helps. A code has one status. What a client should do follows from the status alone:
4xx is the request's own fault and is not to be repeated, save 401, 408 and 429; 5xx may clear.
"""

from __future__ import annotations

import math
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from buffer.errors import BufferFailure, Closed, LogFull, OutcomeUnknown, Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ingest.refusals import LineError

JSON = "application/json"
REJECTED_HEADER = "X-Charon-Rejected"
SERVER = "charon"
"""The header `Server`: aiohttp's own names its version and Python's to anyone who asks."""


class Code(StrEnum):
    """The machine's word for what went wrong; part of the public contract."""

    MISSING_TOKEN = "MISSING_TOKEN"  # noqa: S105 - a code, not a token
    INVALID_BEARER_FORMAT = "INVALID_BEARER_FORMAT"
    INVALID_TOKEN_FORMAT = "INVALID_TOKEN_FORMAT"  # noqa: S105
    INVALID_TOKEN = "INVALID_TOKEN"  # noqa: S105
    TOKEN_EXPIRED = "TOKEN_EXPIRED"  # noqa: S105
    TOKEN_REVOKED = "TOKEN_REVOKED"  # noqa: S105
    INSUFFICIENT_PERMISSIONS = "INSUFFICIENT_PERMISSIONS"
    RATE_LIMIT_EXCEEDED = "RATE_LIMIT_EXCEEDED"
    MALFORMED_REQUEST = "MALFORMED_REQUEST"
    MISSING_REQUIRED_FIELD = "MISSING_REQUIRED_FIELD"
    INVALID_HEADER_FORMAT = "INVALID_HEADER_FORMAT"
    INVALID_INPUT = "INVALID_INPUT"
    NOT_FOUND = "NOT_FOUND"
    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED"
    REQUEST_TIMEOUT = "REQUEST_TIMEOUT"
    BODY_TOO_LARGE = "BODY_TOO_LARGE"
    UNSUPPORTED_ENCODING = "UNSUPPORTED_ENCODING"
    EXPECTATION_FAILED = "EXPECTATION_FAILED"
    PROCESSING_FAILED = "PROCESSING_FAILED"
    IDEMPOTENCY_KEY_REUSED = "IDEMPOTENCY_KEY_REUSED"
    INTERNAL_ERROR = "INTERNAL_ERROR"
    DATABASE_UNAVAILABLE = "DATABASE_UNAVAILABLE"
    QUERY_FAILED = "QUERY_FAILED"
    LOG_FULL = "LOG_FULL"
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
    SERVICE_UNAVAILABLE = "SERVICE_UNAVAILABLE"
    SERVICE_OVERLOADED = "SERVICE_OVERLOADED"


STATUS: Mapping[Code, int] = MappingProxyType(
    {
        Code.MISSING_TOKEN: 401,
        Code.INVALID_BEARER_FORMAT: 401,
        Code.INVALID_TOKEN_FORMAT: 401,
        Code.INVALID_TOKEN: 401,
        Code.TOKEN_EXPIRED: 401,
        Code.TOKEN_REVOKED: 401,
        Code.INSUFFICIENT_PERMISSIONS: 403,
        Code.RATE_LIMIT_EXCEEDED: 429,
        Code.MALFORMED_REQUEST: 400,
        Code.MISSING_REQUIRED_FIELD: 400,
        Code.INVALID_HEADER_FORMAT: 400,
        Code.INVALID_INPUT: 400,
        Code.NOT_FOUND: 404,
        Code.METHOD_NOT_ALLOWED: 405,
        Code.REQUEST_TIMEOUT: 408,
        Code.BODY_TOO_LARGE: 413,
        Code.UNSUPPORTED_ENCODING: 415,
        Code.EXPECTATION_FAILED: 417,
        Code.PROCESSING_FAILED: 422,
        Code.IDEMPOTENCY_KEY_REUSED: 422,
        Code.INTERNAL_ERROR: 500,
        Code.DATABASE_UNAVAILABLE: 503,
        Code.QUERY_FAILED: 503,
        Code.LOG_FULL: 503,
        Code.OUTCOME_UNKNOWN: 503,
        Code.SERVICE_UNAVAILABLE: 503,
        Code.SERVICE_OVERLOADED: 503,
    }
)
assert set(STATUS) == set(Code), "every code has a status"

_BY_STATUS: Mapping[int, Code] = MappingProxyType(
    {
        400: Code.MALFORMED_REQUEST,
        404: Code.NOT_FOUND,
        405: Code.METHOD_NOT_ALLOWED,
        408: Code.REQUEST_TIMEOUT,
        413: Code.BODY_TOO_LARGE,
        415: Code.UNSUPPORTED_ENCODING,
        417: Code.EXPECTATION_FAILED,
        503: Code.SERVICE_UNAVAILABLE,
    }
)


class RequestRefused(Exception):
    """A request as a whole is not served; carries its whole answer.

    Attributes:
        code: decides the status.
        message: for the client to read: what was expected. Holds nothing secret and nothing of our
            insides. details: JSON, or None. retry_after_seconds: sent as `Retry-After`, whole
            seconds, at least 1; None: not sent. is_last: the connection is closed after the answer,
            because what follows on it cannot be trusted.
    """

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        details: object = None,
        retry_after_seconds: float | None = None,
        is_last: bool = False,
    ) -> None:
        super().__init__(code.value)
        self.code = code
        self.message = message
        self.details = details
        self.retry_after_seconds = retry_after_seconds
        self.is_last = is_last

    @property
    def retry_after(self) -> str | None:
        """The header's text, where there is one."""
        seconds = self.retry_after_seconds
        return None if seconds is None else str(max(1, math.ceil(seconds)))

    def response(self) -> web.Response:
        """The answer on the wire."""
        response = error_response(self.code, self.message, self.details)
        if (after := self.retry_after) is not None:
            response.headers["Retry-After"] = after
        if self.is_last:
            response.force_close()
        return response


def error_body(
    code: Code, message: str, details: object = None, *, error: str | None = None
) -> bytes:
    """The JSON body of an error; `error` is what clients of the run API look at first."""
    body: dict[str, Any] = {"error": error} if error else {}
    body |= {"code": code.value, "message": message}
    if details is not None:
        body["details"] = details
    return orjson.dumps(body)


def error_response(
    code: Code, message: str, details: object = None, *, error: str | None = None
) -> web.Response:
    """An error's answer, with the status that belongs to its code."""
    body = error_body(code, message, details, error=error)
    return web.Response(status=STATUS[code], body=body, content_type=JSON)


def refusal_of(error: BufferFailure) -> RequestRefused | None:
    """What a failure of the buffer is to a client; None for one that is a defect of ours."""
    match error:
        case LogFull():
            code, message = (
                Code.LOG_FULL,
                "there is no room for more rows now; nothing was stored, try again later",
            )
        case OutcomeUnknown():
            code, message = (
                Code.OUTCOME_UNKNOWN,
                "the rows could not be confirmed as durable; repeat the same request",
            )
        case Closed():
            code, message = (
                Code.SERVICE_UNAVAILABLE,
                "this server is stopping; nothing was stored, repeat the request",
            )
        case Unavailable():
            code, message = Code.SERVICE_UNAVAILABLE, "not possible now; repeat the request later"
        case _:
            return None
    return RequestRefused(code, message, retry_after_seconds=error.retry_after_seconds)


def code_of_status(status: int) -> Code:
    """The code for a status that the HTTP layer chose."""
    known = _BY_STATUS.get(status)
    if known is not None:
        return known
    return Code.MALFORMED_REQUEST if status < 500 else Code.INTERNAL_ERROR


def stored_response(
    accepted: int,
    rejected: int,
    errors: Sequence[LineError] = (),
    *,
    hint: str | None = None,
    is_repeat: bool = False,
) -> web.Response:
    """The 200 of a request: what was accepted, and what was refused line by line."""
    body = stored_body(accepted, rejected, errors, hint=hint, is_repeat=is_repeat)
    response = web.Response(body=body, content_type=JSON)
    if rejected:
        response.headers[REJECTED_HEADER] = str(rejected)
    return response


def stored_body(
    accepted: int,
    rejected: int,
    errors: Sequence[LineError] = (),
    *,
    hint: str | None = None,
    is_repeat: bool = False,
) -> bytes:
    """The JSON body of a 200."""
    if not (errors or is_repeat or hint):
        return b'{"accepted":%d,"rejected":%d,"errors":[]}' % (accepted, rejected)
    body: dict[str, Any] = {
        "accepted": accepted,
        "rejected": rejected,
        "errors": error_list(errors),
    }
    if hint is not None:
        body["hint"] = hint
    if is_repeat:
        body["repeat"] = True
    return orjson.dumps(body)


def error_list(errors: Sequence[LineError]) -> list[dict[str, object]]:
    """Refusals of lines as JSON."""
    return [{"line": item.line, "field": item.field, "error": item.error} for item in errors]
