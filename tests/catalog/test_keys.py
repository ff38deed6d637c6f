from __future__ import annotations

import hashlib
import re

import pytest
from sqlalchemy import select

from catalog import lookup_of
from catalog.errors import Conflict, Invalid, NotFound, TooLong
from catalog.key_records import KeyRecord
from catalog.tables import api_keys


async def test_a_key_is_found_by_its_hash_and_stored_in_no_other_form(tenant):
    new = await tenant.catalog.keys.create("laptop", tenant.id)
    assert re.fullmatch(r"mlps_[A-Za-z0-9_-]{24}", new.secret)
    assert lookup_of(new.secret) == hashlib.sha256(new.secret.encode()).hexdigest()
    found = await tenant.catalog.keys.find(lookup_of(new.secret))
    assert found == new.record
    assert (found.tenant, found.name, found.prefix) == (tenant.id, "laptop", new.secret[:8])
    async with tenant.catalog.database.read() as connection:
        row = (await connection.execute(select(api_keys))).one()
    assert not any(new.secret in str(value) for value in row)
    assert new.secret not in repr(new)


async def test_an_unknown_key_is_none(tenant):
    assert await tenant.catalog.keys.find(lookup_of("mlps_unknown")) is None


async def test_a_legacy_key_is_looked_up_as_it_is():
    assert lookup_of("mlpi_0123456789abcdef") == "mlpi_0123456789abcdef"


async def test_revoking_is_soft_and_may_be_repeated(tenant):
    new = await tenant.catalog.keys.create("laptop", tenant.id)
    first = await tenant.catalog.keys.revoke(new.record.id)
    assert first.revoked_at_ms == tenant.clock.now_ms
    assert first.is_revoked
    tenant.clock.now_ms += 1_000
    assert await tenant.catalog.keys.revoke(new.record.id) == first
    assert await tenant.catalog.keys.find(lookup_of(new.secret)) == first
    assert await tenant.catalog.keys.list() == [first]


async def test_a_key_in_use_can_be_revoked_and_its_runs_keep_their_history(tenant, new_run):
    new = await tenant.catalog.keys.create("laptop", tenant.id)
    run = (await tenant.catalog.runs.create(tenant.id, new_run(api_key_id=new.record.id))).run
    await tenant.catalog.keys.revoke(new.record.id)
    (event,) = await tenant.catalog.runs.history(tenant.id, run.id)
    assert event.api_key_id == new.record.id


@pytest.mark.parametrize("way", ["id", "name", "prefix", "secret"])
async def test_a_key_is_named_in_four_ways(tenant, way):
    new = await tenant.catalog.keys.create("laptop", tenant.id)
    await tenant.catalog.keys.create("desktop", tenant.id)
    which = new.secret if way == "secret" else getattr(new.record, way)
    assert (await tenant.catalog.keys.revoke(which)).id == new.record.id


async def test_of_two_keys_of_one_name_the_id_must_say_which(tenant):
    one, two = [await tenant.catalog.keys.create("ci", tenant.id) for _ in range(2)]
    with pytest.raises(Conflict, match=one.record.id):
        await tenant.catalog.keys.revoke("ci")
    await tenant.catalog.keys.revoke(one.record.id)
    assert (await tenant.catalog.keys.revoke("ci")).id == two.record.id


async def test_nobody_revokes_another_organisations_key(tenant):
    new = await tenant.catalog.keys.create("laptop", tenant.other)
    with pytest.raises(NotFound):
        await tenant.catalog.keys.revoke(new.record.id, tenant.id)
    with pytest.raises(NotFound):
        await tenant.catalog.keys.revoke("nothing")


async def test_a_key_expires_after_its_last_millisecond(tenant):
    record = KeyRecord("id", tenant.id, "name", expires_at_ms=1_000, revoked_at_ms=None)
    assert not record.is_expired(1_000)
    assert record.is_expired(1_001)
    assert not KeyRecord("id", tenant.id, "name", None, None).is_expired(2**60)


async def test_a_key_needs_a_name_and_an_organisation(tenant):
    with pytest.raises(Invalid, match="name must not be empty"):
        await tenant.catalog.keys.create(" ", tenant.id)
    with pytest.raises(TooLong, match="at most 255 characters, and has 256"):
        await tenant.catalog.keys.create("n" * 256, tenant.id)
    with pytest.raises(NotFound, match="no such organisation"):
        await tenant.catalog.keys.create("n", "nobody")


async def test_a_listing_is_one_organisations_or_everybodys(tenant):
    mine = await tenant.catalog.keys.create("mine", tenant.id)
    tenant.clock.now_ms += 1
    theirs = await tenant.catalog.keys.create("theirs", tenant.other)
    assert await tenant.catalog.keys.list(tenant.id) == [mine.record]
    assert await tenant.catalog.keys.list() == [mine.record, theirs.record]
