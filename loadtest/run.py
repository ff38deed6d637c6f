"""`make loadtest`: one scenario against a server, judged by what ClickHouse holds at the end.

By default against a throw-away server with an embedded ClickHouse; with --host, --key and
--clickhouse against a deployment, whose rows then stay in a project named after the run.

=====  ==============================================================================
exit   means
=====  ==============================================================================
0      every request was acknowledged, and every acknowledged row is stored
1      requests failed, or the rows in ClickHouse are not those that were acknowledged
2      wrong usage, or a target that cannot be used
3      the rate was not held: by the server, or by the generator, whose load is told
=====  ==============================================================================
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from loadtest import generators, machine, report, stored, target
from loadtest.ceiling import measure_ceiling
from loadtest.histogram import Histogram
from loadtest.sampling import Sampling
from loadtest.scenarios import SCENARIOS, Plan, runs_of
from loadtest.throwaway import throwaway_server
from loadtest.visibility import Visibility

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadtest.target import Target

UNSENT_SHARE_MAX = 0.01
LATE_SECONDS_MAX = 2.0
LATE_SHARE_MAX = 0.02
SATURATED_CORES = 0.9


def run(
    where: Target,
    scenario: str,
    *,
    rate: float,
    seconds: float,
    generator: str = "locust",
    processes: int = 1,
    connections: int = 64,
    has_markers: bool = True,
    is_quiet: bool = False,
) -> dict[str, Any]:
    """One run of a scenario; its figures.

    Raises:
        TargetUnusable: see `loadtest.target`. GeneratorFailed: see `loadtest.generators`.
    """
    plan = make_plan(
        where, scenario, rate=rate, seconds=seconds, processes=processes, connections=connections
    )
    markers = (
        Visibility(where, plan.project, where.make_runs(1, f"{plan.project}-markers")[0])
        if has_markers
        else None
    )
    facts = machine.facts()
    with Sampling(where.server) as sampling:
        with markers or nullcontext():
            recording = generators.send(plan, generator, is_quiet=is_quiet)
        audit = stored.audit(where, plan, recording)
    lags = markers.lags if markers is not None else Histogram()
    return report.figures(
        plan, recording, audit, lags, sampling.samples, generator=generator, machine=facts
    )


def make_plan(
    where: Target,
    scenario: str,
    *,
    rate: float,
    seconds: float,
    processes: int = 1,
    connections: int = 64,
) -> Plan:
    """A plan with a project and runs of its own."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    project = f"loadtest-{stamp}-{os.urandom(3).hex()}"
    runs = where.make_runs(runs_of(SCENARIOS[scenario], rate), project)
    numbers = int(rate * seconds) // len(runs) + 1
    return Plan(
        scenario=scenario,
        url=where.url,
        key=where.key,
        project=project,
        rate=rate,
        seconds=seconds,
        run_ids=runs,
        # The last request's rows are of now: none is of the future.
        first_second=time.time_ns() // 10**9 - numbers,
        generators=processes,
        connections=connections,
    )


def verdict(figures: dict[str, Any]) -> tuple[int, list[str]]:
    """The exit status, and what is to be said with it."""
    said = []
    status = 0
    unsent = figures["requests_due"] - figures["requests_sent"]
    if unsent > UNSENT_SHARE_MAX * figures["requests_due"]:
        said.append(f"{unsent:,} of {figures['requests_due']:,} requests were never sent")
        status = 3
    late = figures["seconds_taken"] - figures["seconds"]
    if late > LATE_SECONDS_MAX + LATE_SHARE_MAX * figures["seconds"]:
        said.append(
            f"the last answer came {late:,.1f} s after the last request was due: the rate was not "
            f"held, {figures['requests_per_second']:,.0f} a second were acknowledged"
        )
        status = 3
    if figures["generator_cores"] > SATURATED_CORES * figures["generator_processes"]:
        said.append(
            "the generator was at its limit, so that latencies are partly its own: "
            "see its ceiling with --ceiling; take more processes, or GENERATOR=sockets"
        )
    if figures["failures"]:
        status = 1
        said += [f"{count:,} requests: {error}" for error, count in figures["failures"].items()]
    if figures["rows"]["differences"]:
        status = 1
        said.append("ClickHouse does not hold the rows that were acknowledged:")
        said += figures["rows"]["differences"]
    return status, said


@contextmanager
def _target(arguments: argparse.Namespace) -> Iterator[Target]:
    if arguments.host is None:
        with throwaway_server(workers=arguments.workers) as server:
            yield target.of_server(server)
    else:
        yield target.of_addresses(arguments.host, arguments.key, arguments.clickhouse)


def main() -> None:
    """Run the command; see the module's text for its exit status."""
    arguments = _arguments()
    console = Console(stderr=True)
    try:
        generators.check(arguments.generator)  # before a server is started for it
    except generators.GeneratorFailed as error:
        console.print(f"[red]{error}[/]", highlight=False)
        sys.exit(2)
    if arguments.ceiling:
        print(
            json.dumps(
                measure_ceiling(
                    arguments.generator,
                    scenario=arguments.scenario,
                    seconds=5,
                    processes=arguments.processes,
                )
            )
        )
        return
    scenario = SCENARIOS[arguments.scenario]
    rate = arguments.rate or scenario.rate
    seconds = arguments.duration or scenario.seconds
    console.print(f"[bold]{arguments.scenario}[/]: {scenario.about}")
    console.print(f"{rate:,.0f} requests/s for {seconds:,.0f} s, by {arguments.generator}")
    try:
        with _target(arguments) as where:
            console.print(f"loading {where.url}")
            figures = run(
                where,
                arguments.scenario,
                rate=rate,
                seconds=seconds,
                generator=arguments.generator,
                processes=arguments.processes,
                connections=arguments.connections or scenario.connections,
            )
    except (target.TargetUnusable, generators.GeneratorFailed) as error:
        console.print(f"[red]{error}[/]")
        sys.exit(2)
    report.write(arguments.out, figures)
    report.show(figures, console)
    status, said = verdict(figures)
    for line in said:
        console.print(line, style="red" if status else "yellow", highlight=False)
    console.print(f"{arguments.out}/report.html, report.json, seconds.csv", highlight=False)
    console.print("[green]ok[/]" if status == 0 else "[red]failed[/]")
    sys.exit(status)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m loadtest.run", description="Load a server.")
    parser.add_argument("scenario", choices=sorted(SCENARIOS))
    parser.add_argument("--rate", type=float, help="requests a second")
    parser.add_argument("--duration", type=float, help="seconds")
    parser.add_argument("--generator", choices=generators.NAMES, default="locust")
    parser.add_argument("--processes", type=int, default=1, help="of the generator")
    parser.add_argument("--connections", type=int, help="of all generator processes together")
    parser.add_argument("--workers", type=int, default=1, help="of the throw-away server")
    parser.add_argument("--host", help="load this server, like http://charon.example:3003")
    parser.add_argument("--key", help="an API key of it")
    parser.add_argument("--clickhouse", help="http://user:password@host:8123/database behind it")
    parser.add_argument("--out", type=Path, help="directory for the report")
    parser.add_argument(
        "--ceiling", action="store_true", help="measure the generator alone, against a stub"
    )
    arguments = parser.parse_args()
    if arguments.host and not (arguments.key and arguments.clickhouse):
        parser.error("--host needs --key, and --clickhouse to check the rows")
    arguments.out = arguments.out or Path("loadtest-reports") / arguments.scenario
    return arguments


if __name__ == "__main__":
    main()
