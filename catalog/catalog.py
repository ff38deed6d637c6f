"""The catalogue as the rest of Charon holds it: one object, opened once a process."""

from __future__ import annotations

from typing import Self

from catalog.alerts import Alerts
from catalog.clock import WallClock, wall_ms
from catalog.engine import Database
from catalog.heartbeats import Heartbeats
from catalog.keys import Keys
from catalog.log_names import LogNames
from catalog.organisations import Organisations
from catalog.runs import Runs


class Catalog:
    """Organisations, keys, projects and runs of one database."""

    def __init__(self, database: Database, clock: WallClock = wall_ms) -> None:
        self.database = database
        self.organisations = Organisations(database, clock)
        self.keys = Keys(database, clock)
        self.runs = Runs(database, clock)
        self.log_names = LogNames(database)
        self.heartbeats = Heartbeats(database, clock)
        self.alerts = Alerts(database, clock)

    @classmethod
    async def open(cls, url: str, *, clock: WallClock = wall_ms) -> Self:
        """Opens it; a SQLite file is made where there is none, a Postgres server is not called yet.

        The tables may be missing still: until `upgrade` has run, here or in another process, every
        call raises Unavailable.

        Args:
            clock: gives now in ms; a test hands in its own.
            url: `sqlite+aiosqlite:////absolute/path` (see `catalog.engine.sqlite_url`) or `postgresql://…`.

        Raises:
            ValueError: the address is neither. Unavailable: the SQLite file cannot be made or
            opened.
        """
        database = Database(url)
        await database.prepare()
        return cls(database, clock)

    async def upgrade(self) -> list[str]:
        """Brings the tables up to this release; several processes may do so at once.

        Returns: the revisions applied, oldest first; none where all was done before.

        Raises:
            NewerDatabase: a newer release has been here. Unavailable: the database cannot be used
            now.
        """
        from catalog.upgrades import upgrade  # noqa: PLC0415 - Alembic's 10 MB are not for the workers

        return await upgrade(self.database.url)

    async def close(self) -> None:
        """Closes every connection."""
        await self.database.close()
