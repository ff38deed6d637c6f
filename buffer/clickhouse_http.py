"""aiochclient's HTTP client, made by us: it keeps what an error said, and bounds every wait.

aiochclient's own client keeps only an error's text, follows redirects and waits without end. This
one keeps status, ``X-ClickHouse-Exception-Code`` and text, and tells an attempt that never reached
the server from one that may have.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import aiohttp
from aiochclient import ChClientError
from aiochclient.http_clients.abc import HttpClientABC

from schema.handing import HEADER, REFUSED_STATUS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

CONNECT_SECONDS_MAX = 10.0
SENDING_FACTOR = 5
"""Of the wait for an answer: what sending and answer may take together."""

ERROR_BYTES_MAX = 64 * 2**10
"""Of an error's text; ClickHouse repeats whole queries in some."""
ANSWER_BYTES_MAX = 16 * 2**20
"""Of a select's answer; ours are a few lines."""

_CODE = re.compile(r"^\s*Code: (\d+)\.")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where ClickHouse is, and who we are there. Its repr shows no secret."""

    url: str
    """``http`` or ``https``, host, port, path; user and password in it are taken out when made."""
    database: str
    user: str = "default"
    password: str = field(default="", repr=False)
    ca_file: Path | None = None
    """A CA bundle for https; None: the system's."""
    timeout_seconds: float = 60.0
    """For an answer, from the last byte sent or received."""
    is_embedded: bool = False
    """It is the engine that this server's supervisor runs: large blocks are handed over as
    memory."""

    def __post_init__(self) -> None:
        """Move a user and password out of the address, so that no message can repeat them.

        Raises:
            ValueError: the address is no http or https one. The message does not repeat it.
        """
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(
                "the ClickHouse address must read http://host:port or https://host:port"
            )
        if parts.username is not None:
            object.__setattr__(self, "user", parts.username)
            object.__setattr__(self, "password", parts.password or "")
        netloc = parts.netloc.rpartition("@")[2]
        object.__setattr__(
            self, "url", urlunsplit((parts.scheme, netloc, parts.path or "/", "", ""))
        )

    def ssl(self) -> ssl.SSLContext | bool:
        """How certificates are checked; True is aiohttp's default check."""
        if self.ca_file is None:
            return True
        return ssl.create_default_context(cafile=str(self.ca_file))


