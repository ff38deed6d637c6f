"""Defects that the simulation has to find: each is one line of the buffer, wrong.

A mutation is put in place for a run and taken out again, and looked for where there is trouble
that brings it out: ``python -m tests.simulation --mutation NAME`` says by which seed it is found,
of a thousand; with ``--any``, among runs with all kinds of trouble.
"""

from __future__ import annotations

import contextlib
from inspect import isfunction
from typing import TYPE_CHECKING, Any

from tests.simulation import mutations_delivery, mutations_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

MUTATIONS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    name: make
    for module in (mutations_log, mutations_delivery)
    for name, make in vars(module).items()
    if isfunction(make) and make.__module__ == module.__name__ and not name.startswith("_")
}

FOCUS: dict[str, tuple[str, ...]] = {
    "skip_a_sync": ("power",),
    "answer_before_the_sync": ("kill", "power"),
    "answer_after_a_failed_sync": ("sync_fails", "power", "server_down"),
    "sync_again_after_a_failure": ("sync_fails", "power", "server_down"),
    "read_unsynced_frames": ("sync_fails", "kill_at_call"),
    "reuse_an_lsn": ("kill",),
    "fence_nothing": ("sync_fails", "power", "server_down"),
    "forget_the_directory": ("power",),
    "release_too_early": ("server_down", "kill"),
    "cut_damage": ("rot", "server_down"),
    "keep_torn_tails": ("cut_at_call", "slow_sync"),
    "hide_damage": ("rot", "server_down"),
    "trust_what_is_cached": ("kill_then_power", "slow_sync"),
    "forget_the_repeat_window": ("kill_at_call", "kill"),
    "acknowledge_what_found_no_room": ("write_fails",),
    "remember_what_failed": ("write_fails", "kill"),
    "forget_the_root": ("power",),
    "vouch_for_the_page_cache": ("sync_fails", "power", "server_down"),
    "checkpoint_before_the_answer": ("server_refuses", "lost_answers"),
    "bounds_after_the_first_try": ("kill", "lost_answers"),
    "checkpoint_without_a_sync": ("power",),
    "one_slot_for_all": ("cut_at_call",),
    "token_without_digest": ("bad_rows",),
    "drop_the_generation": ("cracks",),
    "believe_a_later_success": ("cracks",),
    "skip_has_batch": ("lost_answers", "kill"),
    "assume_stored": ("lost_answers",),
    "do_not_settle": ("slow_server",),
    "change_bounds": ("kill", "lost_answers"),
    "reuse_a_block_number": ("kill",),
    "lose_rows_that_are_refused": ("bad_rows",),
    "no_doubt_at_a_start": ("cracks", "kill"),
}
"""The trouble that brings each out, so that the suite finds it among its first seeds."""


@contextlib.contextmanager
def applied(name: str) -> Iterator[None]:
    """The buffer with this defect."""
    with MUTATIONS[name]():
        yield
