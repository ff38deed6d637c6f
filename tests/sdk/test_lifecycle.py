"""The life of a run, by the real SDK in real processes, on SQLite and on Postgres.

What happened is in `facts`; `campaign.py` made it happen; docs/sdk-compatibility.md names each.
"""

from __future__ import annotations

import json
import math
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.sdk.campaign import GRACE_SECONDS
from tests.sdk.training import PROJECT

if TYPE_CHECKING:
    from tests.sdk.campaign import Facts

# The first test waits for all the processes.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

MADE = (None, "RUNNING", "api")
RESUMED = ("COMPLETED", "RUNNING", "resume")


def run_of(facts: Facts, name: str) -> dict[str, Any]:
    return facts.runs[str(facts.notes[name]["run_id"])]


def changes(run: dict[str, Any]) -> list[tuple]:
    return [(event["from_status"], event["to_status"], event["source"]) for event in run["history"]]


def rows_of(facts: Facts, run: dict[str, Any]) -> list[list[Any]]:
    """Project, name, step, value."""
    return facts.rows[str(run["id"])]


def losses(steps) -> list[list[Any]]:
    return [[PROJECT, "train/loss", step, step / 8] for step in steps]


def ended(status: str) -> tuple[str, str, str]:
    return ("RUNNING", status, "api")


def test_a_run_is_made_with_its_tags_and_configuration_and_ends_completed(facts):
    run = run_of(facts, "create")
    assert (run["name"], run["project"], run["external_id"]) == ("first", PROJECT, "ext-life")
    assert not facts.notes["create"]["resumed"]
    assert changes(run)[:2] == [MADE, ended("COMPLETED")]
    assert facts.processes["life"]["status"] == 0
    assert run["has_beaten"]


def test_tags_are_replaced_as_they_are_added_and_removed(facts):
    assert json.loads(run_of(facts, "create")["tags"]) == ["two", "three"]


def test_configurations_are_merged_deeply_and_keep_what_python_writes(facts):
    config = json.loads(run_of(facts, "create")["config"])
    nan, none = config.pop("scores")
    assert math.isnan(nan)
    assert none is None
    assert config == {"lr": 0.2, "opt": {"name": "adam", "beta": 0.9}, "late": True}


def test_an_alert_is_kept(facts):
    (alert,) = run_of(facts, "create")["alerts"]
    assert (alert["level"], alert["title"], alert["body"]) == ("WARN", "loss is odd", "look at it")


@pytest.mark.parametrize("way", ["number", "display id", "external id"])
def test_a_run_is_resumed_three_ways(facts, way):
    run = run_of(facts, "create")
    note = facts.notes[way]
    assert (note["run_id"], note["resumed"]) == (run["id"], True)
    assert changes(run)[:8] == [MADE, *[ended("COMPLETED"), RESUMED] * 3, ended("COMPLETED")]


def test_rows_of_a_resumed_run_go_to_its_own_project_whatever_the_process_calls_its(facts):
    run = run_of(facts, "create")
    assert rows_of(facts, run) == losses(range(1, 9))  # 6 and 7 by processes of "elsewhere"
    silent = facts.runs[str(facts.answers["silent"])]
    assert rows_of(facts, silent) == [["by hand", "loss", 1, 0.5]]


def test_an_external_id_in_use_raises_without_resume_and_has_reopened_the_run(facts):
    run = run_of(facts, "create")
    assert facts.notes["without resume"]["error"] == "RunExistsError"
    assert changes(run)[8] == RESUMED


def test_a_fork_inherits_configuration_and_tags_and_says_where_it_began(facts):
    parent, fork = run_of(facts, "create"), run_of(facts, "fork")
    assert (fork["forked_from_run_id"], fork["fork_step"]) == (parent["id"], 4)
    config = json.loads(fork["config"])
    assert (config["lr"], config["opt"]["name"]) == (0.2, "sgd")
    assert json.loads(fork["tags"]) == ["two", "three", "forked"]
    assert rows_of(facts, fork) == losses(range(5, 9))


def test_a_fork_of_a_fork_belongs_to_the_run_that_logged_its_step(facts):
    parent, fork = run_of(facts, "create"), run_of(facts, "fork")
    before, after = run_of(facts, "fork of fork, before"), run_of(facts, "fork of fork, after")
    assert (before["forked_from_run_id"], before["fork_step"]) == (parent["id"], 3)
    assert (after["forked_from_run_id"], after["fork_step"]) == (fork["id"], 7)
    assert [run["status"] for run in (fork, before, after)] == ["COMPLETED"] * 3


