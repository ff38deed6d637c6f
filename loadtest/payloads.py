"""Request bodies shaped like the SDK's, made before the run, and stamped in about a microsecond.

A template is a whole body with two marks in it: where a line's time and its step (or line number)
go. Stamping it for the n-th request of a run replaces both, all lines at once, so no two bodies of
a run are equal and no two rows are: a repeat would be answered from the server's memory, and equal
rows would collapse in ClickHouse. Either would flatter the figures.

The spelling is `json.dumps`'s with its defaults, which is what the SDK sends: spaces after `:` and
`,`, one object a line, keys in the SDK's order.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from enum import Enum

LINES_MAX = 1_000
"""The last three digits of a time and of a step are the line's."""

_TIME, _STEP, NAME = "1000000007", "2000000011", "3000000019"
"""Marks: digits, so that the template is made by json.dumps like everything else. `NAME` stands in
a metric's name, where each request has a set of names of its own."""


class Kind(Enum):
    """A stream: the path it is posted to."""

    METRICS = "metrics"
    LOGS = "logs"
    DATA = "data"

    @property
    def path(self) -> str:
        """Where it is posted."""
        return f"/ingest/{self.value}"

    @property
    def table(self) -> str:
        """Where its rows end."""
        return f"mlop_{self.value}"

    @property
    def place(self) -> str:
        """The column that holds the number of a row within its run."""
        return "lineNumber" if self is Kind.LOGS else "step"


@dataclass(frozen=True, slots=True)
class Shape:
    """How much one request holds: ``lines`` lines, of ``names`` metrics where it is metrics."""

    lines: int = 10
    names: int = 10

    def rows(self, kind: Kind) -> int:
        """Rows that one request comes to."""
        return self.lines * self.names if kind is Kind.METRICS else self.lines

    def places(self, kind: Kind, requests: int, numbers: int) -> int:
        """The sum of the rows' steps (or line numbers).

        Args:
            kind: the stream.
            requests: how many.
            numbers: the sum of their numbers within their run.
        """
        a_line = 1_000 * self.lines * numbers + requests * self.lines * (self.lines - 1) // 2
        return a_line * (self.names if kind is Kind.METRICS else 1)


class Template:
    """One body but for its stamps."""

    __slots__ = ("_has_name", "_text", "kind", "rows")

    def __init__(self, kind: Kind, lines: list[str], rows: int) -> None:
        self.kind = kind
        self.rows = rows
        self._text = ("\n".join(lines) + "\n").encode()
        self._has_name = NAME.encode() in self._text

    def stamped(self, second: int, number: int, name: int = 0) -> bytes:
        """The body of one request.

        Args:
            second: since the epoch; the lines' times are its milliseconds 0, 1, 2 and so on.
            number: of the request within its run, from 1.
            name: goes into the name that has the mark, where there is one.
        """
        text = self._text.replace(b"3000000019", b"%d" % name) if self._has_name else self._text
        return text.replace(b"1000000007", b"%d" % second).replace(b"2000000011", b"%d" % number)


def metrics(shape: Shape, seed: int, first_name: int = 0, *, is_shifting: bool = False) -> Template:
    """Lines of metrics: a training loop that logs the same names at each step.

    Args:
        shape: lines, and names a line.
        seed: of the values.
        first_name: the names are numbered from here.
        is_shifting: the last name has the mark that makes it another one in each request.
    """
    draw = _draw(seed)
    names = [_metric_name(first_name + index) for index in range(shape.names)]
    if is_shifting:
        names[-1] = f"train/probe/{NAME}"
    lines = []
    for line in range(shape.lines):
        data = {name: draw.gauss(0, 1) for name in names}
        lines.append(
            json.dumps({"time": _stamp(_TIME, line), "step": _stamp(_STEP, line), "data": data})
        )
    return Template(Kind.METRICS, lines, shape.rows(Kind.METRICS))


def logs(shape: Shape, seed: int) -> Template:
    """Lines of a console."""
    draw = _draw(seed)
    lines = []
    for line in range(shape.lines):
        message = (
            f"epoch {draw.randrange(90)}: loss {draw.random():.6f}, "
            f"{draw.randrange(900, 1_100)} samples/s, {draw.random() * 80:.1f} GiB \u2026"
        )
        record = {
            "time": _stamp(_TIME, line),
            "message": message,
            "lineNumber": _stamp(_STEP, line),
            "logType": "ERROR" if draw.random() < 0.1 else "INFO",
        }
        lines.append(json.dumps(record))
    return Template(Kind.LOGS, lines, shape.rows(Kind.LOGS))


def data(shape: Shape, seed: int) -> Template:
    """Histograms of parameters, as `run.watch` sends them."""
    draw = _draw(seed)
    lines = []
    for line in range(shape.lines):
        frequencies = [draw.randrange(1_000) for _ in range(64)]
        histogram = {
            "freq": frequencies,
            "maxFreq": max(frequencies),
            "bins": {"min": draw.gauss(-1, 0.1), "max": draw.gauss(1, 0.1), "num": 64},
            "shape": "uniform",
            "type": "Histogram",
            "v": 1,
        }
        record = {
            "time": _stamp(_TIME, line),
            "data": json.dumps(histogram),
            "dataType": "HISTOGRAM",
            "logName": f"grad/layer.{line}.weight",
            "step": _stamp(_STEP, line),
        }
        lines.append(json.dumps(record))
    return Template(Kind.DATA, lines, shape.rows(Kind.DATA))


def headers(key: str, project: str, run_id: int) -> dict[str, str]:
    """What the SDK's upload process sends with each body."""
    return {
        "Accept": "*/*",
        "Accept-Encoding": "gzip, deflate",
        "Connection": "keep-alive",
        "Authorization": f"Bearer {key}",
        "Content-Type": "application/x-ndjson",
        "User-Agent": "pluto",
        "X-Run-Id": str(run_id),
        "X-Run-Name": f"load-{run_id}",
        "X-Project-Name": project,
    }


def _draw(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - values to be stored, the same at each run


def _metric_name(index: int) -> str:
    return f"train/layer.{index // 10}/metric_{index % 10}"


def _stamp(mark: str, line: int) -> int:
    assert line < LINES_MAX, f"a body has at most {LINES_MAX} lines"
    return int(f"{mark}{line:03d}")
