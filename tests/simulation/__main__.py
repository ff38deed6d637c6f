"""``python -m tests.simulation``: many seeds, one seed again with its trace, or the mutations.

Ends with 1 when a promise was not kept (or, with ``--mutation``, when no seed caught it).
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import nullcontext

from tests.simulation.machine import Violation
from tests.simulation.mutations import FOCUS, MUTATIONS, applied
from tests.simulation.seeds import many, replay
from tests.simulation.world import run


def main() -> int:
    """Runs what the command line asks for."""
    wanted = _arguments()
    if wanted.mutation == "all":
        return max([_hunt(name, wanted) for name in MUTATIONS])
    if wanted.mutation and wanted.seed is None:
        return _hunt(wanted.mutation, wanted)
    if wanted.seed is not None:
        focus = tuple(filter(None, wanted.focus.split(",")))
        return _replay(wanted.seed, wanted.mutation, focus)
    return many(wanted.first, wanted.seeds, wanted.jobs)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="one seed, with its trace")
    parser.add_argument("--seeds", type=int, default=1_000, help="how many (default: 1000)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default: 0)")
    parser.add_argument(
        "--any", action="store_true", help="with --mutation: all trouble, not what brings it out"
    )
    parser.add_argument("--focus", default="", help="trouble, with commas; with --seed")
    cores = os.cpu_count() or 1
    parser.add_argument("--jobs", type=int, default=cores, help=f"processes (default: {cores})")
    parser.add_argument(
        "--mutation", choices=[*MUTATIONS, "all"], help="a defect that must be found"
    )
    return parser.parse_args()


def _replay(seed: int, mutation: str | None, focus: tuple[str, ...]) -> int:
    with applied(mutation) if mutation else nullcontext():
        try:
            report = run(seed, focus)
        except Violation as violation:
            print("\n".join(violation.report.trace))
            print(f"\nseed {seed}: {violation}")
            return 1
    print("\n".join(report.trace))
    print(f"\nseed {seed}: every promise was kept")
    return 0


def _hunt(name: str, wanted: argparse.Namespace) -> int:
    """The first seed that catches a mutation."""
    focus = () if wanted.any else FOCUS[name]
    with applied(name):
        for seed in range(wanted.first, wanted.first + wanted.seeds):
            try:
                run(seed, focus)
            except Violation as violation:
                line = str(violation).splitlines()[0][:150]
                print(f"{name}: caught by seed {seed}: {line}", flush=True)
                print(f"  {replay(seed, name, focus)}", flush=True)
                return 0
    print(f"{name}: not caught by {wanted.seeds} seeds", flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
