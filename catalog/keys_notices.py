"""Word of changed keys, as Postgres sends it when a transaction that changed one commits."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, NoReturn

from catalog.addresses import parse_url
from catalog.postgres import DRIVER_ERRORS, connect

if TYPE_CHECKING:
    from collections.abc import Callable

CHANNEL = "charon_keys"
CHECK_SECONDS = 10.0
"""A connection that was lost without a word is noticed so soon."""
ANSWER_SECONDS_MAX = 5.0


async def listen(url: str, changed: Callable[[], None]) -> NoReturn:
    """Call `changed` at each change of a key, and once at the start, for what came before.

    Args:
        url: past a pooler in transaction mode: through one, nothing would ever be heard.
        changed: called in this task's event loop; it must not raise.

    Raises:
        OSError: the connection cannot be had, or is lost.
    Cancellation: at any point; the connection is closed.
    """
    connection = await connect(parse_url(url))
    lost = asyncio.Event()
    try:
        connection.add_termination_listener(lambda _connection: lost.set())
        await connection.add_listener(CHANNEL, lambda *_notice: changed())
        changed()
        while not lost.is_set():
            try:
                async with asyncio.timeout(CHECK_SECONDS):
                    await lost.wait()
            except TimeoutError:
                await connection.execute("SELECT 1", timeout=ANSWER_SECONDS_MAX)
        raise ConnectionError("Postgres has closed the connection")
    except DRIVER_ERRORS as error:
        raise OSError(f"notices of keys: {type(error).__name__}") from error
    finally:
        connection.terminate()


async def is_heard(listening_url: str, catalogue_url: str, seconds_max: float = 2.0) -> bool:
    """Whether what is told through one address is heard at the other; a pooler may stand between.

    Running servers look their keys up once more for it, and nothing else happens.

    Raises:
        OSError: one of the two connections cannot be had.
    """
    listener = await connect(parse_url(listening_url))
    try:
        teller = await connect(parse_url(catalogue_url))
        try:
            word = secrets.token_hex(8)
            heard = asyncio.Event()

            def hear(*notice: object) -> None:
                if notice[-1] == word:
                    heard.set()

            await listener.add_listener(CHANNEL, hear)
            await teller.execute("SELECT pg_notify($1, $2)", CHANNEL, word)
            async with asyncio.timeout(seconds_max):
                await heard.wait()
        except TimeoutError:
            return False
        else:
            return True
        finally:
            teller.terminate()
    except DRIVER_ERRORS as error:
        raise OSError(f"notices of keys: {type(error).__name__}") from error
    finally:
        listener.terminate()
