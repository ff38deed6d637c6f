"""One query to ClickHouse from the command line: plain, blocking, with errors made to be read.

The workers have a client of their own, in `buffer`; this one loads nothing but the standard
library, so that a command answers at once.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ANSWER_BYTES_MAX = 256 * 2**20
"""A larger answer is not for a terminal."""

READONLY = 164
"""ClickHouse's code for a change that a reader asked for."""

_CODE = re.compile(r"^Code: (\d+)\.")


class QueryFailed(Exception):
    """ClickHouse refused the query, or cannot be reached; says why and what to do.

    Attributes:
        code: ClickHouse's number of the error; None when it gave none.
    """

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query gave: columns and rows, or text where the query has a FORMAT of its own.

    Attributes:
        columns: name and ClickHouse type; empty for a statement without a result.
        rows: one value a column each.
    """

    columns: tuple[tuple[str, str], ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class ClickHouseClient:
    """Where the queries go."""

    url: str
    user: str
    password: str = field(repr=False)
    database: str | None = None
    ca: Path | None = None
    timeout_seconds: float = 60.0

    def query(self, statement: str, *, is_read_only: bool = False) -> Answer:
        """Run one statement.

        Args:
            statement: without a semicolon.
            is_read_only: have ClickHouse refuse whatever would change something.

        Raises:
            QueryFailed: it was refused, or the server cannot be reached.
        """
        settings = {
            "default_format": "JSONCompact",
            "output_format_json_quote_denormals": "1",  # NaN and infinities as text, not as null
            "output_format_json_quote_64bit_integers": "0",
        }
        if is_read_only:
            settings["readonly"] = "2"  # 1 would refuse the settings above, too
        if self.database is not None:
            settings["database"] = self.database
        status, content_type, body = self._post(urlencode(settings), statement.encode())
        if status != http.client.OK:
            raise _refusal(status, body, self.user)
        if not body:
            return Answer()
        if not content_type.startswith("application/json"):
            return Answer(text=body.decode(errors="replace"))
        return _table(body)

    async def run(self, statement: str) -> Sequence[Sequence[object]]:
        """The rows of one statement, in the form that `schema.migrations` takes.

        Raises:
            QueryFailed: as for `query`.
        """
        return (await asyncio.to_thread(self.query, statement)).rows

    def _trust(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=str(self.ca) if self.ca else None)
        except ssl.SSLError as error:
            raise QueryFailed(
                f"clickhouse_ca: {self.ca} holds no certificate in PEM form: name a CA bundle"
            ) from error

    def _post(self, settings: str, statement: bytes) -> tuple[int, str, bytes]:
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            trust = self._trust()
            connection = http.client.HTTPSConnection(
                host, parts.port or 8443, timeout=self.timeout_seconds, context=trust
            )
        else:
            connection = http.client.HTTPConnection(
                host, parts.port or 8123, timeout=self.timeout_seconds
            )
        headers = {
            "X-ClickHouse-User": self.user.encode(),  # bytes: any character may be in a password
            "X-ClickHouse-Key": self.password.encode(),
        }
        try:
            connection.request("POST", f"{parts.path or '/'}?{settings}", statement, headers)
            answer = connection.getresponse()
            body = answer.read(ANSWER_BYTES_MAX + 1)
        except (OSError, http.client.HTTPException) as error:
            raise QueryFailed(
                f"ClickHouse at {self.url} cannot be reached: {error or type(error).__name__}; "
                f"see that it runs and that the address is right"
            ) from error
        finally:
            connection.close()
        if len(body) > ANSWER_BYTES_MAX:
            raise QueryFailed(
                f"the answer is larger than {ANSWER_BYTES_MAX >> 20} MiB: add a LIMIT"
            )
        return answer.status, answer.headers.get("Content-Type", ""), body


def _table(body: bytes) -> Answer:
    try:
        answer = json.loads(body)
        columns = tuple((column["name"], column["type"]) for column in answer["meta"])
        return Answer(columns, tuple(map(tuple, answer["data"])))
    except (ValueError, KeyError, TypeError):
        return Answer(text=body.decode(errors="replace"))  # a JSON format of the query's own


def _refusal(status: int, body: bytes, user: str) -> QueryFailed:
    text = body[:4_000].decode(errors="replace").strip()
    match = _CODE.match(text)
    code = int(match[1]) if match else None
    first = re.sub(r"^Code: \d+\. DB::Exception: (DB::Exception: )?", "", text)
    first = re.sub(r"\s*\(version [^)]*\)+\s*$", "", first)
    # After a mistyped first word ClickHouse lists all that it knows: two screens of it.
    first = re.sub(r"\. Expected one of: .{200,}\. \((\w+)\)$", r" (\1)", first, flags=re.DOTALL)
    if code in {192, 193, 194, 516}:
        first = f"ClickHouse refuses user {user}: check clickhouse_user and clickhouse_password"
    return QueryFailed(first or f"ClickHouse answered {status}", code)
