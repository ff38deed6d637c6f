"""An event loop whose time jumps, and whose threads are coroutines of its own.

Nothing runs at the same time as anything else, and nothing waits: when no callback is ready, time
leaps to the next timer. ``run_in_executor`` starts a *job*, a greenlet: at each call of the storage
layer it lets go for a seeded while (`pause`), so that another thread, the loop or a crash gets its
turn in the midst of a commit, as on a real machine. Which executor a job was given to is respected:
one of one thread runs its jobs one after the other.

Every task and job belongs to the `Process` in whose context it was made. `Process.kill` ends a
process between two steps: nothing that it does afterwards reaches disk, server or client.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import ContextVar
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]

from tests.fakes.disk import Crash

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import ThreadPoolExecutor
    from contextvars import Context
    from random import Random

START_SECONDS = 1_000.0
REAP_ROUNDS_MAX = 200


class Stuck(Exception):
    """Nothing is ready and no timer runs: something waits for what nobody will ever do."""


class Process:
    """A worker's process: what runs in its context lives and dies with it."""

    current: ContextVar[Process | None] = ContextVar("process", default=None)

    def __init__(self, loop: SimLoop, name: str) -> None:
        self._loop = loop
        self.name = name
        self.is_alive = True
        self.died: asyncio.Future[None] = loop.create_future()
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.jobs: dict[Job, None] = {}
        self.on_death: list[Callable[[], None]] = []

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Runs a coroutine as a task of this process."""
        before = Process.current.set(self)
        try:
            return self._loop.create_task(coroutine)
        finally:
            Process.current.reset(before)

    def check(self) -> None:
        """Ends what belongs to a process that is dead."""
        if not self.is_alive:
            raise Crash

    def kill(self) -> None:
        """kill -9, from this instant on."""
        if not self.is_alive:
            return
        self.is_alive = False
        for action in self.on_death:
            action()
        self.died.set_result(None)
        self._loop.call_soon(self._reap, REAP_ROUNDS_MAX)

    def _reap(self, rounds: int) -> None:
        for job in list(self.jobs):
            job.drop()
        tasks = list(self.tasks)
        assert rounds, f"{self.name}: tasks that outlive their process: {tasks}"
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.call_soon(self._reap, rounds - 1)


class Job:
    """One call on a thread."""

    def __init__(
        self, loop: SimLoop, process: Process | None, call: Callable[[], Any], ended: Any
    ) -> None:
        self._loop = loop
        self._process = process
        self._call = call
        self._ended = ended
        self._greenlet: greenlet | None = None
        self.future: asyncio.Future[Any] = loop.create_future()
        if process is not None:
            process.jobs[self] = None

    def begin(self) -> None:
        if self.future.done():  # cancelled before its turn
            self._end()
            return
        self._greenlet = greenlet(self._body)
        self._go_on()

    def drop(self) -> None:
        """The process is dead: the call ends where it stands."""
        if self._greenlet is None or self._greenlet.dead:
            if not self.future.done():
                self.future.set_exception(Crash())
            self._end()
        else:
            self._greenlet.throw(Crash)

    def resume(self) -> None:
        if self._greenlet is not None and not self._greenlet.dead:
            self._go_on()

    def _go_on(self) -> None:
        assert self._greenlet is not None
        if self._process is not None and not self._process.is_alive:
            self._greenlet.throw(Crash)
        else:
            self._greenlet.switch()

    def _body(self) -> None:
        _JOBS[getcurrent()] = self
        result: Any = None
        error: BaseException | None = None
        try:
            result = self._call()
        except BaseException as caught:
            error = caught
        del _JOBS[getcurrent()]
        if not self.future.done():
            if error is None:
                self.future.set_result(result)
            else:
                self.future.set_exception(error)
        self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.jobs.pop(self, None)
        ended, self._ended = self._ended, None
        if ended is not None:
            ended()


_JOBS: dict[greenlet, Job] = {}


def is_in_job() -> bool:
    """Whether this is a thread's code, and may wait."""
    return getcurrent() in _JOBS


class SimLoop(asyncio.BaseEventLoop):
    """The loop. ``random`` decides how long threads take to begin and to go on."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self.random = random
        self.steps = 0
        self.faults: list[str] = []
        self._now = START_SECONDS
        self._clock_resolution = 1e-9
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_count = 0
        self._lanes: dict[ThreadPoolExecutor, deque[Job]] = {}
        self.set_task_factory(_make_task)
        self.set_exception_handler(_note)

    def time(self) -> float:
        return self._now

    def run_in_executor(  # type: ignore[override]
        self, executor: ThreadPoolExecutor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        process = Process.current.get()
        if process is not None:
            process.check()
        if executor is not None and executor._shutdown:
            raise RuntimeError("cannot schedule new futures after shutdown")

        def call() -> Any:
            return func(*args)

        if executor is None:
            job = Job(self, process, call, None)
            self._start(job)
            return job.future
        lane = self._lanes.setdefault(executor, deque())
        job = Job(self, process, call, lambda: self._next(executor))
        lane.append(job)
        if len(lane) == 1:
            self._start(job)
        return job.future

    def pause(self, seconds: float) -> None:
        """A thread waits; anything may happen meanwhile."""
        job = _JOBS[getcurrent()]
        self.call_later(seconds, job.resume)
        parent = getcurrent().parent
        assert parent is not None
        parent.switch()

    def _start(self, job: Job) -> None:
        wait = self.random.random()
        self.call_later(wait * wait * 0.0005, job.begin)

    def _next(self, executor: ThreadPoolExecutor) -> None:
        lane = self._lanes[executor]
        lane.popleft()
        if lane:
            self._start(lane[0])
        else:
            del self._lanes[executor]

    # What asyncio's own do, without their checks, and with timers that compare as tuples: a run is
    # thousands of steps, and half of its time was spent in these.

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._timer_count += 1
        heappush(self._timers, (when, self._timer_count, timer))
        return timer

    def _run_once(self) -> None:
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        timers = self._timers
        self.steps += 1
        if not ready:
            while timers and timers[0][2]._cancelled:
                heappop(timers)
            if not timers:
                raise Stuck("nothing is ready, and no timer runs")
            self._now = max(self._now, timers[0][0])
        now = self._now
        while timers and timers[0][0] <= now:
            ready.append(heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _process_events(self, event_list: object) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


def _make_task(loop: Any, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
    process = Process.current.get()
    if process is not None:
        process.tasks[task] = None
        task.add_done_callback(lambda done: process.tasks.pop(done, None))
    return task


def _note(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """An error that nobody caught is a finding, but for what a dead process leaves behind."""
    assert isinstance(loop, SimLoop)
    error = context.get("exception")
    message = context["message"]
    if "never retrieved" in message or isinstance(error, Crash):
        return
    loop.faults.append(f"{message}: {error!r}")
