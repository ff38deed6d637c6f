"""What an ingest request's headers and query say: run, project, how to treat refusals."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ingest.answers import Code, RequestRefused
from schema.ids import RunId

if TYPE_CHECKING:
    from aiohttp import web
    from multidict import CIMultiDictProxy

RUN_HEADER = "X-Run-Id"
PROJECT_HEADER = "X-Project-Name"
KEY_HEADER = "Idempotency-Key"
PROJECT_CHARACTERS_MAX = 255
KEY_CHARACTERS_MAX = 255
RUN_MAX = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Addressee:
    """Where a request's rows go, as the request says."""

    run_id: RunId
    project: str


def addressee(headers: CIMultiDictProxy[str]) -> Addressee:
    """The run and project of a request.

    Raises:
        RequestRefused: 400, a header is missing, given twice, or not what it must be.
    """
    return Addressee(_run_id(_one(headers, RUN_HEADER)), _project(_one(headers, PROJECT_HEADER)))


def authorization(headers: CIMultiDictProxy[str]) -> str | None:
    """The `Authorization` header, None where there is none.

    Raises:
        RequestRefused: 400, there are two: whoever stands before us may have looked at the other.
    """
    values = headers.getall("Authorization", ())
    return _one(headers, "Authorization") if values else None


def is_strict(request: web.Request) -> bool:
    """Whether any refusal makes the whole request a refusal: `?strict=1`.

    Raises:
        RequestRefused: 400, another value.
    """
    if not request.query_string:
        return False
    values = request.query.getall("strict", ["0"])
    if values not in (["0"], ["1"]):
        raise RequestRefused(Code.INVALID_INPUT, "the parameter strict must be 0 or 1, once")
    return values == ["1"]


def idempotency_key(headers: CIMultiDictProxy[str]) -> str | None:
    """The client's own name for the request, if it gave one.

    Raises:
        RequestRefused: 400, it is empty or too long, or there twice.
    """
    if KEY_HEADER not in headers:
        return None
    key = _one(headers, KEY_HEADER).strip()
    if not 0 < len(key) <= KEY_CHARACTERS_MAX or not _is_text(key):
        raise RequestRefused(
            Code.INVALID_HEADER_FORMAT,
            f"the header {KEY_HEADER} must be 1 to {KEY_CHARACTERS_MAX} characters of text",
        )
    return key


def _one(headers: CIMultiDictProxy[str], name: str) -> str:
    values = headers.getall(name, ())
    if not values:
        raise RequestRefused(Code.MISSING_REQUIRED_FIELD, f"the header {name} is missing")
    if len(values) > 1:
        raise RequestRefused(Code.INVALID_HEADER_FORMAT, f"the header {name} is there twice")
    return values[0].strip(" \t")


def _run_id(text: str) -> RunId:
    # Never run 0: the SDK sends the text None before a run is made, and nothing when it has none.
    if text.isascii() and text.isdecimal() and len(text) <= 20 and 0 < int(text) <= RUN_MAX:
        return RunId(int(text))
    raise RequestRefused(
        Code.INVALID_HEADER_FORMAT,
        f"the header {RUN_HEADER} must be a run's number, from 1 to {RUN_MAX}",
    )


def _project(text: str) -> str:
    if not text or text.isspace():
        raise RequestRefused(Code.MISSING_REQUIRED_FIELD, f"the header {PROJECT_HEADER} is empty")
    if len(text) > PROJECT_CHARACTERS_MAX:
        raise RequestRefused(
            Code.INVALID_HEADER_FORMAT,
            f"the header {PROJECT_HEADER} must have at most {PROJECT_CHARACTERS_MAX} characters, "
            f"not {len(text)}",
        )
    if not _is_text(text):
        raise RequestRefused(
            Code.INVALID_HEADER_FORMAT,
            f"the header {PROJECT_HEADER} must be UTF-8 text without control characters",
        )
    return text


def _is_text(value: str) -> bool:
    """Valid UTF-8 (aiohttp leaves surrogates where it was not), and no control characters."""
    return value.isprintable() or not any(
        unicodedata.category(char) in {"Cc", "Cs"} for char in value
    )
