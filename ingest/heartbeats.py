"""Heartbeats: thousands of runs ask every 4 s whether they may go on; memory answers.

A run that beats is remembered with its status. Every `CYCLE_SECONDS` one statement asks the
catalogue which of all those runs do not just go on (ended, cancelled, or asked to stop: then the
request is carried out here), and one notes when they were heard of. So a cancellation is seen
within a cycle and a beat, nobody waits for a write, and with the catalogue away the last word
stands, for `OUTAGE_SECONDS_MAX`.

CANCELLED is never told from memory: it makes the process exit, and a run may have been resumed
elsewhere since. Such a run is forgotten, and its next beat asks the catalogue.

Rows that arrive are signs of life too (`RunsDirectory` tells for which runs), noted alike.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

import structlog

from catalog.errors import CatalogFailure, NotFound, Unavailable
from catalog.heartbeats import RUNS_MAX as STATEMENT_RUNS_MAX
from catalog.statuses import Status

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from buffer.metrics import Metrics
    from catalog.heartbeats import RunState

CYCLE_SECONDS = 2.0
LOOK_SECONDS_MAX = 2.0
"""A first beat waits so long for the catalogue; the client gives up after 5 s, and asks again."""
NOTE_SECONDS = 20.0
"""A run that goes on beating is written down this often; those who judge silence wait 150 s."""
IDLE_SECONDS = 60.0
"""A run that has not beaten for so long is forgotten."""
OUTAGE_SECONDS_MAX = 900.0
"""The last known status is told for so long without a word from the catalogue."""
RUNS_MAX = 50_000
"""Remembered, about 400 B each; past it the one that was learned first goes."""
WAITING_MAX = 20_000
"""First beats that may wait for the catalogue at once."""
UNKNOWN_SECONDS = 2.0
UNKNOWN_MAX = 10_000

Key = tuple[str, int]
"""Tenant and run."""

_UNREADABLE = "the run's status cannot be read now; try again"

log = structlog.get_logger()


class SignsOfLife(Protocol):
    """The catalogue's side; see `catalog.heartbeats`."""

    async def states(self, run_ids: Iterable[int]) -> list[RunState]:
        """Of those that exist."""
        ...

    async def notable(self, run_ids: Iterable[int]) -> list[RunState]:
        """Those that do not just go on."""
        ...

    async def note_beats(self, seen_at_ms: Mapping[int, int]) -> None:
        """When they were heard of."""
        ...

    async def note_rows(self, received_at_ms: Mapping[int, int]) -> None:
        """When rows of theirs came."""
        ...


class _Run:
    """A run that beats here; times are monotonic seconds."""

    __slots__ = ("beat_at", "noted_at", "read_at", "status")

    def __init__(self, status: Status, now: float) -> None:
        self.status = status
        self.read_at = now
        self.beat_at = float("-inf")
        self.noted_at = float("-inf")


