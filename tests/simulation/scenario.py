"""What a seed means: sizes, workers, clients, and which kinds of trouble there are in its storm.

Each seed has some kinds of trouble and not others ("swarm testing"): with all of them at once, each
would mostly be met in the shadow of another.

Source: A. Groce and others, "Swarm Testing", ISSTA 2012.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from buffer.options import BufferOptions

TROUBLES = (
    *("kill", "power", "kill_then_power", "kill_at_call", "cut_at_call", "orderly", "workers"),
    *("sync_fails", "write_fails", "names_fail", "reads_fail", "slow_sync", "full_disk"),
    *("server_down", "server_refuses", "operator", "lost_answers", "slow_server", "cracks"),
    *("late_requests", "views_fail", "bad_rows", "missing_table", "wall_clock", "rot"),
    *("small_quarantine", "no_batch_column", "server_power"),
)
DEADLY = frozenset({"kill", "power", "kill_then_power", "kill_at_call", "cut_at_call", "orderly"})


@dataclass(frozen=True)
class Scenario:
    """One run."""

    seed: int
    options: BufferOptions
    troubles: tuple[str, ...]
    workers: int
    clients: int
    requests: int
    """A client's."""
    storm_seconds: float
    repeats_are_remembered: bool
    """No bound is so tight, and no clock so wrong, that a request may be forgotten."""


def scenario_of(seed: int, focus: tuple[str, ...] = ()) -> Scenario:
    """The same for the same seed, always; with a focus it has that trouble and no other."""
    random = Random(f"{seed} scenario")
    share = random.choice([0.15, 0.3, 0.5])
    troubles = [name for name in TROUBLES if random.random() < share]
    if not DEADLY.intersection(troubles):
        troubles.append(random.choice(sorted(DEADLY)))
    if focus:
        troubles = list(focus)
    segment = random.choice([5_500, 8_000, 20_000, 100_000])
    is_tight = random.random() < 0.15
    options = BufferOptions(
        segment_bytes_max=segment,
        ahead_bytes=Random(f"{seed} ahead").choice([0, 3_000, 9_000]),
        group_bytes_max=random.choice([800, 4_000, 2**20]),
        group_frames_max=random.choice([1, 6, 1_024]),
        queue_bytes_max=random.choice([2_000, 2**20]),
        log_bytes_max=max(random.choice([20_000, 60_000]), 2 * segment) if is_tight else 2**30,
        disk_free_bytes_min=random.choice([0, 4_096]),
        batch_rows_max=random.choice([4, 25, 200_000]),
        batch_bytes_max=random.choice([1_500, 2**20]),
        batch_age_seconds_max=random.choice([0.05, 0.4, 1.0]),
        repeat_log_bytes_max=2**25,
        quarantine_bytes_max=900 if "small_quarantine" in troubles else 2**30,
    )
    forgets = is_tight or bool({"full_disk", "wall_clock", "rot"}.intersection(troubles))
    if not forgets and "write_fails" in troubles:
        forgets = True  # a write that finds no room makes the log let go of what it keeps
    return Scenario(
        seed=seed,
        options=options,
        troubles=tuple(troubles),
        # Small: two runs of ten requests find more than one of thirty, for what it costs.
        workers=random.choice([1, 1, 1, 2, 3]),
        clients=random.randrange(2, 5) if focus else random.randrange(1, 4),
        requests=random.randrange(4, 13) if focus else random.choice([2, 3, 4, 5, 6, 9]),
        storm_seconds=random.choice([5.0, 12.0] if focus else [0.5, 1.0, 2.0, 5.0]),
        repeats_are_remembered=not forgets,
    )
