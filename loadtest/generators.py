"""Starting the processes that send a plan, and adding up what they recorded."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from loadtest.recording import Recording
from loadtest.throwaway import TREE

if TYPE_CHECKING:
    from loadtest.scenarios import Plan

NAMES = ("locust", "sockets")
SLACK_SECONDS = 90
"""Past the schedule's end: the start of locust, and the last answers."""


class GeneratorFailed(RuntimeError):
    """A generator is not there, or ended without a result; holds the end of what it said."""


def check(generator: str) -> None:
    """Raises GeneratorFailed: the generator is not installed."""
    if generator == "locust" and importlib.util.find_spec("locust") is None:
        raise GeneratorFailed(
            "locust is not installed: pip install locust; or GENERATOR=sockets, which needs nothing"
        )


def send(plan: Plan, generator: str, *, is_quiet: bool = False) -> Recording:
    """Send all of a plan from processes of their own; what they saw.

    Args:
        plan: whose `generators` says how many processes.
        generator: one of `NAMES`.
        is_quiet: progress is not shown.

    Raises:
        GeneratorFailed: there is no result.
    """
    check(generator)
    with tempfile.TemporaryDirectory(prefix="charon-load-") as name:
        directory = Path(name)
        (directory / "plan.json").write_text(json.dumps(plan.to_json()))
        commands = _sockets(plan, directory) if generator == "sockets" else _locust(plan)
        environment = {
            **os.environ,
            "LOADTEST_PLAN": str(directory / "plan.json"),
            "LOADTEST_RESULT": str(directory / "result-0.json"),
            "PYTHONPATH": str(TREE),
            "PYTHONWARNINGS": "ignore",
        }
        log_path = directory / "log"
        with log_path.open("wb") as log:
            processes = [
                subprocess.Popen(
                    command,
                    env=environment,
                    cwd=TREE,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log if is_quiet or number else None,
                )
                for number, command in enumerate(commands)
            ]
        try:
            for process in processes:
                process.wait(timeout=plan.seconds + 2 * SLACK_SECONDS)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        recording = Recording(is_own=False)
        for number in range(len(commands)):
            result = directory / f"result-{number}.json"
            if not result.exists():
                said = log_path.read_text(errors="replace")[-2_000:]
                raise GeneratorFailed(f"{generator} gave no figures: {said}")
            recording.merge(json.loads(result.read_text()))
        return recording


def _sockets(plan: Plan, directory: Path) -> list[list[str]]:
    return [
        [
            *(sys.executable, "-m", "loadtest.sockets"),
            *(str(directory / "plan.json"), str(directory / f"result-{index}.json"), str(index)),
        ]
        for index in range(plan.generators)
    ]


def _locust(plan: Plan) -> list[list[str]]:
    several = ["--processes", str(plan.generators)] if plan.generators > 1 else []
    users = str(max(plan.connections, plan.generators))
    return [
        [
            *(sys.executable, "-m", "locust", "-f", str(TREE / "loadtest" / "locustfile.py")),
            *("--headless", "--only-summary", "--host", plan.url, "-u", users, "-r", users),
            *("--run-time", f"{int(plan.seconds) + SLACK_SECONDS}s", "--stop-timeout", "10"),
            *("--skip-log-setup", "--exit-code-on-error", "0", *several),
        ]
    ]
