"""API keys: who may write and read, and for which organisation.

A key is shown once, when it is made; what is stored is its SHA-256. That needs no salt and no slow
hash: a key holds 144 random bits. Revoking keeps the row, so that runs made with the key keep
their history.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import Executable, Row, Select, bindparam, func, select, update
from sqlalchemy.exc import IntegrityError

from catalog.clock import WallClock, wall_ms
from catalog.errors import Conflict, NotFound
from catalog.key_records import KEY_PREFIX, KeyRecord, NewKey, lookup_of
from catalog.names import checked_name
from catalog.nanoid import nanoid, random_id
from catalog.scopes import SDK_SCOPES, checked_scopes, scopes_from_text, scopes_to_text
from catalog.tables import api_keys

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection

    from catalog.engine import Database

SECRET_LENGTH = 24
DISPLAY_PREFIX_LENGTH = 8

_COLUMNS = api_keys.c


class Keys:
    """The keys of this catalogue; a KeyStore."""

    def __init__(self, database: Database, clock: WallClock = wall_ms) -> None:
        self._database = database
        self._clock = clock

    async def find(self, lookup: str) -> KeyRecord | None:
        """The key stored under that lookup value, expired or revoked or not.

        Raises:
            Unavailable: the database cannot be used now.
        """
        return (await self.find_many([lookup])).get(lookup)

    async def find_many(self, lookups: Collection[str]) -> dict[str, KeyRecord]:
        """Those of many that are there, by lookup value, in one query.

        Raises:
            Unavailable: the database cannot be used now.
        """
        statement = _select().where(_COLUMNS.lookup.in_(lookups))
        async with self._database.read() as connection:
            records = [_record(row) for row in await connection.execute(statement)]
        return {record.lookup: record for record in records}

    async def recent(self, keys_max: int) -> Sequence[KeyRecord]:
        """So many keys that are not revoked: those used or made last.

        Raises:
            Unavailable: the database cannot be used now.
        """
        last = func.coalesce(_COLUMNS.last_used_at_ms, _COLUMNS.created_at_ms)
        statement = _select().where(_COLUMNS.revoked_at_ms.is_(None))
        async with self._database.read() as connection:
            rows = await connection.execute(statement.order_by(last.desc()).limit(keys_max))
            return [_record(row) for row in rows]

    async def note_used(self, used_at_ms: Mapping[str, int]) -> None:
        """Keep when keys, by id, were used last; an earlier time than is kept changes nothing.

        Raises:
            Unavailable: the database cannot be used now.
        """
        statement = (
            update(api_keys)
            .where(_COLUMNS.id == bindparam("key"))
            .where(
                _COLUMNS.last_used_at_ms.is_(None) | (_COLUMNS.last_used_at_ms < bindparam("at"))
            )
            .values(last_used_at_ms=bindparam("at"))
        )
        # In one order everywhere: two processes that write the same keys cannot lock each other.
        rows = [{"key": key, "at": at} for key, at in sorted(used_at_ms.items())]
        if rows:
            await self._database.transact(lambda connection: connection.execute(statement, rows))

    async def create(
        self,
        name: str,
        organisation_id: str,
        *,
        expires_at_ms: int | None = None,
        scopes: Collection[str] = SDK_SCOPES,
    ) -> NewKey:
        """Makes a key of that organisation.

        Raises:
            TooLong, Invalid: the name or a scope. NotFound: no such organisation.
            Unavailable: the database cannot be used now.
        Durability: the key works in every process once this returns, and survives a power cut.
        """
        new = make_key(
            name, organisation_id, self._clock(), expires_at_ms=expires_at_ms, scopes=scopes
        )
        try:
            statement = insert_key(self._database, new)
            await self._database.transact(lambda connection: connection.execute(statement))
        except IntegrityError as error:
            raise NotFound("no such organisation; `charon orgs ls` shows all") from error
        return new

    async def list(self, organisation_id: str | None = None) -> list[KeyRecord]:
        """All keys, or an organisation's, oldest first; revoked and expired ones too."""
        statement = _select().order_by(_COLUMNS.created_at_ms, _COLUMNS.id)
        if organisation_id is not None:
            statement = statement.where(_COLUMNS.organisation_id == organisation_id)
        async with self._database.read() as connection:
            return [_record(row) for row in await connection.execute(statement)]

    async def get(self, which: str, organisation_id: str | None = None) -> KeyRecord:
        """The key of that id, name or 8-character prefix, or the key itself.

        Raises:
            NotFound: no such key. Conflict: several are called so; name one by its id.
            Unavailable: the database cannot be used now.
        """
        async with self._database.read() as connection:
            return await self._one(connection, which, organisation_id)

    async def revoke(self, which: str, organisation_id: str | None = None) -> KeyRecord:
        """Takes a key back, named as for `get`. A second time changes nothing and is no error.

        Raises:
            NotFound: no such key. Conflict: several keys are called so; name one by its id.
            Unavailable: the database cannot be used now.
        Durability: stands once this returns; other processes refuse the key at their next look-up.
        """

        async def work(connection: AsyncConnection) -> KeyRecord:
            record = await self._one(connection, which, organisation_id, lock=True)
            if record.is_revoked:
                return record
            return await _change(connection, record, revoked_at_ms=self._clock())

        return await self._database.transact(work)

    async def expire(
        self, which: str, expires_at_ms: int | None, organisation_id: str | None = None
    ) -> KeyRecord:
        """Sets when a key ends, sooner or later than before; None: never.

        Raises:
            NotFound: no such key. Conflict: several are called so, or it is revoked.
            Unavailable: the database cannot be used now.
        Durability: stands once this returns.
        """

        async def work(connection: AsyncConnection) -> KeyRecord:
            record = await self._one(connection, which, organisation_id, lock=True)
            if record.is_revoked:
                raise Conflict(f"key {record.name} ({record.id}) is revoked: it has ended")
            return await _change(connection, record, expires_at_ms=expires_at_ms)

        return await self._database.transact(work)

    async def rotate(
        self,
        which: str,
        *,
        overlap_ms: int,
        expires_at_ms: int | None = None,
        organisation_id: str | None = None,
    ) -> tuple[NewKey, KeyRecord]:
        """Makes a key that takes another's place; the old one works for the overlap still.

        The new one has the name and the scopes of the old, and as long a life as that was given.

        Args:
            which: as for `get`.
            organisation_id: as there.
            overlap_ms: from now until the old key ends, if it does not end sooner by itself.
            expires_at_ms: when the new one ends, where that is not to be as the old one's life was.

        Returns: the new key, and the old one's record as it is now.

        Raises:
            NotFound: no such key. Conflict: several are called so, or it has ended already.
            Unavailable: the database cannot be used now.
        Durability: both changes or neither stand.
        """
        now_ms = self._clock()

        async def work(connection: AsyncConnection) -> tuple[NewKey, KeyRecord]:
            old = await self._one(connection, which, organisation_id, lock=True)
            if old.is_revoked or old.is_expired(now_ms):
                state = "is revoked" if old.is_revoked else "has expired"
                raise Conflict(
                    f"key {old.name} ({old.id}) {state}: there is nothing to overlap with; "
                    "make a new one with `charon keys create`"
                )
            ends_at_ms = expires_at_ms
            if ends_at_ms is None and old.expires_at_ms is not None:
                ends_at_ms = now_ms + max(old.expires_at_ms - old.created_at_ms, 0)
            new = make_key(
                old.name,
                old.tenant,
                now_ms,
                expires_at_ms=ends_at_ms,
                scopes=old.scopes,
                rotated_from=old.id,
            )
            ends = [now_ms + overlap_ms, *([old.expires_at_ms] if old.expires_at_ms else [])]
            await connection.execute(insert_key(self._database, new))
            return new, await _change(connection, old, expires_at_ms=min(ends))

        return await self._database.transact(work)

    async def _one(
        self,
        connection: AsyncConnection,
        which: str,
        organisation_id: str | None,
        *,
        lock: bool = False,
    ) -> KeyRecord:
        statement = _select().where(
            (_COLUMNS.id == which)
            | (_COLUMNS.name == which)
            | (_COLUMNS.prefix == which)
            | (_COLUMNS.lookup == lookup_of(which))
        )
        if organisation_id is not None:
            statement = statement.where(_COLUMNS.organisation_id == organisation_id)
        if lock:
            statement = statement.order_by(_COLUMNS.id).with_for_update()
        found = [_record(row) for row in await connection.execute(statement)]
        return _the_one(found, which, self._clock())


