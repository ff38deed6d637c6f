"""Many seeds on all cores, and the figures of what they went through."""

from __future__ import annotations

import gc
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.simulation.machine import Violation
from tests.simulation.world import run

SEEDS_A_JOB = 25
SEEDS_A_COLLECTION = 10


def many(first: int, count: int, jobs: int) -> int:
    """Runs seeds from ``first`` on; returns 1 when one has failed."""
    begun = time.monotonic()
    failed = 0
    total: Counter[str] = Counter()
    ranges = [
        (start, min(start + SEEDS_A_JOB, first + count))
        for start in range(first, first + count, SEEDS_A_JOB)
    ]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        for texts, figures in pool.map(_some, ranges):
            failed += len(texts)
            total.update(figures)
            for text in texts:
                print(text, flush=True)
    print(f"{count} seeds in {time.monotonic() - begun:.0f} s, {failed} failed")
    for name, number in sorted(total.items()):
        print(f"  {name:24} {number}")
    return 1 if failed else 0


def _some(seeds: tuple[int, int]) -> tuple[list[str], Counter[str]]:
    """A range of seeds: what failed, and what all of them went through."""
    failed: list[str] = []
    total: Counter[str] = Counter()
    gc.disable()  # a tenth of the time, for garbage that a collection now and then takes as well
    for seed in range(*seeds):
        if seed % SEEDS_A_COLLECTION == 0:
            gc.collect()
        try:
            report = run(seed)
        except Violation as violation:
            failed.append(f"seed {seed}: {violation}\n  {replay(seed)}")
            continue
        total.update(
            rows=report.rows,
            requests=report.requests,
            tries=report.tries,
            acknowledged=report.acknowledged,
            kills=report.kills,
            power_cuts=report.power_cuts,
            simulated_seconds=int(report.seconds),
        )
        total.update(report.faults)
    return failed, total


def replay(seed: int, mutation: str = "", focus: tuple[str, ...] = ()) -> str:
    """The command that shows a run again."""
    tail = f" --mutation {mutation}" if mutation else ""
    tail += f" --focus {','.join(focus)}" if focus else ""
    return f"python -m tests.simulation --seed {seed}{tail}"
