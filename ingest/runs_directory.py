"""Which project a run belongs to: the catalogue's word, remembered; else the header's.

A run resumed by its number from a process whose own project differs sends its rows under that other
name, where no reader would look. The catalogue knows better, when it knows the run. It is never
needed to accept rows: an unknown run, or a lost database, leaves the header's word standing.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol, TypeVar

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable

    from buffer.metrics import Metrics
    from schema.ids import RunId, TenantId

RUNS_MAX = 50_000
LOOKUP_SECONDS_MAX = 0.25
"""A request waits this long at most; with the database away only the first one does."""
LOOKUPS_MAX = 8
UNKNOWN_SECONDS = 10.0
"""A run that the catalogue does not have is asked for again after this: it may be made any time."""
OUTAGE_SECONDS = 5.0

V = TypeVar("V")

log = structlog.get_logger()


class RunStore(Protocol):
    """Where runs are kept: the catalogue, or a test's dict."""

    async def project_of(self, tenant: str, run_id: int) -> str | None:
        """Name of the run's project; None for no such run of that tenant. May raise anything."""
        ...


class RunsDirectory:
    """A bounded cache of (tenant, run) → project. A run never changes its project."""

    def __init__(
        self,
        runs: RunStore,
        metrics: Metrics,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runs = runs
        self._metrics = metrics
        self._monotonic = monotonic
        self._known: OrderedDict[tuple[str, int], str] = OrderedDict()
        self._unknown_until: OrderedDict[tuple[str, int], float] = OrderedDict()
        self._active: set[tuple[str, int]] = set()
        self._slots = asyncio.Semaphore(LOOKUPS_MAX)
        self._asked: dict[tuple[str, int], asyncio.Future[str | None]] = {}
        self._failed_at = float("-inf")
        self._is_away = False

    def known(self, tenant: str, run_id: int, header: str | None = None) -> str | None:
        """The project, where that takes no look-up; None where the catalogue has to be asked.

        Args:
            tenant: the key's organisation.
            run_id: of the request.
            header: the answer for a run that the catalogue did not know, or could not look up, a
                short while ago; without it those are None too.
        """
        key = (tenant, run_id)
        known = self._known.get(key)
        if known is not None:
            if len(self._active) < RUNS_MAX:
                self._active.add(key)
            return known
        if header is None:
            return None
        now = self._monotonic()
        if now - self._failed_at < OUTAGE_SECONDS or self._unknown_until.get(key, 0.0) > now:
            return header
        return None

    def learn(self, tenant: str, run_id: int, project: str) -> None:
        """Takes note of a run that was just made or resumed here: its rows are next."""
        key = (tenant, run_id)
        self._unknown_until.pop(key, None)
        _put(self._known, key, project)

    def take_active(self) -> set[tuple[str, int]]:
        """The runs that rows came for since the last call: known ones of this catalogue."""
        active, self._active = self._active, set()
        return active

    async def project(self, tenant: TenantId, run_id: RunId, header: str) -> str:
        """The project that rows of this run go to; `header` where the catalogue does not say."""
        settled = self.known(tenant, run_id, header)
        if settled is not None:
            return settled
        key = (tenant, run_id)
        asked = self._asked.get(key)
        if asked is None:  # a burst of requests of one run asks once
            asked = self._asked[key] = asyncio.ensure_future(self._look_up(key))
            asked.add_done_callback(lambda _done: self._asked.pop(key))
        # Whoever hangs up takes the answer from nobody else.
        return await asyncio.shield(asked) or header

    async def _look_up(self, key: tuple[str, int]) -> str | None:
        """The catalogue's word; None where it has none, or does not answer."""
        try:
            async with asyncio.timeout(LOOKUP_SECONDS_MAX), self._slots:
                known = await self._runs.project_of(*key)
        except Exception as error:  # noqa: BLE001 - rows are accepted whatever the catalogue does
            if not self._is_away:
                log.warning("run_lookup_failed", reason=type(error).__name__)
            self._is_away = True
            self._failed_at = self._monotonic()
            self._metrics.count("run_lookup_failures")
            return None
        if self._is_away:
            log.info("run_lookup_back")
        self._is_away = False
        if known is None:
            _put(self._unknown_until, key, self._monotonic() + UNKNOWN_SECONDS)
        else:
            self._active.add(key)
            _put(self._known, key, known)
        return known


def _put(cache: OrderedDict[tuple[str, int], V], key: tuple[str, int], value: V) -> None:
    """Add, and drop the oldest entry above the bound."""
    cache[key] = value
    if len(cache) > RUNS_MAX:
        cache.popitem(last=False)
