"""Catalogues in real databases: SQLite files and Postgres."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from catalog import Catalog, sqlite_url
from catalog.run_creation import NewRun
from tests.postgres import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from tests.postgres import PostgresServer

ENGINES = ["sqlite", "postgres"]
_EMPTY = r"""
DO $$ BEGIN
    EXECUTE (
        SELECT 'TRUNCATE ' || string_agg(tablename, ', ') || ' RESTART IDENTITY CASCADE'
        FROM pg_tables
        WHERE tablename LIKE 'charon\_%' AND tablename <> 'charon_catalog_version'
    );
END $$
"""
START_MS = 1_700_000_000_000


@dataclass
class Clock:
    """Stands until it is moved."""

    now_ms: int = START_MS

    def __call__(self) -> int:
        return self.now_ms


@dataclass
class Tenant:
    """An organisation with a key, in a catalogue."""

    catalog: Catalog
    clock: Clock
    id: str
    other: str = field(default="")
    """Another organisation's id."""


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database."""
    if request.param == "sqlite":
        return sqlite_url(tmp_path / "catalog.sqlite")
    address: str = request.getfixturevalue("postgres_url")
    return address


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def shared_postgres(postgres_server: PostgresServer) -> Iterator[str]:
    """A migrated database of the session: to make and to migrate one takes longer than a test."""
    with postgres_server.database() as url:

        async def upgrade() -> None:
            catalog = await Catalog.open(url)
            await catalog.upgrade()
            await catalog.close()

        in_thread(lambda: asyncio.run(upgrade()))
        yield url


@pytest.fixture(params=ENGINES)
async def catalog(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> AsyncIterator[Catalog]:
    """A migrated catalogue with nothing in it. Its tables are others' too: change no layout."""
    if request.param == "sqlite":
        catalog = await Catalog.open(sqlite_url(tmp_path / "catalog.sqlite"), clock=clock)
        await catalog.upgrade()
    else:
        url: str = request.getfixturevalue("shared_postgres")
        request.getfixturevalue("postgres_server").execute(_EMPTY, url)
        catalog = await Catalog.open(url, clock=clock)
    yield catalog
    await catalog.close()


@pytest.fixture
async def tenant(catalog: Catalog, clock: Clock) -> Tenant:
    """Two organisations; most tests speak as the first."""
    mine = await catalog.organisations.create("Acme")
    other = await catalog.organisations.create("Other")
    return Tenant(catalog, clock, mine.id, other.id)


@pytest.fixture
def new_run() -> Callable[..., NewRun]:
    """A run as a client asks for it."""

    def make(**given: Any) -> NewRun:
        return NewRun(**{"name": "a run", "project": "my-ml-project"} | given)

    return make
