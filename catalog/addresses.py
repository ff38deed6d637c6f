"""Addresses of a catalogue: a SQLite file, or a Postgres server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import URL, make_url

if TYPE_CHECKING:
    from pathlib import Path


def parse_url(url: str) -> URL:
    """The address with its async driver: `postgres://` and `postgresql://` alike mean asyncpg.

    Raises:
        ValueError: neither a Postgres address nor a SQLite file. The message does not repeat the
            address: it may hold a password.
    """
    try:
        parsed = make_url(url)
    except Exception:  # noqa: BLE001 - its text may hold the address
        raise ValueError("the catalogue's database address cannot be read") from None
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
