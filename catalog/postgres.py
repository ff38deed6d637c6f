"""Connections to Postgres: their address, their pools, and a pooler that may stand between.

An address is taken as libpq writes it (`sslmode`, a socket, …), with the parameters that
Prisma's clients put into it for themselves.

Behind pgbouncer in transaction mode a named prepared statement may be another client's. So
statements have no names, here as elsewhere: the driver sends a statement's text along with its
values, in one message, and only what it gives is asked for once and remembered. That costs a run's
creation a tenth to a fifth more than names would, and needs no setting that somebody could forget.

Whether a connection still lives is seen from its socket, at no cost; one that was idle for a while
is asked, since what silently drops idle connections (a firewall, a standby that took over) leaves
the socket as it was.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import asyncpg
from sqlalchemy import URL, event, pool
from sqlalchemy.exc import DBAPIError, DisconnectionError
from sqlalchemy.ext.asyncio import create_async_engine

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sqlalchemy.engine.interfaces import DBAPIConnection
    from sqlalchemy.ext.asyncio import AsyncEngine
    from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

CONNECT_SECONDS_MAX = 5.0
POOL_WAIT_SECONDS_MAX = 60.0
"""Callers bound their waiting themselves, for less."""
STATEMENT_SECONDS_MAX = 10.0
"""For one statement and the locks that it waits for: most take less than a millisecond."""
IDLE_SECONDS_MAX = 20.0
"""A connection that was idle for longer is asked whether it lives."""

DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""What the driver raises besides OSError; the last where a connection is lost within a call."""

_PRISMA_PARAMETERS = ("pgbouncer", "connection_limit", "pool_timeout", "schema")
_RETURNED_AT = "charon_returned_at"


async def connect(
    url: URL, *, statement_seconds_max: float = STATEMENT_SECONDS_MAX
) -> asyncpg.Connection:
    """A connection of the driver's, apart from every pool: for LISTEN, and for locks of a session.

    Raises:
        OSError: there is none to be had, whatever the reason.
    """
    settings = {"application_name": "charon"}
    if schema := url.query.get("schema"):
        settings["search_path"] = str(schema)
    plain = url.set(drivername="postgresql").difference_update_query(_PRISMA_PARAMETERS)
    try:
        return await asyncpg.connect(
            plain.render_as_string(hide_password=False),
            timeout=CONNECT_SECONDS_MAX,
            command_timeout=statement_seconds_max,
            statement_cache_size=0,  # so that they have no names
            server_settings=settings,
        )
    except (*DRIVER_ERRORS, ValueError) as error:
        raise OSError(f"no connection to Postgres: {error}") from error


def engine(
    url: URL,
    connections: int,
    *,
    seconds: float = STATEMENT_SECONDS_MAX,
    **options: Any,  # noqa: ANN401 - SQLAlchemy's
) -> AsyncEngine:
    """A pool of so many connections, or none and no bound where that is 0.

    Args:
        url: as given to Charon.
        connections: at most.
        seconds: for one statement.
        options: SQLAlchemy's.
    """

    def create(*_given: object, **_more: object) -> Awaitable[asyncpg.Connection]:
        return connect(url, statement_seconds_max=seconds)

    if connections:
        options |= {
            "pool_size": connections,
            "max_overflow": 0,
            "pool_timeout": POOL_WAIT_SECONDS_MAX,
        }
    else:
        options["poolclass"] = pool.NullPool
    made = create_async_engine(
        url.set(query={}),
        connect_args={"async_creator_fn": create},
        hide_parameters=True,
        **options,
    )
    if connections:
        event.listen(made.sync_engine, "checkin", _note_return)
        event.listen(made.sync_engine, "checkout", _see_alive(made))
    return made


def _note_return(_connection: DBAPIConnection | None, entry: ConnectionPoolEntry) -> None:
    entry.info[_RETURNED_AT] = time.monotonic()


def _see_alive(made: AsyncEngine) -> Any:  # noqa: ANN401 - a listener
    dialect = made.sync_engine.dialect

    def see(
        connection: Any,  # noqa: ANN401 - the driver's, in SQLAlchemy's clothes
        entry: ConnectionPoolEntry,
        _proxy: PoolProxiedConnection,
    ) -> None:
        if connection.driver_connection.is_closed():
            raise DisconnectionError("closed by the server")
        idle_seconds = time.monotonic() - entry.info.get(_RETURNED_AT, float("inf"))
        if idle_seconds > IDLE_SECONDS_MAX and _RETURNED_AT in entry.info:
            try:
                dialect.do_ping(connection)
            except (dialect.loaded_dbapi.Error, DBAPIError, OSError) as error:
                raise DisconnectionError("it does not answer") from error

    return see
