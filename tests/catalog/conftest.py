"""Catalogues in real databases: SQLite files and Postgres."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from catalog import Catalog, sqlite_url
from catalog.run_creation import NewRun

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

ENGINES = ["sqlite", "postgres"]
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


@pytest.fixture
async def catalog(url: str, clock: Clock) -> AsyncIterator[Catalog]:
    """A migrated catalogue."""
    catalog = await Catalog.open(url, clock=clock)
    await catalog.upgrade()
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
