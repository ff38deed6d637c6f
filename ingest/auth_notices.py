"""Listens for changed keys, so that a revocation takes effect at once where Postgres can tell.

What it misses, the round that looks keys in use up again finds within two seconds.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from catalog.addresses import parse_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from ingest.settings import Settings

RECONNECT_SECONDS = 1.0

log = structlog.get_logger()


class KeyNotices:
    """One connection of its own, made anew whenever it is lost.

    Args:
        url: of the catalogue's Postgres, past any pooler.
        changed: called when a key has changed, or may have.
    """

    def __init__(self, url: str, changed: Callable[[], None]) -> None:
        self._url = url
        self._changed = changed
        self._is_lost = False

    async def run(self) -> None:
        """Listen until cancelled."""
        from catalog.keys_notices import listen  # noqa: PLC0415 - its driver is for Postgres alone

        while True:
            try:
                await listen(self._url, self._heard)
            except OSError as error:
                if not self._is_lost:
                    log.warning("key_notices_lost", reason=type(error).__name__)
                self._is_lost = True
            await asyncio.sleep(RECONNECT_SECONDS)

    def _heard(self) -> None:
        if self._is_lost:
            log.info("key_notices_back")
        self._is_lost = False
        self._changed()


def notices_url(settings: Settings) -> str | None:
    """Where to listen; None where nobody tells: SQLite, or another product's table."""
    if settings.role != "all" or settings.database_url is None:
        return None
    url = (settings.database_direct_url or settings.database_url).get_secret_value()
    return url if parse_url(url).get_backend_name() == "postgresql" else None
