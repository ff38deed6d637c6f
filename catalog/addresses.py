"""Addresses of a catalogue: a SQLite file, or a Postgres server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import URL, make_url

if TYPE_CHECKING:
    from pathlib import Path

POOLER_PARAMETER = "pgbouncer"
"""Prisma's word in an address for a pooler in transaction mode; an existing deployment has it."""


def parse_url(url: str) -> URL:
    """The address with its async driver: `postgres://` and `postgresql://` alike mean asyncpg.

    Raises:
        ValueError: neither a Postgres address nor a SQLite file. The message does not repeat the
            address: it may hold a password.
    """
    try:
        parsed = make_url(url)
    except Exception as error:
        raise ValueError("the catalogue's database address cannot be read") from error
    match parsed.get_backend_name():
        case "sqlite" if parsed.database and parsed.database != ":memory:":
            return parsed.set(drivername="sqlite+aiosqlite")
        case "postgresql" | "postgres":
            return parsed.set(drivername="postgresql+asyncpg")
        case _:
            raise ValueError(
                "the catalogue's database must be postgresql://… or a file, "
                "sqlite:///path/to/catalog.sqlite"
            )


def sqlite_url(path: Path) -> str:
    """The address of a catalogue in a SQLite file."""
    return URL.create("sqlite+aiosqlite", database=str(path)).render_as_string()


def has_pooler(url: URL) -> bool:
    """Whether the address says that a pooler in transaction mode stands between."""
    return str(url.query.get(POOLER_PARAMETER, "")).lower() in {"true", "1", "yes"}


def with_pooler(url: str) -> str:
    """The address with that word in it."""
    if f"{POOLER_PARAMETER}=" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}{POOLER_PARAMETER}=true"
