"""API keys: who may write, and for which organisation.

A key is shown once, when it is made; what is stored is its SHA-256. That needs no salt and no slow
hash: a key holds 144 random bits. Revoking keeps the row, so that runs made with the key keep
their history.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import Executable, Row, Select, select, update
from sqlalchemy.exc import IntegrityError

from catalog.clock import WallClock, wall_ms
from catalog.errors import Conflict, NotFound
from catalog.names import checked_name
from catalog.nanoid import nanoid, random_id
from catalog.tables import api_keys

if TYPE_CHECKING:
    from catalog.engine import Database

KEY_PREFIX = "mlps_"
LEGACY_PREFIX = "mlpi_"
"""Keys of an older kind, stored as they are."""

SECRET_LENGTH = 24
DISPLAY_PREFIX_LENGTH = 8


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """What is known of a key, without the key."""

    id: str
    tenant: str
    """Its organisation's id."""
    name: str
    expires_at_ms: int | None
    revoked_at_ms: int | None
    prefix: str = ""
    created_at_ms: int = 0

    def is_expired(self, now_ms: int) -> bool:
        """Whether its time is over. Said before a revocation is, as the reference does."""
        return self.expires_at_ms is not None and self.expires_at_ms < now_ms

    @property
    def is_revoked(self) -> bool:
        """Whether somebody took it back; there is no way back from that."""
        return self.revoked_at_ms is not None


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key just made, with the secret that is never seen again."""

    record: KeyRecord
    secret: str

    def __repr__(self) -> str:
        """Without the secret: a repr ends up in logs."""
        return f"NewKey(record={self.record!r}, secret=…)"


class KeyStore(Protocol):
    """Where an authenticator looks keys up: this catalogue, or another product's table of keys."""

    async def find(self, lookup: str) -> KeyRecord | None:
        """The key stored under that lookup value, expired or revoked or not.

        Raises:
            catalog.errors.Unavailable: it cannot be known now.
        """


def lookup_of(key: str) -> str:
    """What a key is stored under: lower-case hex SHA-256 of its UTF-8, or a legacy key itself."""
    if key.startswith(LEGACY_PREFIX):
        return key
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


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
        async with self._database.read() as connection:
            row = (await connection.execute(_select().where(api_keys.c.lookup == lookup))).first()
        return None if row is None else _record(row)

    async def create(
        self, name: str, organisation_id: str, *, expires_at_ms: int | None = None
    ) -> NewKey:
        """Makes a key of that organisation.

        Raises:
            TooLong, Invalid: the name. NotFound: no such organisation.
            Unavailable: the database cannot be used now.
        Durability: the key works in every process once this returns, and survives a power cut.
        """
        new = make_key(name, organisation_id, self._clock(), expires_at_ms=expires_at_ms)
        try:
            async with self._database.write() as connection:
                await connection.execute(insert_key(self._database, new))
        except IntegrityError as error:
            raise NotFound("no such organisation; `charon orgs list` shows all") from error
        return new

    async def list(self, organisation_id: str | None = None) -> list[KeyRecord]:
        """All keys, or an organisation's, oldest first; revoked and expired ones too."""
        statement = _select().order_by(api_keys.c.created_at_ms, api_keys.c.id)
        if organisation_id is not None:
            statement = statement.where(api_keys.c.organisation_id == organisation_id)
        async with self._database.read() as connection:
            return [_record(row) for row in await connection.execute(statement)]

    async def revoke(self, which: str, organisation_id: str | None = None) -> KeyRecord:
        """Takes a key back, named by its id, name, 8-character prefix, or itself.

        A second time changes nothing and is no error.

        Raises:
            NotFound: no such key. Conflict: several keys are called so; name one by its id.
            Unavailable: the database cannot be used now.
        Durability: stands once this returns; other processes refuse the key at their next look-up.
        """
        statement = _select().where(
            (api_keys.c.id == which)
            | (api_keys.c.name == which)
            | (api_keys.c.prefix == which)
            | (api_keys.c.lookup == lookup_of(which))
        )
        if organisation_id is not None:
            statement = statement.where(api_keys.c.organisation_id == organisation_id)
        async with self._database.write() as connection:
            found = [_record(row) for row in await connection.execute(statement)]
            record = _the_one(found, which)
            if record.is_revoked:
                return record
            await connection.execute(
                update(api_keys)
                .where(api_keys.c.id == record.id)
                .values(revoked_at_ms=self._clock())
            )
            row = (await connection.execute(_select().where(api_keys.c.id == record.id))).one()
        return _record(row)


def make_key(
    name: str, organisation_id: str, now_ms: int, *, expires_at_ms: int | None = None
) -> NewKey:
    """A new key, not yet stored.

    Raises:
        TooLong, Invalid: the name.
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
    )
    return NewKey(record, secret)


def insert_key(database: Database, new: NewKey) -> Executable:
    """The statement that stores it."""
    return database.insert(api_keys).values(
        id=new.record.id,
        lookup=lookup_of(new.secret),
        prefix=new.record.prefix,
        name=new.record.name,
        organisation_id=new.record.tenant,
        created_at_ms=new.record.created_at_ms,
        expires_at_ms=new.record.expires_at_ms,
        revoked_at_ms=None,
    )


def _the_one(found: list[KeyRecord], which: str) -> KeyRecord:
    exact = [record for record in found if record.id == which]
    living = [record for record in found if not record.is_revoked]
    candidates = exact or (living if len(living) == 1 else found)
    if not candidates:
        raise NotFound("no such key; `charon keys list` shows all")
    if len(candidates) > 1:
        ids = ", ".join(record.id for record in candidates)
        raise Conflict(f"{len(candidates)} keys are called {which!r}; name one by its id: {ids}")
    return candidates[0]


def _select() -> Select[Any]:
    columns = api_keys.c
    return select(
        columns.id,
        columns.organisation_id,
        columns.name,
        columns.expires_at_ms,
        columns.revoked_at_ms,
        columns.prefix,
        columns.created_at_ms,
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
    )
