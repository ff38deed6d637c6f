"""Alerts that a training process raises; kept, and read by whoever shows or sends them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import insert

from catalog.clock import WallClock, wall_ms
from catalog.errors import TooLong
from catalog.names import storable
from catalog.run_records import get_head
from catalog.tables import alerts

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from catalog.engine import Database

TEXT_LENGTH_MAX = 65_536
"""Characters of a title, a body or an address."""


@dataclass(frozen=True, slots=True)
class Alert:
    """As the client sent it; levels are not a closed set."""

    level: str
    title: str
    body: str
    url: str | None
    wants_mail: bool
    raised_at_ms: int | None


class Alerts:
    """The alerts of this catalogue."""

    def __init__(self, database: Database, clock: WallClock = wall_ms) -> None:
        self._database = database
        self._clock = clock

    async def add(self, tenant: str, run_id: int, alert: Alert) -> None:
        """Keeps an alert of a run.

        Raises:
            NotFound: the run. TooLong: one of its texts. Unavailable: the database.
        """
        texts = {"level": alert.level, "title": alert.title, "body": alert.body, "url": alert.url}
        for field, text in texts.items():
            if text is not None and len(text) > TEXT_LENGTH_MAX:
                limit = f"alert.{field} may have at most {TEXT_LENGTH_MAX} characters"
                raise TooLong(f"{limit}, and has {len(text)}")
        now_ms = self._clock()
        statement = insert(alerts).values(
            run_id=run_id,
            level=storable(alert.level),
            title=storable(alert.title),
            body=storable(alert.body),
            url=None if alert.url is None else storable(alert.url),
            wants_mail=alert.wants_mail,
            raised_at_ms=now_ms if alert.raised_at_ms is None else alert.raised_at_ms,
            created_at_ms=now_ms,
        )

        async def work(connection: AsyncConnection) -> None:
            await get_head(connection, tenant, run_id)
            await connection.execute(statement)

        await self._database.transact(work)
