"""Goal: a token noted for a part that never came into place costs no row (F20's worst kind).

Method: on a table that is not replicated the engine notes an insert's token before it renames the
new part into place. Random kills do not hit that window, so strace does: it kills the engine at the
system call, or makes the call fail with ENOSPC. A retry under the same token would be a 200 that
stores nothing; the batch column shows that the block is absent, and it is sent under another.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import urllib.error
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.chaos.house import drained, metric
from tests.chaos.load import Load, eventually
from tests.chaos.test_kills import asked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loadtest.throwaway import Server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed"),
]

RENAMES = "rename,renameat,renameat2"
NEW_PART = "tmp_insert"
"""In the name of a part that is not in place yet."""


@contextlib.contextmanager
def injected(pid: int, fault: str, told: Path) -> Iterator[None]:
    """Every rename of that process meets the fault; skips the test where tracing is refused."""
    said = told.with_suffix(".err")
    with said.open("w") as errors:
        tracer = subprocess.Popen(
            [
                *("strace", "-f", "-qq", "-p", str(pid), "-o", str(told), "-s", "400"),
                *("-e", f"trace={RENAMES}", "-e", f"inject={RENAMES}:{fault}"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
    try:
        eventually(lambda: tracer.poll() is not None or _is_traced(pid), 10, "strace at work")
        if tracer.poll() is not None:
            pytest.skip(f"tracing is refused: {said.read_text().strip()}")
        yield
    finally:
        _end(tracer)


def _end(tracer: subprocess.Popen) -> None:
    """Let the engine go; a tracer that waits for a thread of a dead process is killed."""
    for number in (signal.SIGINT, signal.SIGKILL):
        tracer.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            tracer.wait(3)
            return
    tracer.wait(10)


def _is_traced(pid: int) -> bool:
    """Whether every thread has a tracer."""
    try:
        texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    except (FileNotFoundError, ProcessLookupError):
        return False  # a thread has ended meanwhile
    return bool(texts) and all("\nTracerPid:\t0\n" not in text for text in texts)


def struck(told: Path) -> list[str]:
    """The renames of new parts that met the fault."""
    lines = told.read_text().splitlines() if told.exists() else []
    return [line for line in lines if NEW_PART in line]


@pytest.mark.parametrize("fault", ["signal=KILL:when=1", "error=ENOSPC:when=1"])
def test_an_engine_struck_at_the_rename_of_a_new_part_loses_nothing(
    make_server: Callable[..., Server], tmp_path: Path, fault: str
) -> None:
    server = make_server()
    load = Load(server, tmp_path / "notes", writers=2)
    load.send(2)
    drained(server)
    told = tmp_path / "strace.txt"
    engine = server.engine_pid()
    with injected(engine, fault, told):
        load.send(2)
        eventually(lambda: struck(told), 20, "a rename that is struck")
        if "ENOSPC" in fault:  # each thread's first: let every one of them have it
            load.send(2)
    eventually(lambda: _is_back(server), 30, "an engine that answers")
    load.send(2)
    drained(server, 60)
    assert not load.outcomes.unknown
    rows = load.audit(asked(server), requests_min=12)
    raised = metric(server, "delivery_generations_total")
    assert raised >= 1, "the window was not hit: " + "\n".join(struck(told))
    print(f"{rows} rows, {len(struck(told))} renames struck, {raised:.0f} generations raised")


def _is_back(server: Server) -> bool:
    try:
        return server.count_rows("mlop_metrics") >= 0
    except (urllib.error.URLError, OSError):
        return False
