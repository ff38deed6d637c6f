"""From an `Authorization` header to a key's record: a cache of known keys before the catalogue.

A known key costs a look into a dict. The records of keys in use are looked up again in the
background, all by one query, every second and whenever the catalogue says that one has changed; so
a revocation takes effect within two seconds everywhere, and a lost database changes nothing for
keys in use, for as long as is allowed. Expiry is compared with the clock at every request. An
unknown key is never remembered: it is asked for each time, so that a new one takes effect at once,
by a bounded number of look-ups, each with a bounded wait, and only so often from one address.

No key is in any log line, metric label, exception or repr of this module.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from typing import TYPE_CHECKING

import structlog

from catalog.scopes import INGEST
from ingest.answers import Code, RequestRefused
from ingest.auth_addresses import ClientAddresses
from ingest.auth_cache import KeyCache, Known
from ingest.auth_failures import FailureLimit
from ingest.auth_tokens import NoKey, lookup_in
from ingest.request_headers import authorization
from schema.ids import TenantId

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from buffer.metrics import Metrics
    from catalog.key_records import KeyRecord, KeyStore

LOOKUPS_MAX = 8
"""Look-ups at once, of a pool of connections that others use too."""
LOOKUPS_WAITING_MAX = 256
"""Requests with unknown keys that may wait for a look-up; a flood of them is refused at once."""
LOOKUP_SECONDS_MAX = 1.0
REFRESH_SECONDS = 1.0
REFRESH_KEYS_MAX = 1_000
"""Keys of one query."""
IN_USE_SECONDS = 60.0
"""A key that was used within this time is looked up again in each round."""
STALE_INTERVALS = 2.0
"""A record older than this many intervals, and a look-up, is checked before it is used again: its
key was idle. A store that has become silent is noticed before that, by the round, so that no
request waits for it."""
AWAY_SECONDS = 5.0
"""For this long after a failed look-up, known keys are not held up by another try."""
OUTAGE_SECONDS = 900.0
FAILURES_PER_MINUTE = 60
LAST_USED_SECONDS = 60.0
WARM_KEYS_MAX = 5_000
"""Read at the start, by one query of about 50 ms."""

log = structlog.get_logger()


class AuthError(RequestRefused):
    """The request has no key, or one that is not valid or may not do this; the code tells which."""


class Authenticator:
    """Says whose request it is. `run` must be a task for as long as it is used.

    Args:
        keys: asked for keys that are not cached, and again for cached ones.
        metrics: counts refusals by reason.
        refresh_seconds: how often the records of keys in use are looked up again.
        outage_seconds: for this long without an answer of the store a known key is taken still.
        failures_per_minute: attempts with keys that are none, from one address.
        addresses: tells where a request comes from.
        now_ms: wall clock in ms, for expiry.
        monotonic: seconds, for ages.
    """

    def __init__(
        self,
        keys: KeyStore,
        metrics: Metrics,
        *,
        refresh_seconds: float = REFRESH_SECONDS,
        outage_seconds: float = OUTAGE_SECONDS,
        failures_per_minute: int = FAILURES_PER_MINUTE,
        addresses: ClientAddresses | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keys = keys
        self._metrics = metrics
        self._refresh_seconds = refresh_seconds
        self._stale_seconds = refresh_seconds * STALE_INTERVALS + LOOKUP_SECONDS_MAX
        self._outage_seconds = outage_seconds
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._addresses = addresses or ClientAddresses()
        self._failures = FailureLimit(failures_per_minute, monotonic=monotonic)
        self._cache = KeyCache()
        self._slots = asyncio.Semaphore(LOOKUPS_MAX)
        self._known_slots = asyncio.Semaphore(
            LOOKUPS_MAX
        )  # a flood of others holds nobody known up
        self._waiting = 0
        self._failed_at = float("-inf")
        self._is_failing = False
        self._changed = asyncio.Event()
        self._last_used_at = monotonic()

    @property
    def is_catalogue_away(self) -> bool:
        """Whether a look-up failed a short while ago, and none has succeeded since."""
        return self._monotonic() - self._failed_at < AWAY_SECONDS

    def known(self, header: str, scope: str = INGEST) -> KeyRecord | None:
        """The record of a key that is cached, without waiting for anything; about 1 us.

        Args:
            header: the value of `Authorization`, without spaces around it.
            scope: what is to be done with it.

        Returns: None where the store has to be asked, or the header refused: call `identify`.

        Raises:
            AuthError: 401, the cached key has expired or is revoked; 403, it lacks the scope.
        """
        known = self._cache.by_header.get(header)
        if known is None:
            return None
        now = self._monotonic()
        if now - known.checked_at > self._stale_seconds and not self._may_outlive(known, now):
            return None
        known.used_at = now
        return self._allowed(known.record, scope)

    def valid(self, header: str, scope: str = INGEST) -> KeyRecord | None:
        """As `known`, but None for a key that is refused too.

        That is not counted: whoever asks so lets another answer, and that one asks again.
        """
        known = self._cache.by_header.get(header)
        if known is None or self._refusal(known.record, scope) is not None:
            return None
        return self.known(header, scope)

    async def of(self, request: web.Request, scope: str | None = INGEST) -> KeyRecord:
        """The record of a request's key; None as the scope: any valid key will do.

        Raises:
            AuthError: see `identify`.
            RequestRefused: see there; or 400, the header is there twice.
        """
        header = authorization(request.headers)
        if header is not None:
            record = self.known(header, scope or "")
            if record is not None:
                return record
        peer = request.transport.get_extra_info("peername") if request.transport else None
        address = self._addresses.of(
            peer[0] if isinstance(peer, tuple) else "",
            request.headers.getall("X-Forwarded-For", ()),
        )
        return await self.identify(header, scope, address=address)

    async def authenticate(self, header: str | None) -> TenantId:
        """The tenant of a key that may ingest; refuses like `identify`."""
        return TenantId((await self.identify(header)).tenant)

    async def identify(
        self, header: str | None, scope: str | None = INGEST, *, address: str = ""
    ) -> KeyRecord:
        """The record of the key in an `Authorization` header's value.

        Args:
            header: its value; None where there is none.
            scope: what is to be done with it; None: nothing that needs one.
            address: where it came from; failures are counted by it.

        Raises:
            AuthError: 401; the code tells missing, malformed, unknown, expired and revoked apart.
                403: it lacks the scope. 429: too many attempts from that address have failed.
            RequestRefused: 503, it cannot be looked up now: a key that is not cached, or one that
                was last seen valid too long ago.
        """
        try:
            lookup = lookup_in(header)
        except NoKey as none:
            raise self._refused(none.reason, none.code, none.message) from None
        known = self._cache.get(lookup)
        if known is None:
            self._see_failures(lookup, address)
            known = await self._look_up(lookup, address)
        else:
            known.used_at = self._monotonic()
            if known.used_at - known.checked_at > self._stale_seconds:
                known = await self._check_again(lookup, known)
        known.used_at = self._monotonic()
        assert header is not None
        self._cache.link(header, known)
        return self._allowed(known.record, scope or "")

    def changed(self) -> None:
        """A key has changed, or may have: look those in use up again at once."""
        self._changed.set()

    async def run(self) -> None:
        """Refresh what is in use, and write when it was used, until cancelled.

        Cancellation: at any point; the cache stays usable.
        """
        is_warm = False
        while True:
            is_warm = is_warm or await self.warm()
            try:
                async with asyncio.timeout(self._refresh_seconds):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            await self.refresh()
            if self._monotonic() - self._last_used_at > LAST_USED_SECONDS:
                await self.write_last_used()

    async def warm(self) -> bool:
        """Whether the keys that are likely to be used next are cached now.

        So a worker that has just started knows them, like one that has served them: they work from
        an address that has tried too many wrong ones, and in an outage that begins now.
        """
        asked_at = self._monotonic()
        try:
            async with asyncio.timeout(LOOKUP_SECONDS_MAX * 5):
                records = await self._keys.recent(WARM_KEYS_MAX)
        except Exception as error:  # noqa: BLE001 - see _look_up; the next round tries again
            self._note_failure(type(error).__name__)
            return False
        for record in records:
            if self._cache.get(record.lookup) is None:
                # Never used here yet: the first to go, and not looked up in each round.
                self._cache.add(record.lookup, record, asked_at).used_at = float("-inf")
        return True

    async def refresh(self) -> None:
        """Look up again, together, every record that was used lately."""
        now = self._monotonic()
        due = [known.lookup for known in self._cache.all() if now - known.used_at <= IN_USE_SECONDS]
        for start in range(0, len(due), REFRESH_KEYS_MAX):
            if not await self._refresh(due[start : start + REFRESH_KEYS_MAX]):
                return  # the catalogue is away: the next round tries again

    async def write_last_used(self) -> None:
        """Hand the store the times of last use since it was last told."""
        since, now, now_ms = self._last_used_at, self._monotonic(), self._now_ms()
        used = {
            known.record.id: now_ms - round((now - known.used_at) * 1_000)
            for known in self._cache.all()
            if known.used_at >= since
        }
        try:
            if used and not self.is_catalogue_away:
                async with asyncio.timeout(LOOKUP_SECONDS_MAX * 5):
                    await self._keys.note_used(used)
            self._last_used_at = now
        except Exception as error:  # noqa: BLE001 - whatever it is, the next round tries again
            log.warning("key_use_not_written", reason=type(error).__name__)

    def _may_outlive(self, known: Known, now: float) -> bool:
        """Whether the store is away, and the record not too old to be taken all the same."""
        return (
            now - self._failed_at < AWAY_SECONDS and now - known.checked_at <= self._outage_seconds
        )

    def _allowed(self, record: KeyRecord, scope: str) -> KeyRecord:
        refusal = self._refusal(record, scope)
        if refusal is not None:
            raise self._refused(*refusal)
        return record

    def _refusal(self, record: KeyRecord, scope: str) -> tuple[str, Code, str] | None:
        """Why the key may not do this: the counter's reason, the code and the words."""
        if record.expires_at_ms is not None and record.is_expired(self._now_ms()):
            return "expired", Code.TOKEN_EXPIRED, "API key has expired"
        if record.revoked_at_ms is not None:
            return "revoked", Code.TOKEN_REVOKED, "API key has been revoked"
        if scope and scope not in record.scopes:
            text = f"the API key lacks the scope {scope!r}, which this needs"
            return "scope", Code.INSUFFICIENT_PERMISSIONS, text
        return None

    async def _look_up(self, lookup: str, address: str) -> Known:
        """Ask for a key that is not cached."""
        if self._waiting >= LOOKUPS_WAITING_MAX:
            raise self._unchecked(Code.SERVICE_OVERLOADED)
        self._waiting += 1
        try:
            async with asyncio.timeout(LOOKUP_SECONDS_MAX), self._slots:
                known = self._cache.get(lookup)  # another request may have brought it meanwhile
                if known is not None:
                    return known
                asked_at = self._monotonic()
                record = await self._keys.find(lookup)
        except TimeoutError:
            self._note_failure("timeout")
            raise self._unchecked(Code.DATABASE_UNAVAILABLE) from None
        except Exception as error:  # noqa: BLE001 - whatever the store's driver raises, it is away
            self._note_failure(type(error).__name__)
            raise self._unchecked(Code.DATABASE_UNAVAILABLE) from None
        finally:
            self._waiting -= 1
        self._note_answer()
        # The store compares as its index does; this one takes as long whatever it is given.
        if record is None or not hmac.compare_digest(record.lookup.encode(), lookup.encode()):
            self._failures.count(address, lookup)
            raise self._invalid()
        return self._cache.add(lookup, record, asked_at)

    async def _check_again(self, lookup: str, known: Known) -> Known:
        """A cached key that was idle: its record is checked first, unless the catalogue is away."""
        if not self.is_catalogue_away:
            try:
                async with asyncio.timeout(LOOKUP_SECONDS_MAX), self._known_slots:
                    if self._monotonic() - known.checked_at > self._refresh_seconds:
                        await self._refresh([lookup])
            except TimeoutError:
                self._note_failure("timeout")
        if self._cache.get(lookup) is not known:
            raise self._invalid()
        if self._monotonic() - known.checked_at > self._outage_seconds:
            raise self._unchecked(Code.DATABASE_UNAVAILABLE)
        return known

    async def _refresh(self, lookups: list[str]) -> bool:
        """Whether the catalogue answered; a key that it no longer has is forgotten."""
        asked_at = self._monotonic()
        try:
            async with asyncio.timeout(LOOKUP_SECONDS_MAX):
                records = await self._keys.find_many(lookups)
        except Exception as error:  # noqa: BLE001 - see _look_up; known keys outlive an outage
            self._note_failure(type(error).__name__)
            return False
        self._note_answer()
        for lookup in lookups:
            self._cache.renew(lookup, records.get(lookup), asked_at)
        return True

    def _see_failures(self, lookup: str, address: str) -> None:
        """Raises AuthError: 429, the address has to wait."""
        seconds = self._failures.wait_seconds(address)
        if seconds > 0 and not self._failures.is_repeat(lookup):
            raise self._refused(
                "limited",
                Code.RATE_LIMIT_EXCEEDED,
                "too many keys that are not valid came from this address; wait",
                retry_after_seconds=seconds,
            )

    def _note_answer(self) -> None:
        if self._is_failing:
            log.info("key_lookup_back")
        self._is_failing = False
        self._failed_at = float("-inf")

    def _note_failure(self, reason: str) -> None:
        if not self._is_failing:
            log.warning("key_lookup_failed", reason=reason)
        self._is_failing = True
        self._failed_at = self._monotonic()
        self._metrics.count("key_lookup_failures")

    def _invalid(self) -> AuthError:
        return self._refused("invalid", Code.INVALID_TOKEN, "Invalid API key")

    def _refused(
        self, reason: str, code: Code, message: str, *, retry_after_seconds: float | None = None
    ) -> AuthError:
        self._metrics.count("auth_refused", reason=reason)
        return AuthError(code, message, retry_after_seconds=retry_after_seconds)

    def _unchecked(self, code: Code) -> RequestRefused:
        self._metrics.count("auth_unchecked")
        return RequestRefused(
            code, "the API key cannot be checked now; try again", retry_after_seconds=1
        )
