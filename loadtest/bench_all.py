"""`make bench-all`: every figure of docs/benchmarks.md in one go, for a quiet machine left alone.

Writes ``figures.json`` and ``tables.md`` into a directory, step by step, so that what was measured
is there whatever happens to the rest. A quarter of an hour; with --quick a few
minutes, to see that it works.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from loadtest import bench, machine, profile, target
from loadtest.ceiling import measure_ceiling
from loadtest.closed_loop import POINTS
from loadtest.draining import drain
from loadtest.run import run, verdict
from loadtest.throwaway import throwaway_server

if TYPE_CHECKING:
    from collections.abc import Callable

OPEN_LOOPS = ("locust_2000", "sockets_2000", "sockets_5000")
GROWTH = (
    ("10 names a line, 100 runs", "steady", 500, 64),
    ("1,000 connections", "steady", 500, 1_000),
    ("as many runs as requests a second", "many_runs", 500, 64),
    ("50,000 names in each of 4 runs, 500 a line", "wide", 100, 64),
    ("a new set of names in each request, 200 runs", "shifting", 500, 64),
)
"""What grows, and the scenario, requests a second and connections that show what it costs."""


def open_loop(
    scenario: str, rate: float, seconds: float, generator: str, connections: int = 64
) -> dict[str, Any]:
    """One run against a server of its own, with its verdict."""
    with throwaway_server() as server:
        figures = run(
            target.of_server(server),
            scenario,
            rate=rate,
            seconds=seconds,
            generator=generator,
            connections=connections,
            is_quiet=True,
        )
    status, said = verdict(figures)
    del figures["per_second"]
    return {**figures, "status": status, "said": said}


def growth(seconds: float) -> list[dict[str, Any]]:
    """CPU a point as names, runs and connections grow."""
    rows = []
    for what, scenario, rate, connections in GROWTH:
        figures = open_loop(scenario, rate, seconds, "sockets", connections)
        points = figures["points_per_request"]
        rows.append({"what": what, **figures, "cpu_us_per_point": _per_point(figures, points)})
    return rows


def profiled(seconds: int) -> dict[str, Any]:
    """The profile of a worker at 2,000 requests a second."""
    raw = profile.record(seconds=seconds)
    return {"areas": profile.areas_of(raw), "functions": profile.functions_of(raw)}


def steps(*, is_quick: bool) -> dict[str, Callable[[], Any]]:
    """Every step by its name, in order."""
    short = 2 if is_quick else None
    return {
        "bench": lambda: bench.measure(
            points=list(POINTS),
            seconds=short or 6,
            rounds=1 if is_quick else 3,
            workers=[1, 2],
            wants={"parts", "loop", "peers"},
        ),
        "ceilings": lambda: [measure_ceiling(name, seconds=4) for name in ("locust", "sockets")],
        "locust_2000": lambda: open_loop("steady", 2_000, short or 60, "locust"),
        "sockets_2000": lambda: open_loop("steady", 2_000, short or 20, "sockets"),
        "sockets_5000": lambda: open_loop("steady", 5_000, short or 20, "sockets"),
        "growth": lambda: growth(short or 12),
        "drain": lambda: drain(rate=4_000, seconds=short or 12),
        "profile": lambda: profiled(short or 10),
    }


def sections(found: dict[str, Any]) -> dict[str, list[str]]:
    """Ready Markdown of what was measured so far, by the name of its place in the page."""
    facts = found["machine"]
    parts: dict[str, list[str]] = {
        "machine": [
            f"Measured on {facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB,",
            f"Linux {facts['kernel']}, Python {facts['python']}; load average at the start:",
            f"{facts['load_average']}.",
        ]
    }
    bench_found = found.get("bench", {})
    parts |= bench_found.get("tables", {})
    if "parts" in bench_found:
        rows = [f"| {name} | {value:,.7g} |" for name, value in bench_found["parts"].items()]
        parts["parts"] = ["| part | figure |", "|---|---|", *rows]
    if "ceilings" in found:
        parts["ceilings"] = [
            "| generator | requests/s | CPU \u00b5s a request |",
            "|---|---|---|",
            *(
                f"| {one['generator']} | {one['requests_per_second']:,} "
                f"| {one['cpu_us_per_request']} |"
                for one in found["ceilings"]
            ),
        ]
    loops = [found[name] for name in OPEN_LOOPS if name in found]
    if loops:
        parts["open_loop"] = _open_table(loops)
    if "growth" in found:
        parts["growth"] = _growth_table(found["growth"])
    if "drain" in found:
        parts["drain"] = _drain_table(found["drain"])
    if "profile" in found:
        parts["profile"] = profile.table_of(**found["profile"])
    return parts


def into_page(page: str, parts: dict[str, list[str]]) -> str:
    """The page with its figures replaced by those that were measured; others stay."""
    for name, lines in parts.items():
        begin, end = f"<!-- figures: {name} -->", f"<!-- end: {name} -->"
        if begin in page and end in page:
            before, _, rest = page.partition(begin)
            page = "\n".join([f"{before}{begin}", *lines, f"{end}{rest.partition(end)[2]}"])
    return page


def main() -> None:
    """Measure all; exit status 1 when a step failed or found a fault."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench_all")
    parser.add_argument("--out", type=Path, default=Path("bench-results"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--into", type=Path, help="a page whose figures are replaced")
    parser.add_argument("--save", action="store_true", help="store what charon bench compares with")
    parser.add_argument("--only", nargs="*", help="steps")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    arguments.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"machine": machine.facts(), "faults": []}
    for name, step in steps(is_quick=arguments.quick).items():
        if arguments.only and name not in arguments.only:
            continue
        began = time.monotonic()
        print(f"{name} \u2026", file=sys.stderr, flush=True)
        try:
            found[name] = step()
        except Exception as error:  # noqa: BLE001 - the other steps are worth having all the same
            found["faults"].append(f"{name}: {error}")
        found["faults"] += _faults(name, found.get(name))
        print(f"  {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        (arguments.out / "figures.json").write_text(json.dumps(found, indent=1))
        (arguments.out / "tables.md").write_text(_tables(found))
    print(_tables(found))
    if arguments.save and "bench" in found:
        bench.save(found["bench"], bench.BASELINE)
    if arguments.into is not None:
        arguments.into.write_text(into_page(arguments.into.read_text(), sections(found)))
    sys.exit(1 if found["faults"] else 0)


def _tables(found: dict[str, Any]) -> str:
    lines = [
        line for name, part in sections(found).items() for line in (f"### {name}", "", *part, "")
    ]
    return "\n".join([*lines, *(f"**{fault}**" for fault in found["faults"])]) + "\n"


def _faults(name: str, value: Any) -> list[str]:  # noqa: ANN401 - what a step gave
    if isinstance(value, dict):
        return [f"{name}: {said}" for said in (*value.get("said", ()), *value.get("faults", ()))]
    if isinstance(value, list):
        return [fault for one in value for fault in _faults(name, one)]
    return []


def _per_point(figures: dict[str, Any], points: int) -> float:
    return round(float(figures["worker_cpu_us_per_request"] or 0) / points, 3)


def _open_table(loops: list[dict[str, Any]]) -> list[str]:
    lines = [
        (
            "| generator | due a second | acknowledged a second | P50 / P95 / P99 ms "
            "| visible P50 / P99 ms | failed | rows acknowledged | stored | worker CPU \u00b5s "
            "| ClickHouse CPU \u00b5s | generator CPU \u00b5s | peak MiB |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in loops:
        latency, visible, rows = one["latency_ms"], one["visible_after_ms"], one["rows"]
        lines.append(
            f"| {one['generator']} | {one['rate']:,.0f} | {one['requests_per_second']:,.0f} "
            f"| {latency['p50']:.1f} / {latency['p95']:.1f} / {latency['p99']:.1f} "
            f"| {visible['p50']:,.0f} / {visible['p99']:,.0f} | {sum(one['failures'].values())} "
            f"| {rows['acknowledged']:,} | {rows['stored']:,} "
            f"| {one['worker_cpu_us_per_request']} | {one['engine_cpu_us_per_request']} "
            f"| {one['generator_cpu_us_per_request']} | {one['worker_peak_mib']:.0f} |"
        )
    return lines


def _growth_table(rows: list[dict[str, Any]]) -> list[str]:
    first = rows[0]["cpu_us_per_point"] or 1
    lines = [
        "| what | CPU \u00b5s a point | to the first | P95 ms | peak MiB |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['what']} | {row['cpu_us_per_point']} | {row['cpu_us_per_point'] / first:.2f} "
        f"| {row['latency_ms']['p95']:.1f} | {row['worker_peak_mib']:.0f} |"
        for row in rows
    ]
    return lines


def _drain_table(row: dict[str, Any]) -> list[str]:
    columns = row["clickhouse_bytes_per_point"]
    return [
        "| what | figure |",
        "|---|---|",
        f"| backlog | {row['rows']:,} rows |",
        f"| delivered, beside ClickHouse on the same cores | {row['rows_per_second']:,} rows/s |",
        f"| a CPU second of the worker delivers | {row['rows_per_worker_cpu_second']:,} rows |",
        f"| worker's peak | {row['worker_peak_mib']} MiB |",
        f"| log | {row['log_bytes_per_point']} B a point |",
        f"| ClickHouse, merged | {columns['all']} B a point: "
        + ", ".join(f"{name} {size}" for name, size in columns.items() if name != "all" and size)
        + " |",
    ]


if __name__ == "__main__":
    main()
