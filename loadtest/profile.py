"""Where a worker's time goes under load: py-spy's samples as a table.

`python -m loadtest.profile` loads a throw-away server and samples its worker; with a file of
`py-spy record --format raw` it only makes the table. A sample belongs to the innermost frame that
is ours or a library's whose name says something; threads are told apart.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from loadtest import generators, target
from loadtest.run import make_plan
from loadtest.throwaway import throwaway_server

if TYPE_CHECKING:
    from collections.abc import Iterator

ADVICE = "py-spy is not installed: pip install py-spy"
RATE = 2_000.0
SECONDS = 10
SAMPLES_A_SECOND = 200
WARM_UP_SECONDS = 3
_WAITING = ("_connection_worker_thread",)
"""Functions in which a thread waits, and py-spy does not see that it does."""
_FRAME = re.compile(r"(?P<name>.+) \((?P<file>[^:)]+)(:\d+)?\)")

AREAS = (
    ("ingest/decode", "decode"),
    ("schema/lines", "decode"),
    ("schema/rows", "decode"),
    ("ingest/lane", "HTTP, our lane"),
    ("ingest/connection", "HTTP, our lane"),
    ("aiohttp/", "HTTP, aiohttp"),
    ("ingest/auth", "authentication"),
    ("ingest/", "request path, the rest"),
    ("buffer/repeats", "window of repeats"),
    ("buffer/committer", "group commit"),
    ("buffer/writeahead", "group commit"),
    ("buffer/frame", "log: encode, write, sync"),
    ("buffer/segment", "log: encode, write, sync"),
    ("buffer/log", "log: encode, write, sync"),
    ("buffer/fs", "log: encode, write, sync"),
    ("buffer/disk", "log: encode, write, sync"),
    ("schema/", "blocks"),
    ("buffer/building", "blocks"),
    ("buffer/", "delivery"),
    ("aiochclient/", "delivery"),
    ("aiosqlite/", "catalogue"),
    ("asyncio/", "event loop, sockets and parser, in C"),
    ("uvloop/", "event loop, sockets and parser, in C"),
)
"""Of a frame's file, first match; what matches none is told by its caller."""


def find_program() -> str | None:
    """py-spy, on the PATH or beside this Python."""
    beside = Path(sys.executable).with_name("py-spy")
    return shutil.which("py-spy") or (str(beside) if beside.exists() else None)


def areas_of(raw: str) -> dict[str, float]:
    """Shares of the samples by area, in per cent, largest first.

    Args:
        raw: lines of `frame;frame;… count`, outermost frame first.
    """
    counts: Counter[str] = Counter()
    for stack, count in _samples(raw):
        counts[_area(stack)] += count
    total = counts.total() or 1
    return {area: round(100 * n / total, 1) for area, n in counts.most_common()}


def functions_of(raw: str, most: int = 15) -> dict[str, float]:
    """Shares of the samples by the function that ran, in per cent, largest first."""
    counts: Counter[str] = Counter()
    for stack, count in _samples(raw):
        frame = _FRAME.fullmatch(stack[-1])
        counts[f"{frame['name']} ({_short(frame['file'])})" if frame else stack[-1]] += count
    total = counts.total() or 1
    return {name: round(100 * n / total, 1) for name, n in counts.most_common(most)}


def table_of(areas: dict[str, float], functions: dict[str, float]) -> list[str]:
    """Markdown of both."""
    lines = ["| area | % of the worker's samples |", "|---|---|"]
    lines += [f"| {area} | {share} |" for area, share in areas.items()]
    lines += ["", "| function, by itself | % |", "|---|---|"]
    lines += [f"| `{name}` | {share} |" for name, share in functions.items()]
    return lines


def table(raw: str) -> list[str]:
    """Markdown of raw lines."""
    return table_of(areas_of(raw), functions_of(raw))


def record(rate: float = RATE, seconds: int = SECONDS) -> str:
    """Load a throw-away server at a rate, and sample its worker; py-spy's raw lines.

    Raises:
        RuntimeError: there is no py-spy, or it failed; says what it said.
    """
    program = find_program()
    if program is None:
        raise RuntimeError(ADVICE)
    with throwaway_server() as server, tempfile.TemporaryDirectory() as directory:
        where = target.of_server(server)
        plan = make_plan(where, "steady", rate=rate, seconds=seconds + 2 * WARM_UP_SECONDS)
        load = threading.Thread(
            target=generators.send, args=(plan, "sockets"), kwargs={"is_quiet": True}
        )
        load.start()
        time.sleep(WARM_UP_SECONDS)
        raw = Path(directory) / "raw"
        done = subprocess.run(
            [
                *(program, "record", "--format", "raw", "--output", str(raw), "--nonblocking"),
                *("--duration", str(seconds), "--rate", str(SAMPLES_A_SECOND)),
                *("--pid", str(server.worker_pids()[0])),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        load.join()
        if not raw.exists():
            raise RuntimeError(f"py-spy gave nothing: {done.stdout}{done.stderr}")
        return raw.read_text()


def main() -> None:
    """Print the table, of a file or of a run."""
    try:
        raw = Path(sys.argv[1]).read_text() if sys.argv[1:] else record()
    except (OSError, RuntimeError) as error:
        sys.exit(str(error))
    print("\n".join(table(raw)))


def _samples(raw: str) -> Iterator[tuple[list[str], int]]:
    """Stacks, outermost frame first, and how often each was seen."""
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        if stack and not frames[-1].startswith(_WAITING):
            yield frames, int(count)


def _area(stack: list[str]) -> str:
    for frame in reversed(stack):
        match = _FRAME.fullmatch(frame)
        path = match["file"] if match else frame
        for part, area in AREAS:
            if f"/{part}" in f"/{path}":
                return area
    return "Python itself"


def _short(path: str) -> str:
    return "/".join(path.split("/")[-2:])


if __name__ == "__main__":
    main()
