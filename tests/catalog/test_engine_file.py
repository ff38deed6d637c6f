"""A SQLite file that is deleted or replaced under a running server."""

from __future__ import annotations

import shutil

import pytest

from catalog import Catalog, engine
from catalog.addresses import sqlite_url
from catalog.errors import Unavailable
from catalog.run_creation import NewRun


async def opened(path):
    catalog = await Catalog.open(sqlite_url(path))
    await catalog.upgrade()
    return catalog


async def test_no_run_is_made_in_a_file_that_is_gone_and_one_put_back_is_used(tmp_path):
    path, aside = tmp_path / "catalog.sqlite", tmp_path / "aside"
    catalog = await opened(path)
    tenant = (await catalog.organisations.create("acme")).id
    first = await catalog.runs.create(tenant, NewRun("a", "p"))
    await catalog.close()  # so that the copy is whole
    shutil.copy(path, aside)
    await catalog.runs.find(tenant, first.run.id)
    for file in tmp_path.glob("catalog.sqlite*"):
        file.unlink()
    for _ in range(2):
        with pytest.raises(Unavailable):
            await catalog.runs.create(tenant, NewRun("b", "p"))
        with pytest.raises(Unavailable):
            await catalog.keys.find("")
    assert not path.exists()
    aside.rename(path)
    second = await catalog.runs.create(tenant, NewRun("b", "p"))
    assert second.run.id == first.run.id + 1
    await catalog.close()


async def test_a_file_that_cannot_be_opened_now_is_not_waited_for_at_a_start(tmp_path, monkeypatch):
    """As on a disk with no free byte: only another process's lock is worth a wait."""
    path = tmp_path / "catalog.sqlite"
    await (await opened(path)).close()
    monkeypatch.setattr(engine.time, "sleep", lambda seconds: pytest.fail("waits"))
    (tmp_path / "catalog.sqlite-wal").mkdir()  # it cannot make its journal
    with pytest.raises(Unavailable):
        await Catalog.open(sqlite_url(path))