def make_key(
    name: str,
    organisation_id: str,
    now_ms: int,
    *,
    expires_at_ms: int | None = None,
    scopes: Collection[str] = SDK_SCOPES,
    rotated_from: str | None = None,
) -> NewKey:
    """A new key, not yet stored.

    Raises:
        TooLong, Invalid: the name, or a scope.
    """
    secret = KEY_PREFIX + nanoid(SECRET_LENGTH)
    record = KeyRecord(
        id=random_id(),
        tenant=organisation_id,
        name=checked_name("name", name),
        expires_at_ms=expires_at_ms,
        revoked_at_ms=None,
        prefix=secret[:DISPLAY_PREFIX_LENGTH],
        created_at_ms=now_ms,
        scopes=checked_scopes(scopes),
        rotated_from=rotated_from,
        lookup=lookup_of(secret),
    )
    return NewKey(record, secret)


def insert_key(database: Database, new: NewKey) -> Executable:
    """The statement that stores it."""
    return database.insert(api_keys).values(
        id=new.record.id,
        lookup=new.record.lookup,
        prefix=new.record.prefix,
        name=new.record.name,
        organisation_id=new.record.tenant,
        created_at_ms=new.record.created_at_ms,
        expires_at_ms=new.record.expires_at_ms,
        revoked_at_ms=None,
        scopes=scopes_to_text(new.record.scopes),
        rotated_from=new.record.rotated_from,
    )


