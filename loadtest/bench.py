"""`charon bench`: the parts, the whole in a closed loop, and both against stored figures.

=====  =========================================================================
exit   means
=====  =========================================================================
0      measured
1      figures that are worth nothing: failures, missing rows, a growing backlog
2      wrong usage
=====  =========================================================================

Ratios to the stored figures do not fail a run: machines differ, and a noisy one differs from
itself. Ratios of CPU time on one machine are what to look at.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path
from typing import Any

import structlog

from loadtest import closed_loop, machine, peers, wrk
from loadtest.parts import SHAPES, measure_parts

TITLES = {
    "closed_loop": "Closed loop",
    "workers": "Several workers",
    "peers": "Beside VictoriaMetrics",
}
BASELINE = Path(__file__).with_name("baseline.json")


def measure(
    *, points: list[int], seconds: int, rounds: int, workers: list[int], wants: set[str]
) -> dict[str, Any]:
    """All that is wanted of parts, loop and peers, with the machine's facts."""
    found: dict[str, Any] = {"machine": machine.facts(), "faults": [], "notes": []}
    if "parts" in wants:
        _say("parts: decode, encode, append, build")
        found["parts"] = measure_parts([size for size in points if size in SHAPES])
    if "loop" in wants and _needs_wrk(found):
        loops = []
        for size in points:
            _say(
                f"closed loop, {size} points, {' and '.join(map(str, workers))} worker(s) in turns"
            )
            loops += closed_loop.in_turns(size, workers=workers, seconds=seconds, rounds=rounds)
        loops.sort(key=lambda figures: figures.workers)
        found["closed_loop"] = [figures.to_json() for figures in loops]
        found["tables"] = {"closed_loop": closed_loop.table(loops)}
        if several := closed_loop.workers_table(loops):
            found["tables"]["workers"] = several
        found["faults"] += [fault for figures in loops for fault in figures.faults]
    if "peers" in wants and _needs_wrk(found):
        if peers.is_installed():
            turns = []
            for size in points:
                _say(f"beside {peers.PROGRAM}, {size} points")
                turns.append(peers.compare(size, seconds=seconds, rounds=rounds))
            found["peers"] = [turn.to_json() for turn in turns]
            found.setdefault("tables", {})["peers"] = peers.table(turns)
            found["faults"] += [fault for turn in turns for fault in turn.faults]
        else:
            found["notes"].append(peers.ADVICE)
    return found


def flat(found: dict[str, Any]) -> dict[str, float]:
    """The figures that are compared with stored ones, by name."""
    values = dict(found.get("parts", {}))
    for row in found.get("closed_loop", []):
        name = f"loop_{row['points']}" + (f"_{row['workers']}_workers" * (row["workers"] > 1))
        values[f"{name}_cpu_us_per_request"] = row["cpu_us_per_request"]
        values[f"{name}_requests_per_second"] = row["requests_per_second"]
    for row in found.get("peers", []):
        values[f"peer_{row['points']}_ratio"] = row["ratio"]
    return values


def compared(values: dict[str, float], stored: dict[str, float]) -> list[tuple[str, float, float]]:
    """(name, figure, ratio to the stored one; 0 where none is stored)."""
    return [
        (name, value, round(value / stored[name], 2) if stored.get(name) else 0.0)
        for name, value in values.items()
    ]


def show(found: dict[str, Any], baseline: dict[str, Any]) -> list[str]:
    """Markdown of everything."""
    facts = found["machine"]
    stored = baseline.get("figures", {})
    lines = [f"{facts['cpu']}, {facts['cores']} cores, Python {facts['python']}", ""]
    for name, title in TITLES.items():
        if name in found.get("tables", {}):
            lines += [f"### {title}", "", *found["tables"][name], ""]
    lines += ["### Against the stored figures", ""]
    lines += ["| figure | now | stored | now / stored |", "|---|---|---|---|"]
    for name, value, ratio in compared(flat(found), stored):
        former = _number(stored[name]) if name in stored else ""
        lines.append(f"| {name} | {_number(value)} | {former} | {ratio or ''} |")
    return [*lines, "", *found["notes"], *(f"**{fault}**" for fault in found["faults"])]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1e6 else f"{value:,.7g}"  # past 7 digits: 3e+07


def save(found: dict[str, Any], path: Path) -> None:
    """Store the figures; those stored before that were not measured now stay."""
    stored = json.loads(path.read_text()) if path.exists() else {}
    figures = {**stored.get("figures", {}), **flat(found)}
    path.write_text(json.dumps({"machine": found["machine"], "figures": figures}, indent=1) + "\n")


def main() -> None:
    """Print tables, or JSON; see the module's text for the exit status."""
    arguments = _arguments()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    wants = set(arguments.only or ["parts", "loop"]) | ({"peers"} if arguments.peers else set())
    try:
        found = measure(
            points=arguments.points,
            seconds=arguments.seconds,
            rounds=arguments.rounds,
            workers=arguments.workers,
            wants=wants,
        )
        baseline = json.loads(arguments.baseline.read_text()) if arguments.baseline.exists() else {}
        if arguments.save:
            save(found, arguments.baseline)
    except (OSError, RuntimeError, ValueError) as error:
        sys.exit(f"charon bench: {error}")
    if arguments.json:
        ratios = {
            name: ratio for name, _, ratio in compared(flat(found), baseline.get("figures", {}))
        }
        print(json.dumps({**found, "ratios": ratios}))
    else:
        print("\n".join(show(found, baseline)))
    sys.exit(1 if found["faults"] else 0)


def _needs_wrk(found: dict[str, Any]) -> bool:
    if not wrk.is_installed() and wrk.ADVICE not in found["notes"]:
        found["notes"].append(wrk.ADVICE)
    return wrk.is_installed()


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="charon bench", description="Measure Charon here.")
    parser.add_argument("--points", type=int, nargs="+", default=list(closed_loop.POINTS))
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[1])
    parser.add_argument("--only", choices=("parts", "loop", "peers"), action="append")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--baseline", type=Path, default=BASELINE)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
