"""The keys of an existing Pluto, read where that keeps them; nothing is ever written there.

Its table `"api_key"` stores a key under the same value as ours, and its times without a zone: they
are UTC, whatever zone the session, the server or this machine has. Every transaction is READ ONLY,
so that Postgres itself refuses a write.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import ARRAY, Integer, Row, Text, bindparam, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from catalog.addresses import parse_url
from catalog.errors import Unavailable
from catalog.key_records import KeyRecord
from catalog.postgres import DRIVER_ERRORS, engine
from catalog.scopes import SDK_SCOPES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

CONNECTIONS_MAX = 4
COLUMNS = ("id", "key", "name", "organizationId", "createdAt", "expiresAt", "revokedAt")
"""Those that are read."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)

_SELECT = (
    'SELECT id, key, name, "organizationId" AS tenant, "createdAt" AS created_at, '
    '"expiresAt" AS expires_at, "revokedAt" AS revoked_at FROM "api_key" '
)
_FIND = text(_SELECT + "WHERE key = ANY(:lookups)").bindparams(
    bindparam("lookups", type_=ARRAY(Text))
)
_RECENT = text(
    _SELECT + 'WHERE "revokedAt" IS NULL ORDER BY "createdAt" DESC LIMIT :keys_max'
).bindparams(bindparam("keys_max", type_=Integer))
_LOOK = text(
    "SELECT current_user AS role, count(*) AS keys_, "
    "has_table_privilege(current_user, '\"api_key\"', 'INSERT, UPDATE, DELETE') AS may_write "
    'FROM "api_key" WHERE "revokedAt" IS NULL '
    'AND ("expiresAt" IS NULL OR "expiresAt"::timestamp > now() AT TIME ZONE \'UTC\')'
)


class PlutoKeys:
    """A KeyStore. Keys have no scopes there: each may do what the SDK does.

    Args:
        url: of that Pluto's Postgres, with the parameters that Prisma puts into it or without.
    """

    def __init__(self, url: str) -> None:
        self._engine = engine(
            parse_url(url), CONNECTIONS_MAX, execution_options={"postgresql_readonly": True}
        )

    async def find(self, lookup: str) -> KeyRecord | None:
        """The key stored under that lookup value, expired or revoked or not.

        Raises:
            Unavailable: the database cannot be used now.
        """
        return (await self.find_many([lookup])).get(lookup)

    async def find_many(self, lookups: Collection[str]) -> dict[str, KeyRecord]:
        """Those of many that are there, by lookup value, in one query.

        Raises:
            Unavailable: the database cannot be used now, or has no such table.
        """
        rows = await self._ask(_FIND, {"lookups": list(lookups)})
        return {row.key: _record(row) for row in rows}

    async def recent(self, keys_max: int) -> Sequence[KeyRecord]:
        """So many keys that are not revoked, those made last: when one was used is not kept there.

        Raises:
            Unavailable: as `find_many`.
        """
        return [_record(row) for row in await self._ask(_RECENT, {"keys_max": keys_max})]

    async def note_used(self, used_at_ms: Mapping[str, int]) -> None:
        """Nothing: `lastUsed` is theirs, and no service of theirs writes it."""

    async def look(self) -> tuple[int, str, bool]:
        """How many valid keys there are, who we are, and whether we could write to the table.

        Raises:
            Unavailable: as `find_many`.
        """
        (row,) = await self._ask(_LOOK, {})
        return row.keys_, row.role, row.may_write

    async def close(self) -> None:
        """Closes every connection that is not in use."""
        await self._engine.dispose()

    async def _ask(self, statement: Any, values: dict[str, Any]) -> list[Row[Any]]:  # noqa: ANN401 - a text clause
        try:
            async with self._engine.connect() as connection:
                return list(await connection.execute(statement, values))
        except (*DRIVER_ERRORS, DBAPIError, PoolTimeoutError, OSError, TimeoutError) as error:
            raise Unavailable(f"the keys of Pluto cannot be read now ({_reason(error)})") from error


def _record(row: Row[Any]) -> KeyRecord:
    return KeyRecord(
        id=row.id,
        tenant=row.tenant,
        name=row.name or "",
        expires_at_ms=_ms(row.expires_at),
        revoked_at_ms=_ms(row.revoked_at),
        created_at_ms=_ms(row.created_at) or 0,
        scopes=SDK_SCOPES,
        lookup=row.key,
    )


def _ms(moment: datetime | None) -> int | None:
    """In ms since 1970. A naive time is UTC; rounded down, so that no key lives longer for it."""
    if moment is None:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MS


def _reason(error: Exception) -> str:
    """The kind of the failure alone: its text may hold a statement or an address."""
    state = getattr(getattr(error, "orig", None), "sqlstate", None)
    return f"SQLSTATE {state}" if state else type(error).__name__
