"""`charon runs`: looking at runs and stopping one, without a server."""

import asyncio
import json

import pytest

from catalog import Catalog, sqlite_url
from catalog.run_creation import NewRun
from catalog.run_status import StatusRequest
from catalog.statuses import Status


@pytest.fixture
def runs(charon, no_settings, monkeypatch, tmp_path):
    """Runs `charon runs …`; gives its exit status, output and error output."""
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments: charon("runs", *arguments, "--data-dir", tmp_path)


def in_catalogue(tmp_path, work):
    async def run():
        catalog = await Catalog.open(sqlite_url(tmp_path / "catalog.sqlite"))
        try:
            await catalog.upgrade()
            return await work(catalog)
        finally:
            await catalog.close()

    return asyncio.run(run())


@pytest.fixture
def ids(tmp_path):
    """Two runs of Acme, the second COMPLETED, and one of Beta whose display id is the first's."""

    async def make(catalog):
        acme = (await catalog.organisations.create("Acme")).id
        beta = (await catalog.organisations.create("Beta")).id
        made = []
        for tenant, project, external in (
            (acme, "vision", "job-17"),
            (acme, "speech", None),
            (beta, "vision", None),
        ):
            new = NewRun(name="a run", project=project, external_id=external, config='{"lr": NaN}')
            made.append((await catalog.runs.create(tenant, new)).run.id)
        await catalog.runs.update_status(acme, made[1], StatusRequest(Status.COMPLETED))
        return made

    return in_catalogue(tmp_path, make)


def test_runs_are_listed_newest_first_and_filtered(runs, ids):
    one, two, three = ids

    def listed(*arguments):
        status, out, err = runs("ls", *arguments, "--json")
        assert status == 0, err
        return [run["id"] for run in json.loads(out)]

    assert listed() == [three, two, one]
    assert listed("--organisation", "acme") == [two, one]
    assert listed("--project", "vision") == [three, one]
    assert listed("--status", "running", "--organisation", "Acme") == [one]
    assert listed("--status", "RUNNING", "--status", "COMPLETED") == [three, two, one]
    assert listed("--limit", "1") == [three]
    status, out, _ = runs("ls", "--limit", "1")
    assert status == 0
    assert "VIS-1" in out
    assert "the newest 1" in out


def test_a_run_is_found_by_number_display_id_and_external_id(runs, ids):
    one, two, three = ids
    for which, more, expected in (
        (one, (), one),
        ("job-17", (), one),
        ("SPE-1", (), two),
        ("spe-1", (), two),
        ("VIS-1", ("--organisation", "beta"), three),
    ):
        status, out, err = runs("show", which, *more, "--json")
        assert status == 0, err
        assert json.loads(out)["id"] == expected
    status, _, err = runs("show", "VIS-1")
    assert status == 1
    assert f"'VIS-1' is several runs: {three} (project 'vision' of beta), {one}" in err
    assert "name one by its number" in err


def test_a_run_is_shown_with_its_history(runs, ids):
    _, out, _ = runs("show", ids[1], "--json")
    shown = json.loads(out)
    assert [(e["from"], e["to"], e["source"]) for e in shown["history"]] == [
        (None, "RUNNING", "api"),
        ("RUNNING", "COMPLETED", "api"),
    ]
    status, out, _ = runs("show", ids[1])
    assert status == 0
    assert "COMPLETED" in out


def test_a_run_is_asked_to_stop_once_by_name_and_with_a_reason(runs, ids, tmp_path):
    status, out, err = runs("cancel", "job-17", "--reason", "it diverged", "--json")
    assert status == 0, err
    told = json.loads(out)
    assert (told["id"], told["status"], told["is_quiet"]) == (ids[0], "RUNNING", True)
    assert told["request"]["reason"] == "it diverged"
    assert told["request"]["actor"].startswith("cli:")
    status, out, _ = runs("cancel", ids[0])
    assert status == 0
    assert "no heartbeat of it was ever seen" in out

    async def requests(catalog):
        return await catalog.triggers.of_run(ids[0])

    assert [trigger.kind for trigger in in_catalogue(tmp_path, requests)] == ["CANCEL"]
    assert "not heard yet" in runs("show", ids[0])[1]


def test_what_cannot_be_done_says_why_and_what_to_do(runs, ids):
    for arguments, status, words in (
        (("cancel", ids[1]), 1, "is COMPLETED: only a run that is RUNNING can be cancelled"),
        (("cancel", "nope"), 1, "there is no run 'nope': `charon runs ls`"),
        (("show", "9" * 30), 1, "there is no run"),
        (("cancel", ids[0], "--organisation", "beta"), 1, "there is no run"),
        (("ls", "--organisation", "nobody"), 1, "nobody"),
        (("ls", "--status", "DONE"), 2, "is no status: RUNNING, COMPLETED"),
        (("cancel", ids[0], "--reason", "x" * 1001), 1, "reason may have at most 1,000"),
    ):
        found, _, err = runs(*arguments)
        assert (found, words in " ".join(err.replace("│", " ").split())) == (status, True), err


def test_without_a_catalogue_it_says_so(runs):
    status, _, err = runs("ls")
    assert status == 1
    assert "there is no catalogue" in err