def test_processes_of_one_run_share_it_and_the_worst_end_stays(facts):
    ids = {facts.notes[f"rank {n}"]["run_id"] for n in range(3)}
    assert len(ids) == 1
    assert sorted(facts.notes[f"rank {n}"]["resumed"] for n in range(3)) == [False, True, True]
    run = run_of(facts, "rank 0")
    assert (run["external_id"], run["status"]) == ("job-17", "FAILED")
    assert changes(run) in (
        [MADE, ended("FAILED")],
        [MADE, ended("COMPLETED"), ("COMPLETED", "FAILED", "api")],
    )
    assert [facts.processes[f"rank {n}"]["status"] for n in range(3)] == [0, 0, 1]
    assert rows_of(facts, run) == [
        [PROJECT, f"rank{n}/loss", step, step * 10 + n] for n in range(3) for step in range(1, 21)
    ]


def test_a_cancelled_run_exits_with_status_2_and_says_who_and_why(facts):
    run = run_of(facts, "cancel")
    assert facts.processes["cancel"]["status"] == 2
    assert changes(run)[:2] == [MADE, ended("CANCELLED")]
    event = run["history"][1]
    metadata = json.loads(event["metadata"])
    assert metadata["reason"] == "it diverged"
    assert event["actor_id"] == metadata["actor"] == facts.answers["cancel"]["request"]["actor"]
    steps = [row[2] for row in rows_of(facts, run)]
    assert steps == list(range(1, len(steps) + 1))  # what was logged before the end is all there


def test_a_cancelled_run_that_is_resumed_is_not_cancelled_again(facts):
    is_resumed, beats = facts.answers["after cancel"]
    assert is_resumed
    assert beats == [[200, {"status": "RUNNING", "triggers": None}]] * 3
    assert changes(run_of(facts, "cancel"))[2:] == [
        ("CANCELLED", "RUNNING", "resume"),
        ended("COMPLETED"),
    ]


def test_sigterm_is_terminated_and_what_was_queued_arrives_all_the_same(facts):
    run = run_of(facts, "SIGTERM")
    assert facts.processes["SIGTERM"]["status"] == -signal.SIGTERM
    assert changes(run) == [MADE, ended("TERMINATED")]
    assert rows_of(facts, run) == losses(range(1, 4))


def test_ctrl_c_is_failed(facts):
    run = run_of(facts, "Ctrl-C")
    assert facts.processes["Ctrl-C"]["status"] in (-signal.SIGINT, 1)
    assert changes(run) == [MADE, ended("FAILED")]
    assert rows_of(facts, run) == losses(range(1, 4))


def test_an_exception_that_nobody_catches_is_failed(facts):
    run = run_of(facts, "crash")
    assert facts.processes["crash"]["status"] == 1
    assert changes(run) == [MADE, ended("FAILED")]
    assert rows_of(facts, run) == losses(range(1, 4))


def test_a_killed_process_leaves_its_rows_and_a_run_that_is_marked_failed(facts):
    run = run_of(facts, "SIGKILL")
    assert facts.processes["SIGKILL"]["status"] == -signal.SIGKILL
    assert rows_of(facts, run) == losses(range(1, 4))
    event = run["history"][1]
    assert changes(run)[1] == ("RUNNING", "FAILED", "stale-monitor")
    metadata = json.loads(event["metadata"])
    assert metadata["reason"] in ("heartbeat-timeout", "stale")  # killed before its first beat
    assert metadata["grace_seconds"] == GRACE_SECONDS
    assert metadata["stale_for_seconds"] >= GRACE_SECONDS
    assert [alert["level"] for alert in run["alerts"]] == ["RUN_FAILED"]


def test_a_run_marked_failed_stays_so_when_it_ends_well_and_runs_again_when_resumed(facts):
    late, beat, again = facts.answers["alive again"]
    assert late == [200, {"success": True}]
    assert beat == [200, {"status": "FAILED", "triggers": None}]
    assert again == [200, {"status": "RUNNING", "triggers": None}]
    assert changes(run_of(facts, "SIGKILL"))[2:] == [
        ("FAILED", "RUNNING", "resume"),
        ended("COMPLETED"),
    ]


def test_a_run_without_heartbeats_is_failed_when_its_rows_stop(facts):
    run = facts.runs[str(facts.answers["silent"])]
    assert not run["has_beaten"]
    assert changes(run) == [MADE, ("RUNNING", "FAILED", "stale-monitor")]
    assert json.loads(run["history"][1]["metadata"])["reason"] == "stale"


def test_finish_with_a_code_is_failed(facts):
    assert facts.processes["ends"]["status"] == 0
    assert changes(run_of(facts, "finish(code=1)")) == [MADE, ended("FAILED")]


def test_a_closed_run_stays_running_until_it_is_found_silent(facts):
    run = run_of(facts, "close()")
    assert changes(run) == [MADE, ("RUNNING", "FAILED", "stale-monitor")]
    assert rows_of(facts, run) == losses(range(1, 3))
