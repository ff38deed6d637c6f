"""Scopes, rotation, expiry and last use of keys, and word of their changes in Postgres."""

from __future__ import annotations

import asyncio

import pytest

from catalog.errors import Conflict, Invalid, NotFound
from catalog.scopes import ALL_SCOPES, SDK_SCOPES

HOUR_MS = 3_600_000


async def test_a_key_has_what_the_sdk_needs_unless_it_is_said_otherwise(tenant):
    keys = tenant.catalog.keys
    assert (await keys.create("sdk", tenant.id)).record.scopes == SDK_SCOPES
    new = await keys.create("ops", tenant.id, scopes=["admin"])
    assert new.record.scopes == ALL_SCOPES
    assert (await keys.get(new.record.id)).scopes == ALL_SCOPES
    for scopes, message in ((["write"], "no scope 'write'"), ([], "needs a scope")):
        with pytest.raises(Invalid, match=message):
            await keys.create("x", tenant.id, scopes=scopes)


async def test_many_keys_are_found_by_one_question(tenant):
    keys = tenant.catalog.keys
    made = [await keys.create(f"k{number}", tenant.id) for number in range(3)]
    found = await keys.find_many([new.record.lookup for new in made] + ["nothing"])
    assert found == {new.record.lookup: new.record for new in made}
    assert await keys.find_many([]) == {}


async def test_a_rotation_makes_a_successor_and_ends_the_old_key_after_the_overlap(tenant):
    keys, start_ms = tenant.catalog.keys, tenant.clock.now_ms
    old = await keys.create("ci", tenant.id, scopes=["ingest"])
    tenant.clock.now_ms += 1_000
    new, left = await keys.rotate("ci", overlap_ms=HOUR_MS)
    assert left.expires_at_ms == start_ms + 1_000 + HOUR_MS
    assert await keys.find(old.record.lookup) == left
    assert await keys.find(new.record.lookup) == new.record
    assert (new.record.name, new.record.scopes) == ("ci", frozenset({"ingest"}))
    assert (new.record.rotated_from, new.record.expires_at_ms) == (old.record.id, None)
    with pytest.raises(Conflict, match="name one by its id"):
        await keys.get("ci")  # both are valid
    tenant.clock.now_ms += HOUR_MS + 1
    assert (await keys.get("ci")).id == new.record.id
    with pytest.raises(Conflict, match="has expired: there is nothing to overlap"):
        await keys.rotate(old.record.id, overlap_ms=0)


async def test_a_rotation_prolongs_no_key_and_gives_as_long_a_life_as_before(tenant):
    keys, start_ms = tenant.catalog.keys, tenant.clock.now_ms
    old = await keys.create("ci", tenant.id, expires_at_ms=start_ms + 10 * HOUR_MS)
    tenant.clock.now_ms += 9 * HOUR_MS
    new, left = await keys.rotate(old.record.id, overlap_ms=24 * HOUR_MS)
    assert left.expires_at_ms == start_ms + 10 * HOUR_MS
    assert new.record.expires_at_ms == start_ms + 19 * HOUR_MS
    newer, _ = await keys.rotate(new.record.id, overlap_ms=0, expires_at_ms=2**40)
    assert newer.record.expires_at_ms == 2**40


async def test_a_revoked_key_is_neither_rotated_nor_prolonged(tenant):
    keys = tenant.catalog.keys
    new = await keys.create("ci", tenant.id)
    await keys.revoke(new.record.id)
    with pytest.raises(Conflict, match="is revoked"):
        await keys.rotate(new.record.id, overlap_ms=0)
    with pytest.raises(Conflict, match="is revoked"):
        await keys.expire(new.record.id, None)
    assert (await keys.find(new.record.lookup)).expires_at_ms is None


async def test_a_keys_end_can_be_set_and_taken_back(tenant):
    keys = tenant.catalog.keys
    new = await keys.create("ci", tenant.id)
    assert (await keys.expire("ci", 1_000)).expires_at_ms == 1_000
    assert (await keys.get(new.record.id)).is_expired(tenant.clock.now_ms)
    assert (await keys.expire("ci", None)).expires_at_ms is None
    assert await keys.get(new.record.id) == new.record
    with pytest.raises(NotFound):
        await keys.expire("ci", None, tenant.other)


async def test_the_latest_use_stays_whoever_tells_of_it_last(tenant):
    keys = tenant.catalog.keys
    a, b = [await keys.create(name, tenant.id) for name in "ab"]
    await keys.note_used({a.record.id: 5_000, b.record.id: 5_000, "gone": 1})
    await keys.note_used({a.record.id: 4_000, b.record.id: 6_000})
    await keys.note_used({})
    found = await keys.find_many([a.record.lookup, b.record.lookup])
    assert found[a.record.lookup].last_used_at_ms == 5_000
    assert found[b.record.lookup].last_used_at_ms == 6_000


async def test_the_keys_used_or_made_last_are_those_likely_to_be_used_next(tenant):
    keys = tenant.catalog.keys
    made = []
    for name in "abcd":
        tenant.clock.now_ms += 1
        made.append((await keys.create(name, tenant.id)).record)
    await keys.note_used({made[0].id: tenant.clock.now_ms + 5})
    await keys.revoke("d")
    assert [record.name for record in await keys.recent(10)] == ["a", "c", "b"]
    assert [record.name for record in await keys.recent(2)] == ["a", "c"]


async def test_many_who_tell_of_the_same_keys_do_not_lock_each_other(tenant):
    keys = tenant.catalog.keys
    made = [(await keys.create(f"k{number}", tenant.id)).record.id for number in range(20)]
    tellers = [
        keys.note_used(dict.fromkeys(made[::step], at)) for at in range(5) for step in (1, -1)
    ]
    await asyncio.gather(*tellers)
    assert {record.last_used_at_ms for record in await keys.list()} == {4}


async def test_postgres_tells_of_every_change_but_that_of_a_last_use(postgres_url):
    from catalog import Catalog
    from catalog.keys_notices import listen

    catalog = await Catalog.open(postgres_url)
    await catalog.upgrade()
    owner = await catalog.organisations.create("Acme")
    new = await catalog.keys.create("ci", owner.id)
    heard = asyncio.Queue()
    listening = asyncio.create_task(listen(postgres_url, lambda: heard.put_nowait(1)))
    async with asyncio.timeout(10):
        await heard.get()  # for what came before
        await catalog.keys.note_used({new.record.id: 1})
        await catalog.keys.expire("ci", 2**42)
        await heard.get()
        await catalog.keys.revoke("ci")
        await heard.get()
    assert heard.empty()
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    await catalog.close()


async def test_a_listener_whose_server_is_not_there_says_so_as_an_os_error():
    from catalog.keys_notices import listen
    from tests.postgres import free_port

    with pytest.raises(OSError, match="Connect call failed"):
        await listen(f"postgresql://x@127.0.0.1:{free_port()}/x", lambda: None)


async def test_it_can_be_tried_whether_changes_are_heard(postgres_server, postgres_url):
    from catalog.keys_notices import is_heard

    assert await is_heard(postgres_url, postgres_url)
    # Another database's notices are not: so it is with what a pooler keeps to itself.
    assert not await is_heard(postgres_server.url, postgres_url, seconds_max=0.2)
