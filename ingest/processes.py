"""Child processes: started by exec, watched by their heartbeat, restarted with backoff.

`ingest.lifeline` is the other side, and tells what goes through the pipes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LINE_BYTES_MAX = 1 << 16
RESTART_SECONDS_FIRST = 0.25
RESTART_SECONDS_MAX = 10.0
"""Longest wait between two starts: what broke a child is often mended by someone meanwhile."""
STEADY_SECONDS = 30.0
"""A child that served this long has recovered: its next death is followed by a start at once."""


@dataclass(frozen=True, slots=True)
class Program:
    """What is to be kept running.

    Attributes:
        name: for people: `worker 0`, `ClickHouse`.
        command: the argument list; the first is looked up in PATH.
        config: gives the configuration for each start; secrets in it travel through the pipe alone.
        stop_seconds_max: from SIGTERM to SIGKILL.
        beat_seconds_max: a child whose last beat is older is killed: it would hold its share of
            connections and answer none.
        start_seconds_max: a child that is not ready by then is killed and started anew.
    """

    name: str
    command: tuple[str, ...]
    config: Callable[[], Mapping[str, Any]]
    stop_seconds_max: float
    beat_seconds_max: float
    start_seconds_max: float = 600.0


@dataclass(slots=True)
class Child:
    """One process, from start to end. Made by `start`."""

    program: Program
    process: asyncio.subprocess.Process
    is_ready: asyncio.Event = field(default_factory=asyncio.Event)
    details: dict[str, Any] = field(default_factory=dict)
    last_beat: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    started: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    @classmethod
    async def start(cls, program: Program) -> Child:
        """Start it and hand it its configuration; it is not ready yet.

        Raises:
            OSError: the program cannot be started.

        Cancellation: no process is left.
        """
        process = await asyncio.create_subprocess_exec(
            *program.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
            env=_environment(),
            # Ctrl-C goes to the whole foreground group; the order of stopping is the supervisor's.
            process_group=0,
        )
        child = cls(program, process)
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(program.config()).encode() + b"\n")
            with contextlib.suppress(ConnectionError):  # it has ended; its exit status says more
                await process.stdin.drain()
        except BaseException:
            await _kill(process)
            raise
        return child

    @property
    def pid(self) -> int:
        """Its process id; of a process that may have ended."""
        return self.process.pid

    async def listen(self) -> int:
        """Take its words until it ends.

        Returns:
            The exit status; below 0 the signal that ended it.
        """
        assert self.process.stdout is not None
        while True:
            try:
                line = await self.process.stdout.readline()
            except ValueError:  # a line over the limit is no word of the protocol
                continue
            if not line:
                break
            self._hear(line.decode(errors="replace").rstrip("\n"))
        return await self.process.wait()

    def signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def stop(self) -> None:
        """Ask it to end, and kill it when it takes longer than its program allows.

        Cancellation: it is killed.
        """
        self.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(self.program.stop_seconds_max):
                await self.process.wait()
        except BaseException as error:
            self.signal(signal.SIGKILL)
            if not isinstance(error, TimeoutError):
                raise
            await self.process.wait()

    def _hear(self, line: str) -> None:
        self.last_beat = asyncio.get_running_loop().time()
        word, _, rest = line.partition(" ")
        if word == "ready":
            with contextlib.suppress(ValueError):
                self.details = json.loads(rest)
            self.is_ready.set()
        elif word != "beat":
            print(f"{self.program.name}: {line}", file=sys.stderr)


class TaskFailed(Exception):
    """A process that had one thing to do could not do it; says why."""


async def run_once(command: tuple[str, ...], config: Mapping[str, Any]) -> dict[str, Any]:
    """Run a process that does one thing, and wait for it.

    So the supervisor itself loads no database and no web library, and stays small.

    Returns:
        The JSON object that the process printed.

    Raises:
        TaskFailed: it said why in `error`, or ended in another way.

    Cancellation: the process is killed.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=_environment(),
            process_group=0,
        )
    except OSError as error:
        raise TaskFailed(f"{command[0]} cannot be started: {error.strerror}") from error
    try:
        output, _ = await process.communicate(json.dumps(config).encode() + b"\n")
    except BaseException:
        await _kill(process)
        raise
    try:
        result = json.loads(output)
    except ValueError:
        result = None
    if not isinstance(result, dict):
        raise TaskFailed(f"{command[-1]} ended with status {process.returncode}; the log says more")
    if "error" in result:
        raise TaskFailed(str(result["error"]))
    return result


async def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill it, and see that nothing of it is left: open pipes complain when the loop is closed."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    if process.stdin is not None:
        process.stdin.close()
    await process.communicate()


class Backoff:
    """How long to wait before the next start: not at all at first, then longer each time."""

    def __init__(self) -> None:
        self._failures = 0

    def served(self, seconds: float) -> None:
        """Note for how long the child was ready before it ended."""
        if seconds >= STEADY_SECONDS:
            self._failures = 0

    def next_seconds(self) -> float:
        """The wait, in seconds; each call counts as one more failure."""
        self._failures += 1
        if self._failures == 1:
            return 0.0
        return min(RESTART_SECONDS_MAX, RESTART_SECONDS_FIRST * 2.0 ** min(self._failures - 2, 16))


def python(module: str) -> tuple[str, ...]:
    """The command that runs one of our modules in a process of its own.

    `-P` keeps the working directory out of the import path: a directory named `schema` where
    somebody happens to start the server must not be imported.
    """
    return (sys.executable, "-P", "-m", module)


def _environment() -> dict[str, str]:
    # The child imports from the same tree as we do, installed or not.
    tree = str(Path(__file__).resolve().parent.parent)
    paths = [tree, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
