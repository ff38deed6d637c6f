"""Answers of the run API. Two dialects, because clients of two services meet here.

=========  =========================================  ==============================================
           api (`/api/runs/create` and its kin)       py (`/api/runs/trigger`, `/api/runs/alert`)
=========  =========================================  ==============================================
refused    ``{"error": text}``                        ``{"detail": text}``
key        401 ``{"error": "Unauthorized",            401 ``{"detail": text}``
           "message": text}``
body       400 ``{"success": false, "error":          422 ``{"detail": [{loc, msg, type}]}``
           {"issues": […], "name": "ZodError"}}``
=========  =========================================  ==============================================

Where a client can go by a machine's word, `code` stands beside it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import orjson
from aiohttp import web

from catalog.errors import (
    CatalogFailure,
    Conflict,
    NotFound,
    Refused,
    TooLarge,
    TooLong,
    Unavailable,
)
from ingest.answers import JSON, STATUS, Code

if TYPE_CHECKING:
    from pydantic import ValidationError

    from ingest.answers import RequestRefused

ISSUES_MAX = 20
"""Of a body's mistakes, as many are told."""

# What the reference says of a key that it does not take; the rest of the codes have our own words.
_KEY_MESSAGES = {
    Code.INVALID_BEARER_FORMAT: "Invalid API key",
    Code.INVALID_TOKEN_FORMAT: "Invalid API key",
    Code.INVALID_TOKEN: "Key not found",
}

_ISSUE_CODES = {
    "missing": "invalid_type",
    "enum": "invalid_enum_value",
    "too_long": "too_big",
    "less_than_equal": "too_big",
    "string_too_short": "too_small",
    "greater_than_equal": "too_small",
}


_STATUS_OF_REFUSAL: dict[type, int] = {
    NotFound: 404,
    Conflict: 409,
    TooLarge: 413,
    TooLong: 422,
    Refused: 400,
}


class Dialect(Protocol):
    """How one of the two services words its errors."""

    def key_refused(self, refusal: RequestRefused) -> web.Response:
        """A 401."""

    def body_refused(self, error: ValidationError) -> web.Response:
        """JSON, but not what the route takes."""

    def refused(self, status: int, message: str, code: str | None = None) -> web.Response:
        """All else."""


class ApiDialect:
    """The api service's words."""

    def key_refused(self, refusal: RequestRefused) -> web.Response:
        """The SDK shows `message`, since `error` is a status phrase."""
        body = {"error": "Unauthorized", "code": refusal.code.value}
        if refusal.code is not Code.MISSING_TOKEN:
            body["message"] = _KEY_MESSAGES.get(refusal.code, refusal.message)
        return json_response(body, status=401)

    def body_refused(self, error: ValidationError) -> web.Response:
        """In the form of zod, the reference's validator; `message` is for people."""
        found = error.errors(include_url=False, include_context=False, include_input=False)[
            :ISSUES_MAX
        ]
        issues = [
            {
                "code": _ISSUE_CODES.get(issue["type"], "invalid_type"),
                "path": list(issue["loc"]),
                "message": issue["msg"],
            }
            for issue in found
        ]
        body = {
            "success": False,
            "error": {"issues": issues, "name": "ZodError"},
            "message": "; ".join(_sentence(issue["loc"], issue["msg"]) for issue in found[:5]),
        }
        return json_response(body, status=400)

    def refused(self, status: int, message: str, code: str | None = None) -> web.Response:
        """`error` is the text itself, which the SDK shows."""
        return json_response({"error": message} | ({"code": code} if code else {}), status=status)


class PyDialect:
    """The py service's words."""

    def key_refused(self, refusal: RequestRefused) -> web.Response:
        """One text for an unknown key, as the reference has; expired and revoked ones are told."""
        message = refusal.message
        if refusal.code is Code.INVALID_TOKEN:
            message = "Invalid or expired API key for this run"
        return json_response({"detail": message, "code": refusal.code.value}, status=401)

    def body_refused(self, error: ValidationError) -> web.Response:
        """In the form of FastAPI."""
        found = error.errors(include_url=False, include_context=False, include_input=False)[
            :ISSUES_MAX
        ]
        detail = [
            {"loc": ["body", *issue["loc"]], "msg": issue["msg"], "type": issue["type"]}
            for issue in found
        ]
        return json_response({"detail": detail}, status=422)

    def refused(self, status: int, message: str, code: str | None = None) -> web.Response:
        """`detail` is the text itself."""
        return json_response({"detail": message} | ({"code": code} if code else {}), status=status)


API: Dialect = ApiDialect()
PY: Dialect = PyDialect()


def refusal_response(dialect: Dialect, refusal: RequestRefused) -> web.Response:
    """A request that is not served as a whole: its key, its size, its time, no room."""
    status = STATUS[refusal.code]
    if status == 401:
        response = dialect.key_refused(refusal)
    else:
        response = dialect.refused(status, refusal.message, refusal.code.value)
    if refusal.retry_after_seconds is not None:
        response.headers["Retry-After"] = str(max(1, math.ceil(refusal.retry_after_seconds)))
    if refusal.is_last:
        response.force_close()
    return response


def failure_response(dialect: Dialect, failure: CatalogFailure) -> web.Response | None:
    """What a failure of the catalogue is to a client; None for one that is a defect of ours."""
    if isinstance(failure, Unavailable):
        response = dialect.refused(503, str(failure), Code.DATABASE_UNAVAILABLE)
        response.headers["Retry-After"] = "1"
        return response
    if isinstance(failure, Refused):
        kinds = (kind for kind in type(failure).__mro__ if kind in _STATUS_OF_REFUSAL)
        return dialect.refused(_STATUS_OF_REFUSAL[next(kinds)], str(failure))
    return None


def json_response(body: dict[str, Any], *, status: int = 200) -> web.Response:
    """JSON with a status. A success is exactly 200: the SDK repeats after a 204."""
    return web.Response(status=status, body=orjson.dumps(body), content_type=JSON)


def _sentence(path: tuple[int | str, ...], message: str) -> str:
    field = ".".join(str(part) for part in path)
    return f"{field}: {message}" if field else message
