"""From an `Authorization` header to a tenant: a cache of known keys in front of the catalogue.

A known key costs one hash and one look into a dict. Its record is looked up again in the
background, so that a revocation takes effect within about two refresh intervals and a lost database
changes nothing for keys in use. Expiry is compared with the clock at every request. An unknown key
is never remembered: it is asked for each time, so that a new one takes effect at once, by a bounded
number of look-ups, each with a bounded wait.

No key is in any log line, metric label, exception or repr of this module.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import structlog

from ingest.answers import Code, RequestRefused
from schema.ids import TenantId

if TYPE_CHECKING:
    from collections.abc import Callable

    from buffer.metrics import Metrics
    from catalog.keys import KeyRecord

KEYS_MAX = 20_000
"""Cached records; about 600 B each. Past it the key that has not been seen for longest goes."""
LOOKUPS_MAX = 8
"""Look-ups at once, of a pool of connections that others use too."""
LOOKUPS_WAITING_MAX = 256
"""Requests with unknown keys that may wait for a look-up; a flood of them is refused at once."""
LOOKUP_SECONDS_MAX = 1.0
REFRESH_LOOKUPS_MAX = 1_000
"""Records refreshed in one round, oldest first."""
STALE_INTERVALS = 2.0
"""A record older than this many intervals (its key was idle) is checked before it is used again."""
OUTAGE_SECONDS = 5.0
"""For this long after a failed look-up, known keys are not held up by another try."""
LEGACY_PREFIX = "mlpi_"
"""Keys of this kind are stored in clear; all others as lower-case hex SHA-256."""

_TOKEN = re.compile(r"[A-Za-z0-9._-]{1,512}")

log = structlog.get_logger()


class AuthError(RequestRefused):
    """The request has no key, or one that is not valid; the code tells which."""


class KeyStore(Protocol):
    """Where keys are kept: the catalogue, or a test's dict."""

    async def find(self, lookup: str) -> KeyRecord | None:
        """The record of a key by its look-up value, revoked and expired ones included.

        Raises:
            Exception: of any kind, when the store cannot be asked now.
        """
        ...


@dataclass(slots=True)
class _Known:
    """A cached record; `checked_at` and `used_at` are monotonic seconds."""

    record: KeyRecord
    checked_at: float
    used_at: float


