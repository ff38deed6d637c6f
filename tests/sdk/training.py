"""Training processes as users write them, run by the tests with the real SDK.

Arguments: a JSON object with `mode`, `notes` (a file) and what the mode needs. Each mode writes to
`notes` what the test has to know, line by line: some of the processes do not live to return.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

import pluto

PROJECT = "life-cycle"
SETTINGS = {
    "sync_process_flush_interval": 0.2,
    "disable_system_metrics": True,
    "x_sys_sampling_interval": 1,  # seconds between two heartbeats; 4 where nobody waits for a test
}


class Notes:
    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def add(self, name: str, run: pluto.Op, **more: object) -> None:
        line = {"name": name, "run_id": int(run.id), "resumed": bool(run.resumed), **more}
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def init(**given) -> pluto.Op:
    return pluto.init(**{"project": PROJECT, "settings": dict(SETTINGS)} | given)


def log(run: pluto.Op, steps: range) -> None:
    for step in steps:
        run.log({"train/loss": step / 8}, step=step)


def life(notes: Notes) -> None:
    """One run's whole life: made, ended, and resumed in three ways, twice from another project."""
    run = init(
        name="first",
        run_id="ext-life",
        config={"lr": 0.1, "opt": {"name": "adam"}},
        tags=["one", "two"],
    )
    log(run, range(1, 6))
    run.update_config({"opt": {"beta": 0.9}, "late": True})
    run.update_config({"lr": 0.2, "scores": [float("nan"), None]})
    run.add_tags("three")
    run.remove_tags("one")
    run.alert(title="loss is odd", message="look at it", level="WARN", wait=0)
    run.finish()
    notes.add("create", run)
    display_id = run.settings._display_id
    for name, step, given in (
        ("number", 6, {"project": "elsewhere", "run_id": str(run.id)}),
        ("display id", 7, {"project": "elsewhere", "run_id": display_id}),
        ("external id", 8, {"run_id": "ext-life", "resume": True}),
    ):
        again = init(**given)
        log(again, range(step, step + 1))
        again.finish()
        notes.add(name, again, display_id=display_id)
    try:
        init(run_id="ext-life")
    except Exception as error:
        notes.add("without resume", run, error=type(error).__name__)


def forks(notes: Notes, parent: int) -> None:
    """A fork, a fork of it before its own step, and one after it."""
    fork = init(
        name="fork",
        fork_run_id=parent,
        fork_step=4,
        config={"opt": {"name": "sgd"}},
        inherit_tags=True,
        tags="forked",
    )
    log(fork, range(5, 9))
    fork.finish()
    notes.add("fork", fork)
    for name, step, which in (
        ("fork of fork, before", 3, int(fork.id)),
        ("fork of fork, after", 7, fork.settings._display_id),
    ):
        second = init(name=name, fork_run_id=which, fork_step=step)
        log(second, range(step + 1, step + 2))
        second.finish()
        notes.add(name, second)


def ends(notes: Notes) -> None:
    """A run that says it failed, and one that is left open."""
    failed = init(name="code 1")
    log(failed, range(1, 2))
    failed.finish(code=1)
    notes.add("finish(code=1)", failed)
    left = init(name="left open")
    log(left, range(1, 3))
    left.close()
    notes.add("close()", left)


def rank(notes: Notes, number: int) -> None:
    """One of several processes of one run, its id from the environment; the last one fails."""
    run = init(name="ranks")
    for step in range(1, 21):
        run.log({f"rank{number}/loss": step * 10 + number}, step=step)
    notes.add(f"rank {number}", run)
    if number == 2:
        raise RuntimeError("out of memory")
    run.finish()


def wait(notes: Notes, what: str) -> None:
    """Trains until somebody stops it."""
    run = init(name=what)
    log(run, range(1, 4))
    notes.add(what, run)
    for step in range(4, 10_000):
        time.sleep(0.1)
        if what == "cancel":
            log(run, range(step, step + 1))


def crash(notes: Notes) -> None:
    """Ends with an exception that nobody catches."""
    run = init(name="crash")
    log(run, range(1, 4))
    notes.add("crash", run)
    raise RuntimeError("the loss is NaN")


def main() -> None:
    arguments = json.loads(sys.argv[1])
    mode, notes = arguments.pop("mode"), Notes(arguments.pop("notes"))
    modes = {each.__name__: each for each in (life, forks, ends, rank, wait, crash)}
    modes[mode](notes, **arguments)


if __name__ == "__main__":
    # Whoever runs the tests in a shell's background hands down an interrupt that is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
