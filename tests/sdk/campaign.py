"""All training processes of the SDK tests, side by side against two servers, and what they left.

One server keeps its catalogue in SQLite, the other in Postgres; both write to the one ClickHouse
that the first has embedded. The SDK waits for seconds at every turn, so everything that can run at
once does. What is found in the end (statuses, histories, rows, exit codes) are plain values, which
the tests read: `Facts`.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from catalog import Catalog, sqlite_url
from catalog.tables import alerts, heartbeats, runs
from loadtest.throwaway import Server
from tests.e2e.sdk import environment
from tests.postgres import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Callable

SCRIPT = Path(__file__).parent / "training.py"
GRACE_SECONDS = 30
"""Long enough for a training process to be heard of on a busy machine, short enough to wait for."""
SETTINGS = {
    "heartbeat_grace_seconds": str(GRACE_SECONDS),
    "silence_grace_seconds": str(GRACE_SECONDS),
    "reaper_interval_seconds": "1",
}
SECONDS_MAX = 200.0


@dataclass
class Facts:
    """What was seen of one server; everything is JSON."""

    processes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By name: exit status, end of its output, seconds from its start or a signal to its end."""
    notes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What the processes wrote down, by name: `run_id`, `resumed` and more."""
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Rows of the catalogue by run id, with `history` and `alerts`."""
    rows: dict[str, list[list[Any]]] = field(default_factory=dict)
    """By run id: project, name, step and value of each metric row, in that order."""
    answers: dict[str, Any] = field(default_factory=dict)
    """Of HTTP calls and commands that the test made itself."""