class Authenticator:
    """Says whose request it is. `run` must be a task for as long as it is used.

    Args:
        keys: asked for keys that are not cached, and again for cached ones.
        metrics: counts refusals by reason.
        refresh_seconds: age at which a record in use is looked up again.
        now_ms: wall clock in ms, for expiry.
        monotonic: seconds, for ages.
    """

    def __init__(
        self,
        keys: KeyStore,
        metrics: Metrics,
        *,
        refresh_seconds: float = 2.0,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keys = keys
        self._metrics = metrics
        self._refresh_seconds = refresh_seconds
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._slots = asyncio.Semaphore(LOOKUPS_MAX)
        self._known_slots = asyncio.Semaphore(
            LOOKUPS_MAX
        )  # a flood of others holds nobody known up
        self._waiting = 0
        self._failed_at = float("-inf")

    @property
    def is_catalogue_away(self) -> bool:
        """Whether a look-up failed a short while ago."""
        return self._monotonic() - self._failed_at < OUTAGE_SECONDS

    async def authenticate(self, header: str | None) -> TenantId:
        """The tenant of the key in an `Authorization` header's value.

        Raises:
            AuthError: 401; the code tells missing, malformed, unknown, expired and revoked apart.
            RequestRefused: 503, only for a key that is not cached: it could not be looked up now.
        """
        return TenantId((await self.identify(header)).tenant)

    async def identify(self, header: str | None) -> KeyRecord:
        """The whole record of the key in a header's value; refuses like `authenticate`."""
        lookup = self._lookup_value(header)
        known = self._known.get(lookup)
        now = self._monotonic()
        if known is None:
            record = await self._look_up(lookup)
        else:
            record = known.record
            known.used_at = now
            self._known.move_to_end(lookup)
            if now - known.checked_at > self._refresh_seconds * STALE_INTERVALS:
                record = await self._check_again(lookup, known)
        if record.is_expired(self._now_ms()):
            raise self._refused("expired", Code.TOKEN_EXPIRED, "API key has expired")
        if record.is_revoked:
            raise self._refused("revoked", Code.TOKEN_REVOKED, "API key has been revoked")
        return record

    async def run(self) -> None:
        """Refresh what is in use until cancelled.

        Cancellation: at any point; the cache stays usable.
        """
        while True:
            await asyncio.sleep(self._refresh_seconds)
            await self.refresh()

    async def refresh(self) -> None:
        """Look up again every record that was used since it was last looked up, oldest first."""
        due = [
            (known.checked_at, lookup)
            for lookup, known in self._known.items()
            if known.used_at >= known.checked_at
        ]
        due.sort()
        for _, lookup in due[:REFRESH_LOOKUPS_MAX]:
            known = self._known.get(lookup)
            if known is not None and not await self._refresh_one(lookup, known):
                return  # the catalogue is away: the next round tries again

    def _lookup_value(self, header: str | None) -> str:
        """Check the header's form. Raises AuthError without repeating what was sent."""
        if header is None:
            raise self._refused(
                "missing",
                Code.MISSING_TOKEN,
                "the header Authorization is missing; expected: Authorization: Bearer <API key>",
            )
        if not header.startswith("Bearer "):
            raise self._refused(
                "malformed",
                Code.INVALID_BEARER_FORMAT,
                "the header Authorization must be: Bearer <API key>",
            )
        token = header[7:].strip(" \t")
        if not token:
            raise self._refused(
                "missing", Code.MISSING_TOKEN, "there is no API key after the word Bearer"
            )
        if not _TOKEN.fullmatch(token):
            raise self._refused(
                "malformed",
                Code.INVALID_TOKEN_FORMAT,
                "an API key has only letters, digits, dot, underscore and hyphen",
            )
        if token.startswith(LEGACY_PREFIX):
            return token
        return hashlib.sha256(token.encode()).hexdigest()

    async def _look_up(self, lookup: str) -> KeyRecord:
        """Ask for a key that is not cached."""
        if self._waiting >= LOOKUPS_WAITING_MAX:
            raise self._unchecked(Code.SERVICE_OVERLOADED)
        self._waiting += 1
        try:
            async with asyncio.timeout(LOOKUP_SECONDS_MAX), self._slots:
                known = self._known.get(lookup)  # another request may have brought it meanwhile
                if known is not None:
                    return known.record
                record = await self._keys.find(lookup)
        except TimeoutError:
            self._note_failure("timeout")
            raise self._unchecked(Code.DATABASE_UNAVAILABLE) from None
        except Exception as error:  # noqa: BLE001 - whatever the store's driver raises, it is away
            self._note_failure(type(error).__name__)
            raise self._unchecked(Code.DATABASE_UNAVAILABLE) from None
        finally:
            self._waiting -= 1
        if record is None:
            raise self._refused("invalid", Code.INVALID_TOKEN, "Invalid API key")
        self._remember(lookup, record)
        return record

    async def _check_again(self, lookup: str, known: _Known) -> KeyRecord:
        """A cached key that was idle: its record is checked first, unless the catalogue is away."""
        if self.is_catalogue_away:
            return known.record
        try:
            async with asyncio.timeout(LOOKUP_SECONDS_MAX), self._known_slots:
                if self._monotonic() - known.checked_at > self._refresh_seconds:
                    await self._refresh_one(lookup, known)
        except TimeoutError:
            self._note_failure("timeout")
        if lookup not in self._known:
            raise self._refused("invalid", Code.INVALID_TOKEN, "Invalid API key")
        return known.record

    async def _refresh_one(self, lookup: str, known: _Known) -> bool:
        """Whether the catalogue answered; a key that it no longer has is forgotten."""
        try:
            async with asyncio.timeout(LOOKUP_SECONDS_MAX):
                record = await self._keys.find(lookup)
        except Exception as error:  # noqa: BLE001 - see _look_up; known keys outlive an outage
            self._note_failure(type(error).__name__)
            return False
        if record is None:
            self._known.pop(lookup, None)
        else:
            known.record = record
            known.checked_at = self._monotonic()
        return True

    def _remember(self, lookup: str, record: KeyRecord) -> None:
        now = self._monotonic()
        self._known[lookup] = _Known(record, checked_at=now, used_at=now)
        if len(self._known) > KEYS_MAX:
            self._known.popitem(last=False)

    def _note_failure(self, reason: str) -> None:
        if not self.is_catalogue_away:
            log.warning("key_lookup_failed", reason=reason)
        self._failed_at = self._monotonic()
        self._metrics.count("key_lookup_failures")

    def _refused(self, reason: str, code: Code, message: str) -> AuthError:
        self._metrics.count("auth_refused", reason=reason)
        return AuthError(code, message)

    def _unchecked(self, code: Code) -> RequestRefused:
        self._metrics.count("auth_unchecked")
        return RequestRefused(
            code, "the API key cannot be checked now; try again", retry_after_seconds=1
        )