async def _change(
    connection: AsyncConnection, record: KeyRecord, **columns: int | None
) -> KeyRecord:
    await connection.execute(update(api_keys).where(_COLUMNS.id == record.id).values(**columns))
    return replace(record, **columns)  # type: ignore[arg-type] # the columns' names are the fields'


def _the_one(found: list[KeyRecord], which: str, now_ms: int) -> KeyRecord:
    exact = [record for record in found if record.id == which]
    unrevoked = [record for record in found if not record.is_revoked]
    valid = [record for record in unrevoked if not record.is_expired(now_ms)]
    candidates = exact or next((some for some in (valid, unrevoked) if len(some) == 1), found)
    if not candidates:
        raise NotFound("no such key; `charon keys ls` shows all")
    if len(candidates) > 1:
        ids = ", ".join(record.id for record in candidates)
        raise Conflict(f"{len(candidates)} keys are called {which!r}; name one by its id: {ids}")
    return candidates[0]


def _select() -> Select[Any]:
    return select(
        _COLUMNS.id,
        _COLUMNS.lookup,
        _COLUMNS.organisation_id,
        _COLUMNS.name,
        _COLUMNS.expires_at_ms,
        _COLUMNS.revoked_at_ms,
        _COLUMNS.prefix,
        _COLUMNS.created_at_ms,
        _COLUMNS.scopes,
        _COLUMNS.last_used_at_ms,
        _COLUMNS.rotated_from,
    )


def _record(row: Row[Any]) -> KeyRecord:
    return KeyRecord(
        id=row.id,
        tenant=row.organisation_id,
        name=row.name,
        expires_at_ms=row.expires_at_ms,
        revoked_at_ms=row.revoked_at_ms,
        prefix=row.prefix,
        created_at_ms=row.created_at_ms,
        scopes=scopes_from_text(row.scopes),
        last_used_at_ms=row.last_used_at_ms,
        rotated_from=row.rotated_from,
        lookup=row.lookup,
    )