class ClickHouseFailure(ChClientError):  # type: ignore[misc]  # aiochclient has no types
    """The server answered with an error, or with something that is no answer of ClickHouse.

    Attributes:
        status: HTTP status.
        code: exception code, from the header or else the text; None without one.
        text: what the server said, bounded.
    """

    def __init__(self, status: int, code: int | None, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        self.text = text


class TransportFailure(ChClientError):  # type: ignore[misc]
    """No answer was read.

    Attributes:
        is_sent: bytes of the request may have reached the server.
        is_trust: the certificate was refused; somebody has to mend that.
        is_late: the request went out, and nothing came back in time.
    """

    def __init__(
        self, text: str, *, is_sent: bool, is_trust: bool = False, is_late: bool = False
    ) -> None:
        super().__init__(text)
        self.is_sent = is_sent
        self.is_trust = is_trust
        self.is_late = is_late


class BoundedHttpClient(HttpClientABC):  # type: ignore[misc]  # aiochclient has no types
    """One aiohttp session with deadlines and no redirects; errors are the two classes above."""

    def __init__(self, endpoint: Endpoint, *, trust: ssl.SSLContext | bool) -> None:
        self._session = aiohttp.ClientSession(
            # A connection for each request. One that is used again may have been closed by the
            # server or by something between, and an insert on it is then of unknown outcome, as
            # is each of its tries where connections never serve twice. A few a second are cheap.
            connector=aiohttp.TCPConnector(ssl=trust, limit=16, force_close=True),
            auto_decompress=True,
            trust_env=False,
        )
        self._seconds = endpoint.timeout_seconds
        self.patience = 1.0
        """Times the configured wait; grown by whoever meets a server that needs longer."""

    async def get(self, url: str, params: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        """GET, the answer thrown away."""
        await self._ask("GET", url, params, headers, None)

    async def post_return_lines(
        self,
        url: str,
        params: Mapping[str, Any],
        headers: Mapping[str, str],
        data: Any,  # noqa: ANN401
    ) -> AsyncIterator[bytes]:
        """POST, the answer line by line, each with its line feed."""
        answer = await self._ask("POST", url, params, headers, data)
        if not answer.endswith(b"\n"):  # names and types come even where no row does
            raise ClickHouseFailure(200, _code_of(answer.decode(errors="replace")), "a torn answer")
        for line in answer.splitlines(keepends=True):
            yield line

    async def post_no_return(
        self,
        url: str,
        params: Mapping[str, Any],
        headers: Mapping[str, str],
        data: Any,  # noqa: ANN401
    ) -> None:
        """POST whose answer must be an empty 200: a body is an exception after the headers."""
        answer = await self._ask("POST", url, params, headers, data)
        if answer.strip():
            text = answer[:ERROR_BYTES_MAX].decode(errors="replace")
            raise ClickHouseFailure(200, _code_of(text), text)

    async def close(self) -> None:
        """Closes the session and its connections."""
        await self._session.close()

    async def _ask(
        self,
        method: str,
        url: str,
        params: Mapping[str, Any],
        headers: Mapping[str, str],
        data: Any,  # noqa: ANN401
    ) -> bytes:
        try:
            async with self._session.request(
                method,
                url,
                params=params,
                headers=headers,
                data=data,
                allow_redirects=False,
                timeout=self._timeout(),
            ) as response:
                limit = ANSWER_BYTES_MAX if response.status == 200 else ERROR_BYTES_MAX
                body = await _read_up_to(response, limit)
                header = response.headers.get("X-ClickHouse-Exception-Code", "")
                if response.status == 200 and not header:
                    if HEADER in headers and HEADER not in response.headers:
                        # An engine of a former release, which runs until the server is started
                        # again, passes the header over and has inserted the empty body.
                        raise ClickHouseFailure(REFUSED_STATUS, None, "handed data was passed over")
                    return body
                text = body.decode(errors="replace")
                code = int(header) if header.isdecimal() else _code_of(text)
                raise ClickHouseFailure(response.status, code, text or f"HTTP {response.status}")
        except aiohttp.ClientConnectorCertificateError as error:
            raise TransportFailure(_text_of(error), is_sent=False, is_trust=True) from None
        except aiohttp.ClientSSLError as error:
            raise TransportFailure(_text_of(error), is_sent=False, is_trust=True) from None
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise TransportFailure(_text_of(error), is_sent=False) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            is_late = isinstance(error, TimeoutError)
            raise TransportFailure(_text_of(error), is_sent=True, is_late=is_late) from None

    def _timeout(self) -> aiohttp.ClientTimeout:
        wait = self._seconds * self.patience
        return aiohttp.ClientTimeout(
            # A large block over a slow line is no error while bytes flow, but aiohttp begins to
            # count an answer's wait only when all is sent: a server that reads nothing ends here.
            total=wait * SENDING_FACTOR,
            sock_connect=min(CONNECT_SECONDS_MAX, self._seconds),
            sock_read=wait,
        )


async def _read_up_to(response: aiohttp.ClientResponse, limit: int) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > limit:
            response.close()
            break
    return bytes(body[:limit])


def _text_of(error: BaseException) -> str:
    """One line without the address's query; ``from None`` above keeps the request out of traces."""
    if isinstance(error, aiohttp.ClientConnectorError):
        reason = error.os_error.strerror or error.os_error
        return f"cannot connect to {error.host}:{error.port}: {reason}"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _code_of(text: str) -> int | None:
    found = _CODE.search(text)
    return int(found.group(1)) if found else None
