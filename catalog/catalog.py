"""The catalogue as the rest of Charon holds it: one object, opened once a process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from catalog.addresses import parse_url
from catalog.alerts import Alerts
from catalog.clock import WallClock, wall_ms
from catalog.engine import Database
from catalog.heartbeats import Heartbeats
from catalog.keys import Keys
from catalog.log_names import LogNames
from catalog.model_graphs import ModelGraphs
from catalog.organisations import Organisations
from catalog.runs import Runs
from catalog.stale_runs import StaleRuns
from catalog.triggers import Triggers

if TYPE_CHECKING:
    from sqlalchemy import URL


class Catalog:
    """Organisations, keys, projects and runs of one database."""

    def __init__(
        self, database: Database, clock: WallClock = wall_ms, *, direct_url: URL | None = None
    ) -> None:
        self.database = database
        self.direct_url = direct_url or database.url
        """An address with no pooler between: for migrations, LISTEN and a session's locks."""
        self.organisations = Organisations(database, clock)
        self.keys = Keys(database, clock)
        self.runs = Runs(database, clock)
        self.log_names = LogNames(database)
        self.heartbeats = Heartbeats(database)
        self.triggers = Triggers(database, clock)
        self.stale_runs = StaleRuns(database, clock)
        self.alerts = Alerts(database, clock)
        self.model_graphs = ModelGraphs(database, clock)

    @classmethod
    async def open(
        cls, url: str, *, direct_url: str | None = None, clock: WallClock = wall_ms
    ) -> Self:
        """Opens it; a SQLite file is made where there is none, a Postgres server is not called yet.

        The tables may be missing still: until `upgrade` has run, here or in another process, every
        call raises Unavailable.

        Args:
            url: `sqlite+aiosqlite:////absolute/path` (see `catalog.sqlite_url`) or
                `postgresql://…`; of a pooler in transaction mode too.
            direct_url: needed where `url` is a pooler's: the server's own.
            clock: gives now in ms; a test hands in its own.

        Raises:
            ValueError: the address is neither. Unavailable: the SQLite file cannot be made or
            opened.
        """
        database = Database(url)
        await database.prepare()
        return cls(
            database, clock, direct_url=None if direct_url is None else parse_url(direct_url)
        )

    async def upgrade(self) -> list[str]:
        """Brings the tables up to this release; several processes may do so at once.

        Returns: the revisions applied, oldest first; none where all was done before.

        Raises:
            NewerDatabase: a newer release has been here. Unavailable: the database cannot be used
            now.
        """
        from catalog.upgrades import upgrade  # noqa: PLC0415 - Alembic's 10 MB are not for the workers

        return await upgrade(self.direct_url)

    async def see_release(self) -> None:
        """See that no newer release has upgraded the tables.

        Raises:
            NewerDatabase: one has. Unavailable: the database cannot be used now.
        """
        from catalog.upgrades import see_release  # noqa: PLC0415 - as above

        await see_release(self.direct_url)

    async def close(self) -> None:
        """Closes every connection."""
        await self.database.close()
