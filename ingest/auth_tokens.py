"""The key in an `Authorization` header, and what it is stored under."""

from __future__ import annotations

import re

from catalog.key_records import lookup_of
from ingest.answers import Code

SCHEME = "Bearer "

_TOKEN = re.compile(r"[A-Za-z0-9._-]{1,512}")


class NoKey(Exception):
    """The header holds none. Nothing of what was sent is repeated.

    Attributes:
        reason: missing or malformed, for the counter.
    """

    def __init__(self, reason: str, code: Code, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.code = code
        self.message = message


def lookup_in(header: str | None) -> str:
    """What the key in a header's value is stored under.

    Raises:
        NoKey: there is none, or it is not of the form of one.
    """
    if header is None:
        raise NoKey(
            "missing",
            Code.MISSING_TOKEN,
            "the header Authorization is missing; expected: Authorization: Bearer <API key>",
        )
    if not header.startswith(SCHEME):
        raise NoKey(
            "malformed",
            Code.INVALID_BEARER_FORMAT,
            "the header Authorization must be: Bearer <API key>",
        )
    token = header[len(SCHEME) :].strip(" \t")
    if not token:
        raise NoKey("missing", Code.MISSING_TOKEN, "there is no API key after the word Bearer")
    if not _TOKEN.fullmatch(token):
        raise NoKey(
            "malformed",
            Code.INVALID_TOKEN_FORMAT,
            "an API key has only letters, digits, dot, underscore and hyphen",
        )
    return lookup_of(token)
