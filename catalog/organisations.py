"""Organisations: the tenants. Each key belongs to one, and each run."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import Executable, Row, Select, select
from sqlalchemy.exc import IntegrityError

from catalog.clock import WallClock, wall_ms
from catalog.errors import Conflict, Invalid, NotFound
from catalog.keys import insert_key, make_key
from catalog.names import checked_name
from catalog.nanoid import random_id
from catalog.tables import organisations

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from catalog.engine import Database
    from catalog.key_records import NewKey

DEFAULT_NAME = "default"
"""The organisation that is made when a key is wanted and there is none."""

_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Organisation:
    """A tenant. `id` is what rows carry; `slug` is what addresses show."""

    id: str
    name: str
    slug: str
    created_at_ms: int


class Organisations:
    """The organisations of this catalogue."""

    def __init__(self, database: Database, clock: WallClock = wall_ms) -> None:
        self._database = database
        self._clock = clock

    async def create(self, name: str, slug: str | None = None) -> Organisation:
        """Makes an organisation; its slug follows from the name unless given.

        Raises:
            Invalid, TooLong: name or slug. Conflict: the slug is taken.
            Unavailable: the database cannot be used now.
        """
        new = _make(name, slug, self._clock())
        try:
            statement = _insert(self._database, new)
            await self._database.transact(lambda connection: connection.execute(statement))
        except IntegrityError as error:
            raise Conflict(
                f"there is already an organisation with the slug {new.slug!r}"
            ) from error
        return new

    async def list(self) -> list[Organisation]:
        """All, oldest first."""
        statement = _select().order_by(organisations.c.created_at_ms, organisations.c.slug)
        async with self._database.read() as connection:
            return [_organisation(row) for row in await connection.execute(statement)]

    async def find(self, which: str) -> Organisation | None:
        """The organisation of that id or slug."""
        statement = _select().where((organisations.c.id == which) | (organisations.c.slug == which))
        async with self._database.read() as connection:
            rows = [_organisation(row) for row in await connection.execute(statement)]
        return next((one for one in rows if one.id == which), rows[0] if rows else None)

    async def resolve(self, which: str | None) -> Organisation:
        """The one meant on a command line: of that id, slug or name, or the only one there is.

        With none named and none there, the first is made.

        Raises:
            NotFound: none of that name. Conflict: none named, and there are several.
            Unavailable: the database cannot be used now.
        """
        everyone = await self.list()
        if which is None:
            if len(everyone) > 1:
                slugs = ", ".join(one.slug for one in everyone)
                raise Conflict(
                    f"there are {len(everyone)} organisations; say which (--org): {slugs}"
                )
            return everyone[0] if everyone else await self._first()
        found = [one for one in everyone if which in {one.id, one.slug}]
        found = found or [one for one in everyone if one.name == which]
        if len(found) != 1:
            raise NotFound(f"no organisation {which!r}; `charon orgs ls` shows all")
        return found[0]

    async def first_start(self, key_name: str = "first start") -> NewKey | None:
        """In a catalogue without organisations, makes one and a key for it; in any other, nothing.

        Durability: both or neither are stored; two processes doing this at once make one.

        Raises:
            Unavailable: the database cannot be used now.
        """
        organisation = _make(DEFAULT_NAME, None, self._clock())
        key = make_key(key_name, organisation.id, self._clock())

        async def work(connection: AsyncConnection) -> NewKey | None:
            if (await connection.execute(_select().limit(1))).first() is not None:
                return None
            await connection.execute(_insert(self._database, organisation))
            await connection.execute(insert_key(self._database, key))
            return key

        try:
            return await self._database.transact(work)
        except IntegrityError:
            return None  # Postgres: another process was quicker, and the slug is taken

    async def _first(self) -> Organisation:
        try:
            return await self.create(DEFAULT_NAME)
        except Conflict:
            return (await self.list())[0]


def slug_of(name: str) -> str:
    """A name in at most 63 of a-z, 0-9 and hyphens; `org` where nothing is left."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:63].strip("-") or "org"


def _make(name: str, slug: str | None, now_ms: int) -> Organisation:
    name = checked_name("name", name)
    slug = slug_of(name) if slug is None else slug
    if _SLUG.fullmatch(slug) is None:
        raise Invalid(
            f"slug {slug!r} must be 1 to 63 of a-z, 0-9 and '-', and not begin or end with '-'"
        )
    return Organisation(id=random_id(), name=name, slug=slug, created_at_ms=now_ms)


def _insert(database: Database, new: Organisation) -> Executable:
    return database.insert(organisations).values(
        id=new.id, name=new.name, slug=new.slug, created_at_ms=new.created_at_ms
    )


def _select() -> Select[Any]:
    columns = organisations.c
    return select(columns.id, columns.name, columns.slug, columns.created_at_ms)


def _organisation(row: Row[Any]) -> Organisation:
    return Organisation(id=row.id, name=row.name, slug=row.slug, created_at_ms=row.created_at_ms)
