from __future__ import annotations

import itertools

import pytest

from catalog.statuses import Source, Status, transition

FINAL = [Status.COMPLETED, Status.TERMINATED, Status.CANCELLED, Status.FAILED]  # mildest first


@pytest.mark.parametrize(("current", "wanted"), list(itertools.product(FINAL, FINAL)))
def test_a_client_makes_a_final_status_only_worse(current, wanted):
    outcome = transition(current, wanted, Source.API)
    assert outcome.is_applied == (FINAL.index(wanted) >= FINAL.index(current))
    assert outcome.is_change == (FINAL.index(wanted) > FINAL.index(current))
    assert outcome.stamps == outcome.is_change


@pytest.mark.parametrize("current", list(Status))
def test_any_run_may_run_again(current):
    outcome = transition(current, Status.RUNNING, Source.API)
    assert outcome.is_applied
    assert outcome.stamps
    assert outcome.is_change == (current is not Status.RUNNING)


@pytest.mark.parametrize("wanted", FINAL)
def test_a_running_run_may_end_in_any_way(wanted):
    assert transition(Status.RUNNING, wanted, Source.API).is_change


def test_the_servers_own_sources_are_exempt():
    assert transition(Status.FAILED, Status.COMPLETED, Source.STALE_MONITOR).is_change
