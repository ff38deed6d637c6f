"""Log names and alerts: what a process says of its run while it runs."""

from __future__ import annotations

import asyncio
import random

import pytest
from sqlalchemy import func, select

from catalog.alerts import Alert
from catalog.errors import NotFound, TooLong
from catalog.tables import alerts, log_names


@pytest.fixture
async def run_id(tenant, new_run) -> int:
    return (await tenant.catalog.runs.create(tenant.id, new_run())).run.id


async def rows(catalog, table):
    async with catalog.database.read() as connection:
        return (await connection.execute(select(table))).all()


async def test_a_name_keeps_its_first_type(tenant, run_id):
    names = tenant.catalog.log_names
    await names.add(tenant.id, run_id, "METRIC", ["train/loss", "acc", "acc"])
    await names.add(tenant.id, run_id, "GRAPH", ["acc", "a/b/c"])
    found = {
        row.log_name: (row.log_group, row.log_type) for row in await rows(tenant.catalog, log_names)
    }
    assert found == {
        "train/loss": ("train", "METRIC"),
        "acc": ("", "METRIC"),
        "a/b/c": ("a/b", "GRAPH"),
    }


async def test_many_names_and_no_names_are_both_fine(tenant, run_id):
    names = tenant.catalog.log_names
    await names.add(tenant.id, run_id, "METRIC", [])
    await names.add(tenant.id, run_id, "METRIC", [f"m/{n}" for n in range(20_000)])
    async with tenant.catalog.database.read() as connection:
        count = (await connection.execute(select(func.count()).select_from(log_names))).scalar_one()
    assert count == 20_000


async def test_an_overlong_name_is_refused_with_its_limit(tenant, run_id):
    with pytest.raises(TooLong, match="logName may have at most 2500 bytes of UTF-8, and has 2501"):
        await tenant.catalog.log_names.add(tenant.id, run_id, "METRIC", ["ok", "é" * 1_250 + "n"])
    assert await rows(tenant.catalog, log_names) == []
    with pytest.raises(TooLong, match="logType may have at most 64 characters, and has 65"):
        await tenant.catalog.log_names.add(tenant.id, run_id, "t" * 65, ["n"])


async def test_the_longest_name_fits_every_index_though_it_cannot_be_compressed(tenant, run_id):
    letters = random.Random(1).choices([chr(n) for n in range(0x4E00, 0x9000)], k=833)
    await tenant.catalog.log_names.add(tenant.id, run_id, "METRIC", ["".join(letters)])
    assert [row.log_name for row in await rows(tenant.catalog, log_names)] == ["".join(letters)]


async def test_names_of_one_run_registered_by_many_ranks_at_once(tenant, run_id):
    await asyncio.gather(
        *(
            tenant.catalog.log_names.add(
                tenant.id, run_id, "METRIC", ["sys/a", "sys/b"][:: 1 if rank % 2 else -1]
            )
            for rank in range(10)
        )
    )
    assert len(await rows(tenant.catalog, log_names)) == 2


async def test_an_alert_is_kept(tenant, run_id):
    alert = Alert("ODD LEVEL", "title", "body", None, True, 5)
    await tenant.catalog.alerts.add(tenant.id, run_id, alert)
    (row,) = await rows(tenant.catalog, alerts)
    assert (row.run_id, row.level, row.title, row.body, row.url) == (
        run_id,
        "ODD LEVEL",
        "title",
        "body",
        None,
    )
    assert (row.wants_mail, row.raised_at_ms, row.created_at_ms) == (True, 5, tenant.clock.now_ms)
    with pytest.raises(NotFound):
        await tenant.catalog.alerts.add(tenant.other, run_id, alert)
    with pytest.raises(TooLong, match="body"):
        await tenant.catalog.alerts.add(
            tenant.id, run_id, Alert("A", "t", "b" * 65_537, None, False, None)
        )
