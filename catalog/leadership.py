"""One of several replicas at a time, by a lock that ends with whoever holds it."""

from __future__ import annotations

import contextlib
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from catalog.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sqlalchemy import URL

REAPER_LOCK = 0x0C4A_204E_57A1_E001
"""Ours among the advisory locks of a database that others may use too: any number would do."""


@asynccontextmanager
async def leading(url: URL, lock: int) -> AsyncIterator[bool]:
    """Whether this process is the one, for as long as the block lasts.

    A Postgres session's lock, on a connection of its own: it ends with the block, the process or
    the connection, whichever is first. Work within must be such that it does no harm when two do
    it all the same, in the moment after a connection is lost. On SQLite all processes belong to
    one server, which gives the work to one of them: always True.

    Args:
        url: with no pooler between; one in transaction mode would give the lock to anybody.
        lock: its number.

    Raises:
        Unavailable: Postgres cannot be reached.
    """
    if url.get_backend_name() == "sqlite":
        yield True
        return
    # Its driver is for Postgres alone.
    from catalog.postgres import DRIVER_ERRORS, connect  # noqa: PLC0415

    async with contextlib.AsyncExitStack() as stack:
        try:
            connection = await connect(url)
            stack.callback(connection.terminate)
            is_leader = await connection.fetchval("SELECT pg_try_advisory_lock($1)", lock)
        except (*DRIVER_ERRORS, OSError, TimeoutError) as error:
            raise Unavailable("the catalogue's database cannot be used now; try again") from error
        yield bool(is_leader)
