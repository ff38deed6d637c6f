"""Fifty writers in two processes on one database, all after the same project and run."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from sqlalchemy import func, select

from catalog.tables import log_names

WRITERS = 50


async def _race(tenant) -> list[dict]:
    url = tenant.catalog.database.url.render_as_string(hide_password=False)
    pipe = subprocess.PIPE
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.catalog.writer_process"],
            cwd=Path(__file__).parents[2],
            stdin=pipe,
            stdout=pipe,
            text=True,
        )
        for _ in range(2)
    ]
    for first, process in enumerate(processes):
        writers = list(range(first, WRITERS, 2))
        print(
            json.dumps({"url": url, "tenant": tenant.id, "writers": writers}),
            file=process.stdin,
            flush=True,
        )
    for process in processes:
        assert await asyncio.to_thread(process.stdout.readline) == "ready\n"
    outputs = await asyncio.gather(
        *(asyncio.to_thread(process.communicate, "go\n") for process in processes)
    )
    return [told for output, _ in outputs for told in json.loads(output)]


async def test_fifty_writers_in_two_processes_get_one_story(tenant):
    told = await _race(tenant)
    assert len(told) == WRITERS
    # One run of the external id, made once; every other number of the project given once.
    ((job_id, job_number),) = {tuple(one["job"]) for one in told}
    assert sorted(one["resumed"] for one in told) == [False] + [True] * (WRITERS - 1)
    numbers = sorted([one["own"][1] for one in told] + [job_number])
    assert numbers == list(range(1, WRITERS + 2))
    assert len({one["own"][0] for one in told} | {job_id}) == WRITERS + 1
    (project,) = await tenant.catalog.runs.projects(tenant.id)
    assert (project.name, project.run_count) == ("shared", WRITERS + 1)

    # Merges lost nothing; a list of tags is somebody's whole one.
    run = await tenant.catalog.runs.find(tenant.id, job_id)
    config = json.loads(run.config)
    assert config.pop("merged") == {f"by {writer}": writer for writer in range(WRITERS)}
    assert config == {f"created by {writer}": writer for writer in range(WRITERS)}
    writer = run.tags[0].removeprefix("writer ")
    assert run.tags == [f"writer {writer}", f"again {writer}"]

    # Each event begins where the one before it ended, and no client made a final status milder.
    events = await tenant.catalog.runs.history(tenant.id, job_id)
    assert events[0].from_status is None
    assert all(one.to_status == two.from_status for one, two in pairwise(events))
    assert all(event.from_status != event.to_status for event in events)
    severity = ["COMPLETED", "TERMINATED", "CANCELLED", "FAILED"]
    for event in events[1:]:
        if "RUNNING" not in (event.from_status, event.to_status):
            assert severity.index(event.from_status) < severity.index(event.to_status)
    assert run.status == events[-1].to_status

    async with tenant.catalog.database.read() as connection:
        statement = select(func.count()).select_from(log_names)
        assert (await connection.execute(statement)).scalar_one() == 20
