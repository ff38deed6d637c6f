from __future__ import annotations

import asyncio

import pytest

from catalog import lookup_of
from catalog.errors import Conflict, Invalid, NotFound
from catalog.organisations import slug_of


async def test_a_first_start_makes_one_organisation_and_one_key(catalog):
    key = await catalog.organisations.first_start()
    assert key is not None
    assert (await catalog.keys.find(lookup_of(key.secret))).tenant == key.record.tenant
    (organisation,) = await catalog.organisations.list()
    assert (organisation.id, organisation.slug) == (key.record.tenant, "default")
    assert await catalog.organisations.first_start() is None


async def test_first_starts_at_once_make_one_organisation(catalog):
    keys = await asyncio.gather(*(catalog.organisations.first_start() for _ in range(8)))
    assert sum(key is not None for key in keys) == 1
    assert len(await catalog.organisations.list()) == 1


async def test_one_that_is_not_named_is_made_or_is_the_only_one(catalog):
    made = await catalog.organisations.resolve(None)
    assert made.name == "default"
    assert await catalog.organisations.resolve(None) == made
    await catalog.organisations.create("Second")
    with pytest.raises(Conflict, match="default, second"):
        await catalog.organisations.resolve(None)


async def test_one_is_named_by_id_slug_or_name(tenant):
    organisations = tenant.catalog.organisations
    for which in (tenant.id, "acme", "Acme"):
        assert (await organisations.resolve(which)).id == tenant.id
    with pytest.raises(NotFound):
        await organisations.resolve("nobody")
    assert (await organisations.find("other")).id == tenant.other
    assert await organisations.find("Acme") is None


async def test_a_slug_belongs_to_one(tenant):
    with pytest.raises(Conflict, match="'acme'"):
        await tenant.catalog.organisations.create("Acme")
    with pytest.raises(Invalid, match="slug"):
        await tenant.catalog.organisations.create("Acme", slug="No Slug")


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("Acme, Inc.", "acme-inc"),
        ("Zürich Lab", "zurich-lab"),
        ("日本", "org"),
        ("x" * 80, "x" * 63),
    ],
)
def test_a_slug_follows_from_a_name(name, slug):
    assert slug_of(name) == slug
