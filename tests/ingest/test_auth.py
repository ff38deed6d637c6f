"""Keys: what is refused and how, what is remembered, what a lost catalogue changes."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

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


async def test_only_keys_in_use_are_refreshed(auth, keys, clock):
    await auth.authenticate(HEADER)
    clock.seconds += 1
    await auth.refresh()
    assert keys.calls == 2
    clock.seconds += 1
    await auth.refresh()
    await auth.refresh()
    assert keys.calls == 2


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
    for _ in range(5):
        clock.seconds += 600
        await auth.refresh()
        assert await auth.authenticate(HEADER) == TENANT
    refused = await refusal(auth, "Bearer mlps_other")
    assert (refused.code, STATUS[refused.code]) == (Code.DATABASE_UNAVAILABLE, 503)
    assert "db.internal" not in refused.message


async def test_a_catalogue_that_hangs_holds_a_known_idle_key_up_for_a_second_at_most(
    auth, keys, clock
):
    await auth.authenticate(HEADER)
    keys.gate = asyncio.Event()
    clock.seconds += 600
    async with asyncio.timeout(2):
        assert await auth.authenticate(HEADER) == TENANT
    calls = keys.calls
    assert await auth.authenticate(HEADER) == TENANT  # the outage is known now: no wait at all
    assert keys.calls == calls


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
