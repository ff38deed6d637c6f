"""`charon bench`: hands over to `loadtest.bench`, which starts servers and loads them.

In a process of its own, because the server's packages know nothing of the load tests.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from ingest.cli_options import AsJson


def bench(
    points: Annotated[
        list[int] | None,
        typer.Option(help="Metrics a request; may be repeated.  \\[default: 10, 100, 1000]"),
    ] = None,
    seconds: Annotated[int, typer.Option(min=1, help="Of each closed loop.")] = 8,
    workers: Annotated[
        list[int] | None, typer.Option(help="Worker processes; may be repeated.  \\[default: 1]")
    ] = None,
    peers: Annotated[
        bool, typer.Option("--peers", help="The same points into VictoriaMetrics, too.")
    ] = False,
    parts: Annotated[
        bool, typer.Option("--parts", help="Only the parts by themselves: no server is started.")
    ] = False,
    save: Annotated[
        bool, typer.Option("--save", help="Store the figures for later runs to be held against.")
    ] = False,
    baseline: Annotated[
        Path | None, typer.Option(help="File of stored figures.  \\[default: those delivered]")
    ] = None,
    as_json: AsJson = False,
) -> NoReturn:
    """Measure how fast Charon is on this machine: its parts, and a whole server under load.

    A throw-away server is started on free ports, with data of its own, and loaded in a closed loop
    with wrk, where that is installed. Takes about a minute.
    """
    options = ["--seconds", str(seconds)]
    for name, values in (("--points", points), ("--workers", workers)):
        if values:
            options += [name, *map(str, values)]
    if baseline is not None:
        options += ["--baseline", str(baseline)]
    chosen = (("--peers", peers), ("--save", save), ("--json", as_json))
    options += [name for name, is_on in chosen if is_on]
    if parts:
        options += ["--only", "parts"]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", "loadtest.bench", *options])  # noqa: S606