class Training:
    """One process."""

    def __init__(
        self, site: Site, name: str, mode: str, more: dict[str, str], **given: Any
    ) -> None:
        home = site.home / name.replace(" ", "-")
        self.name = name
        self.notes = home / "notes"
        variables = environment(site.server.url, site.server.key, home) | more
        self._started = time.monotonic()
        self._log = (home / "output").open("w+")
        self._process = subprocess.Popen(
            [
                sys.executable,
                str(SCRIPT),
                json.dumps({"mode": mode, "notes": str(self.notes)} | given),
            ],
            env=variables,
            cwd=home,
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def noted(self) -> list[dict[str, Any]]:
        if not self.notes.exists():
            return []
        return [json.loads(line) for line in self.notes.read_text().splitlines()]

    def run_id(self) -> int:
        """Of its first run, once it has one."""
        wait_for(lambda: self.noted() or not self._is_running(), f"a run of {self.name}")
        noted = self.noted()
        assert noted, f"{self.name} made no run:\n{self._output()}"
        return int(noted[0]["run_id"])

    def send(self, number: signal.Signals) -> None:
        self._started = time.monotonic()
        self._process.send_signal(number)

    def end(self) -> dict[str, Any]:
        """Wait for it; what is to be known of its end."""
        try:
            status = self._process.wait(timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"{self.name} did not end:\n{self._output()}") from None
        seconds = time.monotonic() - self._started
        return {"status": status, "seconds": seconds, "output": self._output()}

    def stop(self) -> None:
        if self._is_running():
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _is_running(self) -> bool:
        return self._process.poll() is None

    def _output(self) -> str:
        self._log.seek(0)
        return self._log.read()[-4000:]


class Site:
    """A server, and what runs against it."""

    def __init__(self, home: Path, url: str | None, clickhouse: Server | None) -> None:
        self.home = home
        home.mkdir()
        settings = dict(SETTINGS)
        if url is not None:
            settings["database_url"] = url
        if clickhouse is not None:
            settings |= {
                "clickhouse_url": clickhouse.clickhouse_url,
                "clickhouse_user": "charon",
                "clickhouse_password": clickhouse.clickhouse_password,
            }
        self.server = Server(home / "data", settings)
        self.clickhouse = clickhouse or self.server
        self._url = url or sqlite_url(home / "data" / "catalog.sqlite")
        self._trainings: list[Training] = []
        self.facts = Facts()

    def start(
        self, name: str, mode: str, more: dict[str, str] | None = None, **given: Any
    ) -> Training:
        training = Training(self, name, mode, more or {}, **given)
        self._trainings.append(training)
        return training

    def play(self) -> Facts:
        """Every scenario; those that wait for others come last."""
        waiting = {
            name: self.start(name, "wait", what=name)
            for name in ("cancel", "SIGTERM", "Ctrl-C", "SIGKILL")
        }
        job = {"PLUTO_RUN_ID": "job-17"}
        ranks = [self.start(f"rank {n}", "rank", job, number=n) for n in range(3)]
        others = [self.start("crash", "crash"), self.start("ends", "ends")]
        life = self.start("life", "life")
        self.facts.answers["silent"] = self._silent_run()
        for training in (*waiting.values(), *ranks, *others, life):
            training.run_id()  # all have started: on SIGTERM the SDK tries once, for 5 s
        for name, number in (
            ("SIGTERM", signal.SIGTERM),
            ("Ctrl-C", signal.SIGINT),
            ("SIGKILL", signal.SIGKILL),
        ):
            waiting[name].send(number)
        self._cancel(waiting["cancel"])
        parent = life.run_id()
        others.append(self.start("forks", "forks", parent=parent))
        for training in (*waiting.values(), *ranks, *others, life):
            self.facts.processes[training.name] = training.end()
            for note in training.noted():
                self.facts.notes[note["name"]] = note
        self._outlive(waiting["SIGKILL"].run_id())
        self._collect()
        return self.facts

    def close(self) -> None:
        for training in self._trainings:
            training.stop()
        if self.server.process is not None and self.server.process.poll() is None:
            self.server.stop()

    def _silent_run(self) -> int:
        """A run that sends no heartbeat, and rows once; whose header names another project."""
        made = self._post("/api/runs/create", {"runName": "curl", "projectName": "by hand"})
        run_id = int(made[1]["runId"])
        line = {"time": time.time_ns() // 1_000_000, "step": 1, "data": {"loss": 0.5}}
        headers = {"X-Run-Id": str(run_id), "X-Project-Name": "a typing error"}
        assert self._post("/ingest/metrics", line, **headers)[0] == 200
        return run_id

    def _cancel(self, training: Training) -> None:
        """From outside; then the run is resumed, and goes on to live."""
        run_id = training.run_id()
        command = ["runs", "cancel", str(run_id), "--reason", "it diverged"]
        self.facts.answers["cancel"] = self.server.command(*command)
        training.end()
        resumed = self._post("/api/runs/resume", {"runId": run_id})
        beats = []
        for _ in range(3):
            beats.append(self._post("/api/runs/trigger", {"runId": run_id}))
            time.sleep(1.5)  # the server compares its runs with the catalogue every 2 s
        self.facts.answers["after cancel"] = [resumed[1]["resumed"], beats]
        done = {"runId": run_id, "status": "COMPLETED"}
        self.facts.answers["cancelled run ends"] = self._post("/api/runs/status/update", done)

    def _outlive(self, run_id: int) -> None:
        """A killed run is found FAILED; says later that it ended well; is resumed at last."""
        path = f"/api/runs/status/history?runId={run_id}"
        wait_for(lambda: self._get(path)["events"][-1]["toStatus"] == "FAILED", "the reaper")
        done = {"runId": run_id, "status": "COMPLETED"}
        late = self._post("/api/runs/status/update", done)
        beat = self._post("/api/runs/trigger", {"runId": run_id})
        self._post("/api/runs/resume", {"runId": run_id})
        again = self._post("/api/runs/trigger", {"runId": run_id})
        self.facts.answers["alive again"] = [late, beat, again]
        self._post("/api/runs/status/update", done)

    def _collect(self) -> None:
        for name in ("close()",):
            path = f"/api/runs/status/history?runId={self.facts.notes[name]['run_id']}"
            wait_for(lambda p=path: self._get(p)["events"][-1]["toStatus"] == "FAILED", name)
        silent = f"/api/runs/status/history?runId={self.facts.answers['silent']}"
        wait_for(lambda: self._get(silent)["events"][-1]["toStatus"] == "FAILED", "silence")
        tenant = asyncio.run(self._read_catalogue())
        found: dict[str, list[list[Any]]] = defaultdict(list)
        for run_id, *row in self.clickhouse.sql(
            "SELECT toString(runId), projectName, logName, step, value FROM mlop_metrics FINAL "
            f"WHERE tenantId = '{tenant}' AND NOT startsWith(logName, 'sys/') "
            "ORDER BY runId, projectName, logName, step"
        ):
            found[run_id].append(row)
        self.facts.rows = dict(found)

    async def _read_catalogue(self) -> str:
        catalog = await Catalog.open(self._url)
        async with catalog.database.read() as connection:
            found = [dict(row._mapping) for row in await connection.execute(select(runs))]
            beaten = set((await connection.execute(select(heartbeats.c.run_id))).scalars())
            warned = [dict(row._mapping) for row in await connection.execute(select(alerts))]
        for run in found:
            events = await catalog.runs.history(run["organisation_id"], run["id"])
            run["history"] = [asdict(event) for event in events]
            run["has_beaten"] = run["id"] in beaten
            run["alerts"] = [alert for alert in warned if alert["run_id"] == run["id"]]
            project = await catalog.runs.project_of(run["organisation_id"], run["id"])
            self.facts.runs[str(run["id"])] = run | {"project": project}
        await catalog.close()
        return str(found[0]["organisation_id"])

    def _post(self, path: str, body: Any, **headers: str) -> list[Any]:
        """Status and body of the answer."""
        data = json.dumps(body).encode()
        headers |= {"Content-Type": "application/json"}
        return self._call(
            urllib.request.Request(self.server.url + path, data=data, headers=headers)
        )

    def _get(self, path: str) -> Any:
        return self._call(urllib.request.Request(self.server.url + path))[1]

    def _call(self, request: urllib.request.Request) -> list[Any]:
        request.add_header("Authorization", f"Bearer {self.server.key}")
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    text = answer.read()
                    is_json = "json" in answer.headers.get("Content-Type", "")
                    return [answer.status, json.loads(text) if is_json else text.decode()]
            except urllib.error.HTTPError as error:
                # A machine that starts a dozen processes may look a key up too late; the SDK, too,
                # tries again.
                if error.code != 503 or time.monotonic() > deadline:
                    raise
                error.close()
                time.sleep(1)


def run_campaign(directory: Path) -> dict[str, Facts]:
    """Facts by engine of the catalogue."""
    with PostgresServer.running() as postgres, postgres.database() as url:
        sites: dict[str, Site] = {}
        try:
            sites["sqlite"] = first = Site(directory / "sqlite", None, None)
            first.server.start()
            sites["postgres"] = Site(directory / "postgres", url, first.server)
            sites["postgres"].server.start()
            with ThreadPoolExecutor() as pool:
                played = {name: pool.submit(site.play) for name, site in sites.items()}
                return {name: future.result() for name, future in played.items()}
        finally:
            for site in reversed(sites.values()):
                site.close()


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"not within {SECONDS_MAX} s: {what}"
        time.sleep(0.1)
