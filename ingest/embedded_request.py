"""What a request of ClickHouse's HTTP interface says: who, what, with which settings."""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ingest.embedded_connection import QUERY_ID_SETTING
from ingest.embedded_errors import refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_TRANSPORT: Final = frozenset(
    {
        *(
            "query",
            "query_id",
            "database",
            "default_format",
            "user",
            "password",
            "quota_key",
            "role",
        ),
        *("session_id", "session_timeout", "session_check", "close_session"),
        *("wait_end_of_query", "buffer_size", "compress", "decompress", "enable_http_compression"),
        *("send_progress_in_http_headers", "http_headers_progress_interval_ms"),
        *("http_zlib_compression_level", "http_write_exception_in_output_format"),
        *("client_protocol_version", "cancel_http_readonly_queries_on_client_close"),
        *("add_http_cors_header", "stacktrace", QUERY_ID_SETTING),
    }
)
"""Names in a URL that are no settings of the engine, or that this front acts on itself."""

QUERY_ID_CHARS_MAX: Final = 256
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request's wishes, body aside."""

    query: str
    query_id: str
    database: str | None
    """None: the session's, or the server's."""
    default_format: str
    settings: Mapping[str, str]
    params: Mapping[str, str]
    session_id: str | None
    session_seconds: float
    must_exist: bool
    is_get: bool
    """A GET changes nothing."""


def read_request(
    method: str, pairs: Iterable[tuple[str, str]], headers: Mapping[str, str]
) -> Asked:
    """Reads URL and headers.

    Raises:
        EngineError: a wish that is not offered (48), an unknown setting (115), a bad number (36).
    """
    values = dict(pairs)
    if values.get("compress", "0") not in ("0", "") or values.get("decompress", "0") not in (
        "0",
        "",
    ):
        raise refuse(
            48,
            "NOT_IMPLEMENTED",
            "compress=1 and decompress=1 (ClickHouse's own framing) are not offered here: use "
            "Content-Encoding gzip, deflate, zstd or lz4",
        )
    settings = {
        name: value
        for name, value in values.items()
        if name not in _TRANSPORT and not name.startswith("param_")
    }
    query_id = values.get("query_id") or headers.get("X-ClickHouse-Query-Id") or str(uuid.uuid4())
    output = values.get("default_format") or headers.get("X-ClickHouse-Format") or "TabSeparated"
    if not query_id.isprintable() or len(query_id) > QUERY_ID_CHARS_MAX:
        raise refuse(36, "BAD_ARGUMENTS", "query_id must be printable and at most 256 characters")
    if not _WORD.fullmatch(output):
        raise refuse(73, "UNKNOWN_FORMAT", f"Unknown format {output!r}")
    for name in settings:
        if not _WORD.fullmatch(name):
            raise refuse(115, "UNKNOWN_WORD", f"Unknown setting {name!r}")
    return Asked(
        query=values.get("query", ""),
        query_id=values.get("query_id")
        or headers.get("X-ClickHouse-Query-Id")
        or str(uuid.uuid4()),
        database=values.get("database") or headers.get("X-ClickHouse-Database"),
        default_format=output,
        settings=settings,
        params={
            name.removeprefix("param_"): value
            for name, value in values.items()
            if name.startswith("param_")
        },
        session_id=values.get("session_id") or None,
        session_seconds=_session_seconds(values.get("session_timeout", "60")),
        must_exist=values.get("session_check") == "1",
        is_get=method == "GET",
    )


class Door:
    """Knows the one user, and lets nobody else in."""

    def __init__(self, user: str, password: str) -> None:
        self._user = user.encode()
        self._password = password.encode()

    def check(self, headers: Mapping[str, str], query: Mapping[str, str]) -> None:
        """Compares in constant time, user and password alike.

        Raises:
            EngineError: 516, the same for every reason.
        """
        user, password = _credentials(headers, query)
        is_user = hmac.compare_digest(user.encode(errors="surrogateescape"), self._user)
        is_password = hmac.compare_digest(password.encode(errors="surrogateescape"), self._password)
        if not (is_user and is_password):
            raise refuse(
                516,
                "AUTHENTICATION_FAILED",
                "Authentication failed: password is incorrect, or there is no user with such name",
            )


def _credentials(headers: Mapping[str, str], query: Mapping[str, str]) -> tuple[str, str]:
    if "X-ClickHouse-User" in headers or "X-ClickHouse-Key" in headers:
        return headers.get("X-ClickHouse-User", "default"), headers.get("X-ClickHouse-Key", "")
    scheme, _, encoded = headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            user, _, password = (
                base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
            )
        except (binascii.Error, UnicodeDecodeError):
            return "", ""
        return user, password
    return query.get("user", "default"), query.get("password", "")


def _session_seconds(text: str) -> float:
    if not text.isdecimal() or not 0 < int(text) <= 3_600:
        raise refuse(
            36, "BAD_ARGUMENTS", f"session_timeout must be from 1 to 3600 seconds, not {text!r}"
        )
    return float(text)
