"""Locust's side: users that take their requests, and the times at which to send them, from a plan.

`loadtest.run` starts locust with LOADTEST_PLAN and LOADTEST_RESULT naming files. A master sends
the plan to its workers, so a worker on another machine needs nothing but this directory:
`python -m locust -f loadtest/locustfile.py --worker --master-host …`.

Locust's own pacing is not used: `constant_throughput` starts a late task at once and forgets how
late it was. Here a user takes the next slot of the schedule, waits until it is due, and reports
the time from then until the answer, to locust too.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent  # type: ignore[import-untyped]
from gevent.event import Event  # type: ignore[import-untyped]
from locust import FastHttpUser, constant, events, task
from locust.runners import MasterRunner, WorkerRunner

from loadtest.recording import Recording, error_of, progress
from loadtest.scenarios import Plan, Work

if TYPE_CHECKING:
    from locust.env import Environment

PROGRESS_SECONDS = 5.0


class _Generator:
    """This process's part of the run."""

    def __init__(self) -> None:
        self.recording = Recording()
        self.merged = Recording(is_own=False)
        """On a master: of all workers. By itself: of this process, as far as it was taken."""
        self.plan: Plan | None = None
        self.work: Work | None = None
        self.headers: list[dict[str, str]] = []
        self.start = 0.0
        self.go = Event()
        self.sent = 0
        self.ended = 0
        self.is_worker = False

    def now(self) -> float:
        return time.perf_counter() - self.start

    def begin(self, plan: Plan, index: int) -> None:
        self.plan, self.work = plan, Work(plan, index)
        self.headers = self.work.headers
        self.recording = Recording()

    def is_done(self) -> bool:
        return self.work is None and self.sent == self.ended


here = _Generator()


class Sender(FastHttpUser):
    """One connection that sends what is due."""

    wait_time = constant(0)
    network_timeout = 60.0
    connection_timeout = 10.0
    max_retries = 0
    """A repeat would be answered from the server's memory; a failure is counted as one."""

    def on_start(self) -> None:
        """Wait until all users are there."""
        here.go.wait()

    @task
    def send(self) -> None:
        """The next request of the schedule."""
        due = here.work.take() if here.work is not None else None
        if due is None:
            here.work = None
            gevent.sleep(0.2)
            return
        assert here.plan is not None
        here.sent += 1
        early = due.seconds - here.now()
        if early > 0:
            gevent.sleep(early)
        sent = here.now()
        with self.client.request(
            "POST",
            due.kind.path,
            data=due.body,  # type: ignore[arg-type]  # bytes are what it sends
            headers=here.headers[due.run],
            catch_response=True,
        ) as response:
            ended = here.now()
            response.request_meta["response_time"] = 1e3 * (ended - due.seconds)
            if response.status_code:
                rows = here.plan.shape.rows(due.kind)
                error = error_of(response.status_code, response.content or b"", rows)
            else:
                error = f"no answer: {type(response.error).__name__}"
            if error is None:
                response.success()
            else:
                response.failure(error)
        here.ended += 1
        here.recording.record(due, sent, ended, error)


def on_init(environment: Environment, **_: Any) -> None:  # noqa: ANN401 - locust's
    """Let a worker take its plan from the master."""
    if isinstance(environment.runner, WorkerRunner):
        here.is_worker = True
        environment.runner.register_message("plan", _on_plan)


def _on_plan(environment: Environment, msg: Any, **_: Any) -> None:  # noqa: ANN401 - locust's
    assert isinstance(environment.runner, WorkerRunner)
    here.begin(Plan.from_json(msg.data), environment.runner.worker_index)


def on_test_start(environment: Environment, **_: Any) -> None:  # noqa: ANN401 - locust's
    """Read the plan, where this process is not a worker; a master hands it on."""
    if isinstance(environment.runner, WorkerRunner):
        return
    plan = Plan.from_json(json.loads(Path(os.environ["LOADTEST_PLAN"]).read_text()))
    here.plan, here.start = plan, time.perf_counter()
    if isinstance(environment.runner, MasterRunner):
        environment.runner.send_message("plan", plan.to_json())
    else:
        here.begin(plan, 0)
    gevent.spawn(_watch, environment, plan)


def on_spawning_complete(**_: Any) -> None:  # noqa: ANN401 - locust's
    """All users are there: the schedule begins."""
    if not here.go.is_set():
        here.start = time.perf_counter()
        here.go.set()


def on_report(data: dict[str, Any], **_: Any) -> None:  # noqa: ANN401 - locust's
    """A worker tells what it recorded since it last did."""
    # Before the plan came there is nothing, and CPU would count from before the fork.
    data["recorded"] = here.recording.taken() if here.plan is not None else None
    data["is_done"] = here.go.is_set() and here.is_done()


_done_workers: set[str] = set()


def on_worker_report(client_id: str, data: dict[str, Any], **_: Any) -> None:  # noqa: ANN401
    """The master adds it up."""
    if data["recorded"] is not None:
        here.merged.merge(data["recorded"])
    if data["is_done"]:
        _done_workers.add(client_id)


def _watch(environment: Environment, plan: Plan) -> None:
    """Say how it goes, and end the run when everything is answered."""
    runner = environment.runner
    assert runner is not None
    is_master = isinstance(runner, MasterRunner)
    told = 0.0
    while True:
        gevent.sleep(0.2)
        is_done = len(_done_workers) >= plan.generators if is_master else here.is_done()
        if (here.go.is_set() or is_master) and is_done:
            break
        if here.now() - told >= PROGRESS_SECONDS:
            told = here.now()
            if not is_master:
                here.merged.merge(here.recording.taken())
            print(progress(here.merged, int(told), plan.slots), file=sys.stderr, flush=True)
    runner.quit()


def on_quit(**_: Any) -> None:  # noqa: ANN401 - locust's
    """Leave what was recorded where the command looks for it."""
    if here.plan is None or here.is_worker:
        return
    if here.work is not None or here.sent:
        here.merged.merge(here.recording.taken())
    Path(os.environ["LOADTEST_RESULT"]).write_text(json.dumps(here.merged.taken()))


# Not as decorators: locust gives them no types.
_LISTENERS: tuple[tuple[Any, Any], ...] = (
    (events.init, on_init),
    (events.test_start, on_test_start),
    (events.spawning_complete, on_spawning_complete),
    (events.report_to_master, on_report),
    (events.worker_report, on_worker_report),
    (events.quit, on_quit),
)
for _hook, _listener in _LISTENERS:
    _hook.add_listener(_listener)
