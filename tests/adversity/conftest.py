"""One real server for all attacks, and a check at the end that it lived through them in silence."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import pytest

from loadtest.throwaway import throwaway_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadtest.throwaway import Server


@pytest.fixture(scope="session")
def descriptors() -> int:
    """How many this process may have open: as many as it is allowed."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = 20_000 if hard == resource.RLIM_INFINITY else min(hard, 20_000)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed


@pytest.fixture(scope="session")
def server(descriptors: int) -> Iterator[Server]:
    """With short deadlines, so that what has to end ends soon."""
    with throwaway_server(
        header_seconds_max="2", body_seconds_max="3", idle_seconds_max="5", log_level="debug"
    ) as running:
        (worker,) = running.worker_pids()
        yield running
        assert running.worker_pids() == [worker], "the worker had to be restarted"
        log = running.log_path.read_text(errors="replace")
        assert running.key not in log
        assert running.key[8:] not in log
        assert "Traceback" not in log
        assert len(log) < 200_000, "attackers fill the log"
