"""The fast lane's answers on the wire: the headers that aiohttp's have, in the same order."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from aiohttp.helpers import rfc822_formatted_time

from ingest.answers import JSON, REJECTED_HEADER, SERVER, STATUS, error_body, stored_body

if TYPE_CHECKING:
    from ingest.answers import RequestRefused
    from ingest.decode import Decoded

_REASONS = {status: HTTPStatus(status).phrase for status in (200, *STATUS.values())}
_STARTS = {
    status: f"HTTP/1.1 {status} {reason}\r\nContent-Type: {JSON}\r\n".encode()
    for status, reason in _REASONS.items()
}


class _Plain:
    """The answers of this second by their number of rows; they differ in nothing else."""

    def __init__(self) -> None:
        self.date = ""
        self.answers: dict[int, bytes] = {}


_plain = _Plain()


def stored_answer(decoded: Decoded, *, is_last: bool) -> bytes:
    """The 200 of a request whose rows are durable, or that had none."""
    is_plain = not (decoded.rejected or is_last or decoded.hint)
    if is_plain:
        if _plain.date is not (date := rfc822_formatted_time()):
            _plain.date = date
            _plain.answers.clear()
        known = _plain.answers.get(decoded.accepted)
        if known is not None:
            return known
    body = stored_body(decoded.accepted, decoded.rejected, decoded.errors, hint=decoded.hint)
    more = ""
    if decoded.rejected:
        more = f"{REJECTED_HEADER}: {decoded.rejected}\r\n"
    answer = _answer(200, body, more, is_last=is_last)
    if is_plain:
        _plain.answers[decoded.accepted] = answer
    return answer


def plain_answer(body: bytes, *, is_last: bool) -> bytes:
    """A 200 with JSON."""
    return _answer(200, body, "", is_last=is_last)


def refused_answer(refused: RequestRefused, *, is_last: bool) -> bytes:
    """The answer of a request that is not served."""
    body = error_body(refused.code, refused.message, refused.details)
    after = refused.retry_after
    more = "" if after is None else f"Retry-After: {after}\r\n"
    return _answer(STATUS[refused.code], body, more, is_last=is_last)


def _answer(status: int, body: bytes, more: str, *, is_last: bool) -> bytes:
    close = "Connection: close\r\n" if is_last else ""
    rest = (
        f"{more}Server: {SERVER}\r\nContent-Length: {len(body)}\r\n"
        f"Date: {rfc822_formatted_time()}\r\n{close}\r\n"
    )
    return _STARTS[status] + rest.encode() + body
