"""Keys: what is refused and how, what is remembered, what a lost catalogue changes."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from ingest.answers import STATUS, Code, RequestRefused
from ingest.auth import LOOKUPS_MAX, LOOKUPS_WAITING_MAX, Authenticator, AuthError
from ingest.metrics import WorkerMetrics
from tests.ingest.serving import KEY, TENANT, DictKeys, lookup

HEADER = f"Bearer {KEY}"


class Clock:
    def __init__(self) -> None:
        self.seconds = 1_000.0

    def ms(self) -> int:
        return int(self.seconds * 1_000)

    def now(self) -> float:
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def keys():
    store = DictKeys()
    store.add(KEY)
    return store


@pytest.fixture
def metrics():
    return WorkerMetrics()


@pytest.fixture
def auth(keys, metrics, clock):
    return Authenticator(keys, metrics, refresh_seconds=2.0, now_ms=clock.ms, monotonic=clock.now)


async def refusal(auth: Authenticator, header: str | None) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        await auth.authenticate(header)
    return caught.value


@pytest.mark.parametrize(
    ("header", "code", "reason"),
    [
        (None, Code.MISSING_TOKEN, "missing"),
        ("Bearer ", Code.MISSING_TOKEN, "missing"),
        ("", Code.INVALID_BEARER_FORMAT, "malformed"),
        (KEY, Code.INVALID_BEARER_FORMAT, "malformed"),
        (f"bearer {KEY}", Code.INVALID_BEARER_FORMAT, "malformed"),
        (f"Basic {KEY}", Code.INVALID_BEARER_FORMAT, "malformed"),
        (f"Bearer {KEY} {KEY}", Code.INVALID_TOKEN_FORMAT, "malformed"),
        ("Bearer clé", Code.INVALID_TOKEN_FORMAT, "malformed"),
        ("Bearer " + "a" * 513, Code.INVALID_TOKEN_FORMAT, "malformed"),
        ("Bearer mlps_unknown", Code.INVALID_TOKEN, "invalid"),
    ],
)
async def test_f35_each_reason_has_its_code_and_its_counter(auth, metrics, header, code, reason):
    refused = await refusal(auth, header)
    assert isinstance(refused, AuthError)
    assert (refused.code, STATUS[refused.code]) == (code, 401)
    assert metrics.counters["auth_refused", (("reason", reason),)] == 1


async def test_a_key_says_its_tenant(auth, keys):
    keys.add("mlpi_sixteencharacters", "org-2")
    assert await auth.authenticate(HEADER) == TENANT
    assert await auth.authenticate("Bearer mlpi_sixteencharacters") == "org-2"
    assert await auth.authenticate(f"Bearer  {KEY} ") == TENANT


async def test_a_known_key_is_not_looked_up_again(auth, keys):
    for _ in range(100):
        await auth.authenticate(HEADER)
    assert keys.calls == 1


async def test_expiry_is_seen_at_the_request_though_the_record_is_cached(auth, keys, clock):
    keys.add(KEY, expires_at_ms=clock.ms() + 500)
    await auth.authenticate(HEADER)
    clock.seconds += 0.6
    assert (await refusal(auth, HEADER)).code is Code.TOKEN_EXPIRED
    assert keys.calls == 1


async def test_a_revoked_key_is_refused_after_the_next_refresh(auth, keys, metrics, clock):
    await auth.authenticate(HEADER)
    keys.records[lookup(KEY)] = replace(keys.records[lookup(KEY)], revoked_at_ms=clock.ms())
    clock.seconds += 2
    await auth.refresh()
    assert (await refusal(auth, HEADER)).code is Code.TOKEN_REVOKED
    assert metrics.counters["auth_refused", (("reason", "revoked"),)] == 1


async def test_an_idle_keys_record_is_checked_before_it_is_used_again(auth, keys, clock):
    await auth.authenticate(HEADER)
    await auth.refresh()
    keys.records[lookup(KEY)] = replace(keys.records[lookup(KEY)], revoked_at_ms=clock.ms())
    clock.seconds += 3_600
    assert (await refusal(auth, HEADER)).code is Code.TOKEN_REVOKED


async def test_keys_used_within_a_minute_are_refreshed_together_by_one_query(auth, keys, clock):
    for number in range(5):
        keys.add(f"mlps_{number}")
        await auth.authenticate(f"Bearer mlps_{number}")
    assert keys.calls == 5
    clock.seconds += 1
    await auth.refresh()
    assert keys.calls == 6
    clock.seconds += 61
    await auth.refresh()
    assert keys.calls == 6


async def test_a_deleted_key_is_forgotten(auth, keys, clock):
    await auth.authenticate(HEADER)
    keys.records.clear()
    clock.seconds += 2
    await auth.refresh()
    assert (await refusal(auth, HEADER)).code is Code.INVALID_TOKEN


async def test_a_new_key_works_at_once_though_it_was_refused_a_moment_ago(auth, keys):
    assert (await refusal(auth, "Bearer mlps_new")).code is Code.INVALID_TOKEN
    keys.add("mlps_new")
    assert await auth.authenticate("Bearer mlps_new") == TENANT


async def test_known_keys_outlive_the_catalogue_and_unknown_ones_get_503(auth, keys, clock):
    await auth.authenticate(HEADER)
    keys.failure = OSError("no such host db.internal")
    for _ in range(89):
        clock.seconds += 10
        await auth.refresh()
        assert await auth.authenticate(HEADER) == TENANT
        assert auth.known(HEADER) is not None
    refused = await refusal(auth, "Bearer mlps_other")
    assert (refused.code, STATUS[refused.code]) == (Code.DATABASE_UNAVAILABLE, 503)
    assert "db.internal" not in refused.message


async def test_after_the_time_allowed_a_known_key_is_503_too_until_the_catalogue_is_back(
    auth, keys, clock
):
    await auth.authenticate(HEADER)
    keys.failure = OSError()
    clock.seconds += 901
    assert auth.known(HEADER) is None
    for _ in range(3):
        assert (await refusal(auth, HEADER)).code is Code.DATABASE_UNAVAILABLE
        await auth.refresh()
    keys.failure = None
    await auth.refresh()
    assert auth.known(HEADER).tenant == TENANT
    assert await auth.authenticate(HEADER) == TENANT


async def test_a_key_that_expires_in_an_outage_is_refused_as_expired(auth, keys, clock):
    keys.add(KEY, expires_at_ms=clock.ms() + 30_000)
    await auth.authenticate(HEADER)
    keys.failure = OSError()
    clock.seconds += 31
    await auth.refresh()
    with pytest.raises(AuthError) as caught:
        auth.known(HEADER)
    assert caught.value.code is Code.TOKEN_EXPIRED


async def test_a_record_read_before_a_revocation_does_not_undo_it(auth, keys, clock):
    """A slow look-up of the old record ends after a quick one of the new: the new one stands."""
    await auth.authenticate(HEADER)
    valid = keys.records[lookup(KEY)]
    clock.seconds += 1
    slow, keys.gate = asyncio.create_task(auth.refresh()), asyncio.Event()
    while not keys.under_way:
        await asyncio.sleep(0)
    gate, keys.gate = keys.gate, None
    clock.seconds += 0.5
    keys.records[lookup(KEY)] = replace(valid, revoked_at_ms=clock.ms())
    await auth.refresh()
    keys.records[lookup(KEY)] = valid
    gate.set()
    await slow
    assert (await refusal(auth, HEADER)).code is Code.TOKEN_REVOKED


async def test_a_known_key_is_told_without_waiting_and_a_change_of_it_at_once(auth, keys, clock):
    assert auth.known(HEADER) is None
    await auth.authenticate(HEADER)
    assert auth.known(HEADER).tenant == TENANT
    assert auth.known(f"Bearer  {KEY}") is None  # another spelling: once by the slow way
    running = asyncio.create_task(auth.run())
    await asyncio.sleep(0)
    keys.records[lookup(KEY)] = replace(keys.records[lookup(KEY)], revoked_at_ms=clock.ms())
    calls = keys.calls
    auth.changed()
    async with asyncio.timeout(1):
        while keys.calls == calls or keys.under_way:
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    with pytest.raises(AuthError) as caught:
        auth.known(HEADER)
    assert caught.value.code is Code.TOKEN_REVOKED
    running.cancel()


async def test_who_lets_another_answer_counts_no_refusal(auth, keys, metrics, clock):
    assert auth.valid(HEADER) is None
    await auth.authenticate(HEADER)
    assert auth.valid(HEADER).tenant == TENANT
    assert auth.valid(HEADER, "nothing that exists") is None
    keys.records[lookup(KEY)] = replace(keys.records[lookup(KEY)], revoked_at_ms=clock.ms())
    await auth.refresh()
    assert auth.valid(HEADER) is None
    assert not [name for name, _ in metrics.counters if name == "auth_refused"]


async def test_a_key_is_known_by_a_few_spellings_of_its_header_at_most(auth):
    for spaces in range(1, 20):
        await auth.authenticate("Bearer" + " " * spaces + KEY)
    assert sum(auth.known("Bearer" + " " * spaces + KEY) is not None for spaces in range(20)) == 3


@pytest.mark.parametrize(
    ("scopes", "wanted", "is_allowed"),
    [
        ({"ingest"}, "ingest", True),
        ({"ingest"}, "read", False),
        ({"read"}, "ingest", False),
        ({"read"}, None, True),
        ({"ingest", "read"}, "admin", False),
        ({"ingest", "read", "admin"}, "admin", True),
    ],
)
async def test_a_key_without_the_scope_is_403_and_the_scope_is_named(
    auth, keys, metrics, scopes, wanted, is_allowed
):
    keys.add(KEY, scopes=frozenset(scopes))
    for _ in range(2):
        if is_allowed:
            assert (await auth.identify(HEADER, wanted)).tenant == TENANT
            continue
        with pytest.raises(AuthError, match="INSUFFICIENT_PERMISSIONS") as caught:
            await auth.identify(HEADER, wanted)
        assert STATUS[caught.value.code] == 403
        assert wanted in caught.value.message
        with pytest.raises(AuthError):
            auth.known(HEADER, wanted)
    assert metrics.counters.get(("auth_refused", (("reason", "scope"),)), 0) == 4 * (not is_allowed)


async def test_an_address_that_fails_too_often_is_limited_and_known_keys_from_it_are_not(
    auth, keys, metrics, clock
):
    await auth.identify(HEADER, address="192.0.2.1")
    for number in range(60):
        with pytest.raises(AuthError, match="INVALID_TOKEN"):
            await auth.identify(f"Bearer mlps_{number}", address="192.0.2.1")
    calls = keys.calls
    with pytest.raises(AuthError, match="RATE_LIMIT_EXCEEDED") as caught:
        await auth.identify("Bearer mlps_more", address="192.0.2.1")
    assert STATUS[caught.value.code] == 429
    assert caught.value.response().headers["Retry-After"] == "1"
    assert keys.calls == calls  # nothing was looked up
    assert metrics.counters["auth_refused", (("reason", "limited"),)] == 1
    assert (await auth.identify(HEADER, address="192.0.2.1")).tenant == TENANT
    keys.add("mlps_more")
    assert (await auth.identify("Bearer mlps_more", address="192.0.2.2")).tenant == TENANT
    clock.seconds += 1.1
    keys.add("mlps_new")
    assert (await auth.identify("Bearer mlps_new", address="192.0.2.1")).tenant == TENANT


async def test_a_worker_that_has_just_started_knows_the_keys_of_a_limited_address(
    auth, keys, clock
):
    keys.failure = OSError()
    assert not await auth.warm()
    keys.failure = None
    assert await auth.warm()
    for number in range(61):
        with pytest.raises(AuthError):
            await auth.identify(f"Bearer mlps_{number}", address="192.0.2.1")
    calls = keys.calls
    assert (await auth.identify(HEADER, address="192.0.2.1")).tenant == TENANT
    assert keys.calls == calls
    keys.failure = OSError()
    clock.seconds += 60
    assert (await auth.identify(HEADER)).tenant == TENANT


async def test_a_key_read_at_the_start_is_checked_before_its_first_use(auth, keys, clock):
    await auth.warm()
    await auth.refresh()
    assert keys.calls == 0  # it is not in use
    keys.records[lookup(KEY)] = replace(keys.records[lookup(KEY)], revoked_at_ms=clock.ms())
    clock.seconds += 60
    assert (await refusal(auth, HEADER)).code is Code.TOKEN_REVOKED


async def test_what_is_no_guess_does_not_use_an_addresss_attempts_up(auth, keys, clock):
    """A cluster whose key has expired, or is mistyped, can go on with a new one at once."""
    keys.add(KEY, expires_at_ms=clock.ms() - 1)
    for _ in range(200):
        with pytest.raises(AuthError, match="TOKEN_EXPIRED"):
            await auth.identify(HEADER, address="192.0.2.1")
        with pytest.raises(AuthError, match="MISSING_TOKEN"):
            await auth.identify(None, address="192.0.2.1")
        with pytest.raises(AuthError, match="INVALID_TOKEN_FORMAT"):
            await auth.identify(f"Bearer {KEY}\u00e9", address="192.0.2.1")
        with pytest.raises(AuthError, match="INVALID_TOKEN"):
            await auth.identify("Bearer mlps_wrong", address="192.0.2.1")
    keys.add("mlps_new")
    assert (await auth.identify("Bearer mlps_new", address="192.0.2.1")).tenant == TENANT


async def test_the_last_use_of_each_key_is_written_together(auth, keys, clock):
    keys.add("mlps_second")
    await auth.authenticate(HEADER)
    await auth.authenticate("Bearer mlps_second")
    clock.seconds += 2
    auth.known(HEADER)
    first_ms = clock.ms()
    clock.seconds += 8
    await auth.write_last_used()
    assert keys.used == [{"id-0": first_ms, "id-1": first_ms - 2_000}]
    clock.seconds += 1
    await auth.authenticate("Bearer mlps_second")
    keys.failure = OSError()
    await auth.write_last_used()
    keys.failure = None
    clock.seconds += 10
    await auth.write_last_used()
    assert keys.used[1:] == [{"id-1": clock.ms() - 10_000}]


async def test_a_catalogue_that_hangs_holds_a_known_idle_key_up_for_a_second_at_most(
    auth, keys, clock
):
    await auth.authenticate(HEADER)
    keys.gate = asyncio.Event()
    clock.seconds += 600
    assert auth.known(HEADER) is None
    async with asyncio.timeout(2):
        assert await auth.authenticate(HEADER) == TENANT
    calls = keys.calls
    assert await auth.authenticate(HEADER) == TENANT  # the outage is known now: no wait at all
    assert keys.calls == calls


async def test_a_store_that_becomes_silent_holds_no_request_of_a_key_in_use_up(keys, metrics):
    """On the real clock: the round runs into its bound before any record counts as stale."""
    auth = Authenticator(keys, metrics, refresh_seconds=0.1)
    await auth.authenticate(HEADER)
    running = asyncio.create_task(auth.run())
    keys.gate = asyncio.Event()
    loop = asyncio.get_running_loop()
    end = loop.time() + 1.6
    while loop.time() < end:
        assert auth.known(HEADER) is not None
        await asyncio.sleep(0.01)
    assert auth.is_catalogue_away
    running.cancel()


async def test_f38_unknown_keys_wait_a_second_at_most_and_known_ones_not_at_all(auth, keys):
    await auth.authenticate(HEADER)
    keys.gate = asyncio.Event()
    flood = [
        asyncio.create_task(refusal(auth, f"Bearer mlps_{i}"))
        for i in range(LOOKUPS_WAITING_MAX + 10)
    ]
    await asyncio.sleep(0)
    assert await auth.authenticate(HEADER) == TENANT
    async with asyncio.timeout(3):
        codes = [(await one).code for one in flood]
    assert codes.count(Code.SERVICE_OVERLOADED) == 10
    assert codes.count(Code.DATABASE_UNAVAILABLE) == LOOKUPS_WAITING_MAX
    assert keys.under_way_max == LOOKUPS_MAX


async def test_a_thousand_requests_with_one_new_key_ask_for_it_a_few_times(auth, keys):
    assert set(await asyncio.gather(*(auth.authenticate(HEADER) for _ in range(200)))) == {TENANT}
    assert keys.calls <= LOOKUPS_MAX


async def test_f42_no_key_is_in_an_error_or_a_repr(auth):
    secret = "mlps_verysecretverysecretvery"
    for header in (f"Bearer {secret}", f"Bearer {secret}é", secret):
        refused = await refusal(auth, header)
        assert secret not in f"{refused!r} {refused} {refused.message} {refused.details}"
    assert secret not in repr(vars(auth))


async def test_an_outage_is_told_when_it_begins_and_when_it_ends_however_seldom_one_asks(
    auth, keys, clock
):
    with capture_logs() as lines:
        keys.failure = OSError()
        for _ in range(3):
            assert (await refusal(auth, HEADER)).code is Code.DATABASE_UNAVAILABLE
            clock.seconds += 60
        keys.failure = None
        await auth.authenticate(HEADER)
    assert [line["event"] for line in lines] == ["key_lookup_failed", "key_lookup_back"]
