"""Clean seeds keep every promise; each mutation breaks one, and is found; a seed is one run.

Method: see ``docs/reliability.md``. A failing seed names the command that shows it again.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.machine import Violation
from tests.simulation.mutations import FOCUS, MUTATIONS, applied
from tests.simulation.scenario import TROUBLES, scenario_of
from tests.simulation.seeds import replay
from tests.simulation.world import run

ROOT = Path(__file__).parents[2]
CLEAN_SEEDS = 100
SEEDS_A_TEST = 20
MUTATION_SEEDS_MAX = 400


@pytest.mark.parametrize("first", range(0, CLEAN_SEEDS, SEEDS_A_TEST))
def test_every_promise_is_kept_whatever_happens(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        try:
            run(seed)
        except Violation as violation:
            pytest.fail(f"seed {seed}: {violation}\nshow it again: {replay(seed)}")


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_defect_is_found(name: str) -> None:
    with applied(name):
        for seed in range(MUTATION_SEEDS_MAX):
            try:
                run(seed, FOCUS[name])
            except Violation:
                return
    pytest.fail(f"{name} is not found by {MUTATION_SEEDS_MAX} seeds: the simulation is too kind")


def test_every_mutation_has_its_trouble() -> None:
    assert set(FOCUS) == set(MUTATIONS)
    assert set().union(*FOCUS.values()) <= set(TROUBLES)


def test_a_seed_is_the_same_run_each_time_and_in_each_process() -> None:
    digests = {digest_of(seed=7), digest_of(seed=7)}
    for hash_seed in ("1", "2"):
        code = "from tests.simulation.test_simulation import digest_of; print(digest_of(seed=7))"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1


def test_the_seeds_have_every_kind_of_trouble() -> None:
    met = {trouble for seed in range(CLEAN_SEEDS) for trouble in scenario_of(seed).troubles}
    assert met == set(TROUBLES)


@pytest.mark.parametrize(
    ("trouble", "faults"),
    [
        ("kill_at_call", {"kill_at_a_call"}),
        ("cut_at_call", {"power_cut_at_a_call"}),
        ("sync_fails", {"sync_eio"}),
        ("write_fails", {"write_short", "write_enospc"}),
        ("names_fail", {"fsync_dir_eio", "create_eio"}),
        ("reads_fail", {"read_eio"}),
        ("slow_sync", {"sync_slow", "sync_hung"}),
        ("server_refuses", {"refused_for_now"}),
        ("operator", {"refused_for_operator"}),
        ("lost_answers", {"answer_lost", "request_lost"}),
        ("slow_server", {"answer_timed_out"}),
        ("cracks", {"token_without_part"}),
        ("late_requests", {"request_late"}),
        ("views_fail", {"view_failed"}),
        ("rot", {"rotten_bytes", "rotten_slots"}),
        ("server_power", {"power_took_parts"}),
        ("small_quarantine", {"quarantine_full", "quarantine_emptied"}),
        ("no_batch_column", {"sent_without_batch"}),
    ],
)
def test_trouble_does_what_it_should(trouble: str, faults: set[str]) -> None:
    """Or the seeds above prove less than they say."""
    met: set[str] = set()
    for seed in range(40):
        met |= set(run(seed, (trouble,)).faults)
        if faults <= met:
            return
    pytest.fail(f"{trouble} has done {met}")


def digest_of(*, seed: int) -> str:
    return hashlib.sha256("\n".join(run(seed).trace).encode()).hexdigest()
