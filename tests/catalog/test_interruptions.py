"""Whatever writes is run again where others interrupt its transaction."""

from __future__ import annotations

from contextlib import asynccontextmanager

from catalog.errors import Interrupted


async def test_every_write_is_done_once_though_its_first_try_is_interrupted(
    tenant, new_run, monkeypatch
):
    catalog = tenant.catalog
    database = catalog.database
    write = database.write
    tries: list[int] = []

    @asynccontextmanager
    async def interrupted():
        tries[-1] += 1
        async with write() as connection:
            yield connection
            if tries[-1] == 1:
                raise Interrupted("by another", may_be_committed=False)

    monkeypatch.setattr(database, "write", interrupted)

    async def twice(work):
        tries.append(0)
        done = await work
        assert tries[-1] == 2
        return done

    organisation = await twice(catalog.organisations.create("Third"))
    key = (await twice(catalog.keys.create("sdk", organisation.id))).record
    await twice(catalog.keys.note_used({key.id: 5}))
    await twice(catalog.keys.expire(key.id, tenant.clock.now_ms + 1_000))
    new, old = await twice(catalog.keys.rotate(key.id, overlap_ms=500))
    assert old.expires_at_ms == tenant.clock.now_ms + 500
    assert new.record.expires_at_ms == tenant.clock.now_ms + 1_000
    assert (await twice(catalog.keys.revoke(key.id))).is_revoked
    keys = await catalog.keys.list(organisation.id)
    assert sorted(one.id for one in keys) == sorted([key.id, new.record.id])
    run = (await twice(catalog.runs.create(tenant.id, new_run()))).run
    asked = await twice(
        catalog.triggers.ask_cancel(tenant.id, run.id, reason=None, actor="somebody")
    )
    assert await catalog.triggers.of_run(run.id) == [asked]
    assert await twice(catalog.triggers.carry_out(run.id)) == "CANCELLED"
    await twice(catalog.heartbeats.note_beats({run.id: 7}))