class HeartbeatBoard:
    """One worker's memory of the runs that beat at it. `run` is to be a task while it is used.

    Args:
        signs: the catalogue's, asked and told in the background.
        carry_out: cancels a run that is to stop, and gives its status.
        rows_came: the runs that rows came for since it was last called.
        metrics: counts failures.
        note_seconds: how often a run that goes on beating is written down.
        wall_ms, monotonic: clocks.
    """

    def __init__(
        self,
        signs: SignsOfLife,
        carry_out: Callable[[int], Awaitable[Status]],
        rows_came: Callable[[], set[Key]],
        metrics: Metrics,
        *,
        note_seconds: float = NOTE_SECONDS,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._signs = signs
        self._carry_out = carry_out
        self._rows_came = rows_came
        self._metrics = metrics
        self._note_seconds = note_seconds
        self._wall_ms = wall_ms
        self._monotonic = monotonic
        self._runs: dict[Key, _Run] = {}
        self._read_at = float("-inf")
        """When all of them were last compared with the catalogue."""
        self._unknown_until: dict[Key, float] = {}
        self._waiting: dict[Key, asyncio.Future[Status | CatalogFailure | None]] = {}
        self._is_wanted = asyncio.Event()
        self._rows: dict[Key, float] = {}
        """Runs that rows came for, and when; not yet noted."""
        self._rows_noted: dict[int, float] = {}
        self._is_away = False

    @property
    def is_away(self) -> bool:
        """Whether the catalogue could not be told or asked the last time."""
        return self._is_away

    def known(self, tenant: str, run_id: int) -> Status | None:
        """Takes note of a beat, and gives the run's status; None where `beat` has to be awaited."""
        run = self._runs.get((tenant, run_id))
        if run is None:
            return None
        now = self._monotonic()
        if now - self._read_at > OUTAGE_SECONDS_MAX and now - run.read_at > OUTAGE_SECONDS_MAX:
            return None
        run.beat_at = now
        return run.status

    async def beat(self, tenant: str, run_id: int) -> Status:
        """Takes note of a beat, and gives the run's status.

        Raises:
            NotFound: the tenant has no such run. Unavailable: the run is not known here, and the
            catalogue does not answer.
        """
        status = self.known(tenant, run_id)
        if status is not None:
            return status
        key = (tenant, run_id)
        if self._unknown_until.get(key, 0.0) > self._monotonic():
            raise NotFound("Run not found")
        asked = self._waiting.get(key)
        if asked is None:
            if len(self._waiting) >= WAITING_MAX:
                raise Unavailable("too many runs wait for the catalogue; try again")
            asked = self._waiting[key] = asyncio.get_running_loop().create_future()
            self._is_wanted.set()
        try:
            async with asyncio.timeout(LOOK_SECONDS_MAX):
                answer = await asyncio.shield(asked)
        except TimeoutError:
            raise Unavailable(_UNREADABLE) from None
        if isinstance(answer, CatalogFailure):
            raise Unavailable(_UNREADABLE) from answer
        if answer is None:
            raise NotFound("Run not found")
        self.known(tenant, run_id)  # it beat
        return answer

    def forget(self, tenant: str, run_id: int) -> None:
        """Lets the next beat ask the catalogue: the run's status was just changed."""
        self._runs.pop((tenant, run_id), None)

    def learn(self, tenant: str, run_id: int, status: Status) -> None:
        """Takes note of a status that was just read or written here: the run's beats are next."""
        key = (tenant, run_id)
        self._unknown_until.pop(key, None)
        if status is Status.CANCELLED:
            self._runs.pop(key, None)
            return
        run = self._runs.get(key)
        if run is not None:
            run.status = status
            return
        while len(self._runs) >= RUNS_MAX:
            del self._runs[next(iter(self._runs))]
        self._runs[key] = _Run(status, self._monotonic())

    def heard_ms(self, run_id: int, tenant: str) -> int | None:
        """When the run beat here last, by the wall clock."""
        run = self._runs.get((tenant, run_id))
        return None if run is None or run.beat_at < 0 else self._wall_of(run.beat_at)

    async def run(self) -> None:
        """Ask and tell the catalogue until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look_for_ever(), name="heartbeat_looks")
            group.create_task(self._cycle_for_ever(), name="heartbeat_cycles")

    async def cycle(self) -> None:
        """Compare all runs with the catalogue, and tell it who was heard of, once.

        Raises:
            Unavailable: what could not be told is told the next time.
        """
        now = self._monotonic()
        self._gather_rows(now)
        self._forget_idle(now)
        due = self._due(now)  # before runs that are cancelled are forgotten
        keys = list(self._runs)
        for start in range(0, len(keys), STATEMENT_RUNS_MAX):
            await self._compare(keys[start : start + STATEMENT_RUNS_MAX])
        self._read_at = now
        await self._tell_beats(due, now)
        await self._tell_rows(now)

    async def close(self) -> None:
        """Tell the catalogue a last time, if it listens."""
        try:
            await self.cycle()
        except CatalogFailure as error:
            log.warning("heartbeats_not_noted", reason=type(error).__name__)

    async def _look_for_ever(self) -> None:
        while True:
            await self._is_wanted.wait()
            self._is_wanted.clear()
            await self._look()

    async def _look(self) -> None:
        """All first beats that wait, in one statement; those that come meanwhile in the next."""
        waiting, self._waiting = self._waiting, {}
        keys = list(waiting)
        for start in range(0, len(keys), STATEMENT_RUNS_MAX):
            part = keys[start : start + STATEMENT_RUNS_MAX]
            try:
                states = await self._signs.states({run_id for _, run_id in part})
            except CatalogFailure as error:
                self._failed(error)
                for key in part:
                    waiting[key].set_result(error)
                continue
            found = {(state.tenant, state.run_id): state.status for state in states}
            for key in part:
                status = found.get(key)
                if status is None:
                    self._put_unknown(key)
                else:
                    self.learn(*key, status)
                waiting[key].set_result(status)

    def _put_unknown(self, key: Key) -> None:
        while len(self._unknown_until) >= UNKNOWN_MAX:
            del self._unknown_until[next(iter(self._unknown_until))]
        self._unknown_until[key] = self._monotonic() + UNKNOWN_SECONDS

    async def _cycle_for_ever(self) -> None:
        while True:
            try:
                await self.cycle()
            except CatalogFailure as error:
                self._failed(error)
            else:
                if self._is_away:
                    log.info("heartbeats_back")
                self._is_away = False
            await asyncio.sleep(CYCLE_SECONDS)

    async def _compare(self, keys: list[Key]) -> None:
        notable = {
            (state.tenant, state.run_id): state
            for state in await self._signs.notable({run_id for _, run_id in keys})
        }
        for key in keys:
            run = self._runs.get(key)
            state = notable.get(key)
            if state is None:
                if run is not None:
                    run.status = Status.RUNNING
                continue
            status = state.status
            if state.is_cancel_asked:
                status = await self._carry_out(key[1])
                self._metrics.count("runs_cancelled", status is Status.CANCELLED)
                log.info("run_cancelled", run_id=key[1], status=status.value)
            if key in self._runs:
                self.learn(*key, status)

    def _due(self, now: float) -> list[tuple[int, _Run]]:
        return [
            (key[1], run)
            for key, run in self._runs.items()
            if run.beat_at > run.noted_at and now - run.noted_at >= self._note_seconds
        ]

    async def _tell_beats(self, due: list[tuple[int, _Run]], now: float) -> None:
        for start in range(0, len(due), STATEMENT_RUNS_MAX):
            part = due[start : start + STATEMENT_RUNS_MAX]
            await self._signs.note_beats(
                {run_id: self._wall_of(run.beat_at) for run_id, run in part}
            )
            for _, run in part:
                run.noted_at = now

    def _gather_rows(self, now: float) -> None:
        self._rows |= dict.fromkeys(self._rows_came(), now)
        while len(self._rows) > RUNS_MAX:
            del self._rows[next(iter(self._rows))]

    async def _tell_rows(self, now: float) -> None:
        self._rows_noted = {
            run_id: at for run_id, at in self._rows_noted.items() if now - at < self._note_seconds
        }
        due = [key for key in self._rows if key[1] not in self._rows_noted]
        for start in range(0, len(due), STATEMENT_RUNS_MAX):
            part = due[start : start + STATEMENT_RUNS_MAX]
            await self._signs.note_rows({key[1]: self._wall_of(self._rows[key]) for key in part})
            for key in part:
                del self._rows[key]
                self._rows_noted[key[1]] = now

    def _forget_idle(self, now: float) -> None:
        for key in [
            key
            for key, run in self._runs.items()
            if now - max(run.beat_at, run.read_at) > IDLE_SECONDS
            and (run.beat_at <= run.noted_at or now - run.beat_at > OUTAGE_SECONDS_MAX)
        ]:
            del self._runs[key]
        for key in [key for key, until in self._unknown_until.items() if until < now]:
            del self._unknown_until[key]

    def _wall_of(self, at: float) -> int:
        """A moment of the monotonic clock by the wall's, whatever jumped in between."""
        return self._wall_ms() - int((self._monotonic() - at) * 1_000)

    def _failed(self, error: CatalogFailure) -> None:
        self._metrics.count("heartbeat_failures")
        if not self._is_away:
            self._is_away = True
            log.warning("heartbeats_not_noted", reason=type(error).__name__)
