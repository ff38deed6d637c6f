"""How much memory the engine takes for itself: of the machine, or of what a container leaves it."""

from __future__ import annotations

import os

import pytest

from ingest.embedded_config import (
    MERGE_NICE,
    EngineLimits,
    may_set_nice,
    memory_bytes,
    write_config,
)

PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
GIB = 2**30


def limit(tmp_path, own, files):
    (tmp_path / "own").write_text("\n".join(own) + "\n")
    for path, text in files.items():
        file = tmp_path / "groups" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    return memory_bytes(tmp_path / "own", tmp_path / "groups")


def test_without_control_groups_it_is_the_machines(tmp_path):
    assert memory_bytes(tmp_path / "none", tmp_path) == PHYSICAL
    assert limit(tmp_path, ["0::/"], {}) == PHYSICAL


@pytest.mark.parametrize(
    ("own", "files", "wanted"),
    [
        (["0::/a/b"], {"a/b/memory.max": GIB}, GIB),
        (["0::/a/b"], {"a/b/memory.max": "max", "a/memory.max": GIB}, GIB),
        (["0::/a/b"], {"a/b/memory.max": GIB, "a/memory.max": 2 * GIB}, GIB),
        (["0::/"], {"memory.max": GIB}, GIB),
        # A container that is shown the host's path, and only its own group.
        (["0::/system.slice/docker-1"], {"memory.max": GIB}, GIB),
        (["5:cpu:/x", "4:memory:/x"], {"memory/x/memory.limit_in_bytes": GIB}, GIB),
        (["4:memory:/x"], {"memory/x/memory.limit_in_bytes": 2**63 - 4096}, PHYSICAL),
        (["0::/a"], {"a/memory.max": "max"}, PHYSICAL),
    ],
)
def test_the_smallest_limit_above_it_counts(tmp_path, own, files, wanted):
    assert limit(tmp_path, own, files) == wanted


@pytest.mark.parametrize("refused", [(), (0,), (MERGE_NICE, 0)])
def test_merges_are_nice_only_where_their_threads_can_come_back(tmp_path, monkeypatch, refused):
    def set_priority(_which, _who, value):
        if value in refused:
            raise PermissionError

    monkeypatch.setattr(os, "setpriority", set_priority)
    config = write_config(tmp_path, EngineLimits(GIB, GIB)).read_text()
    wanted = 0 if refused else MERGE_NICE
    assert f"<os_threads_nice_value_merge_mutate>{wanted}</os_thr" in config


def test_to_ask_makes_no_thread_nice_that_stays():
    before = os.getpriority(os.PRIO_PROCESS, 0)
    may_set_nice()
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
