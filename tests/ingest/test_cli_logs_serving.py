"""`charon wal`, `quarantine` and `reconcile` beside a real server that is at work."""

import json
import os
import subprocess
import threading
import time
import urllib.request

import pytest

from loadtest.throwaway import COMMAND, TREE, Server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    one = Server(tmp_path_factory.mktemp("logs") / "data", {"batch_age_seconds_max": "0.1"})
    try:
        one.start()
        yield one
    finally:
        if one.process is not None and one.process.poll() is None:
            assert one.stop() == 0


def charon(server, *arguments, status=0):
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("CHARON_", "CLICKHOUSE_"))}
    done = subprocess.run(
        [*COMMAND, *arguments, "--data-dir", str(server.data_dir), "--json"],
        env=kept | {"PYTHONPATH": str(TREE), "CHARON_DISK_FREE_BYTES_MIN": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout)


def send(server, *values):
    """One request, a step a value; returns when it is answered."""
    body = "".join(
        json.dumps({"time": 1764423221123, "step": value, "data": {"loss": value}}) + "\n"
        for value in values
    )
    request = urllib.request.Request(
        f"{server.url}/ingest/metrics",
        data=body.encode(),
        headers={
            "Authorization": f"Bearer {server.key}",
            "Content-Type": "application/x-ndjson",
            "X-Run-Id": "1",
            "X-Run-Name": "r",
            "X-Project-Name": "p",
        },
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


def eventually(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def values(server):
    return [value for [value] in server.sql("SELECT value FROM mlop_metrics ORDER BY value")]


@pytest.mark.slow
def test_rows_set_aside_and_rows_lost_come_back_once_while_the_server_serves(server):
    charon(server, "sql", "--write", "ALTER TABLE mlop_metrics ADD CONSTRAINT c CHECK value != 7")
    send(server, *range(10))
    eventually(lambda: len(charon(server, "quarantine", "ls")) == 1)
    eventually(lambda: len(values(server)) == 9)
    charon(server, "sql", "--write", "ALTER TABLE mlop_metrics DROP CONSTRAINT c")
    assert charon(server, "quarantine", "replay", "--all")["rows"] == 1

    # While that waits to be adopted: the server's rows are deleted behind its back.
    charon(
        server,
        "sql",
        "--write",
        "ALTER TABLE mlop_metrics DELETE WHERE value < 7 SETTINGS mutations_sync = 2",
    )
    found = charon(server, "reconcile", "--settled-seconds", "0", status=1)
    assert found["missing"] > 0
    again = charon(server, "reconcile", "--settled-seconds", "0", "--resend")
    assert (again["asked"], again["missing"], again["waiting"]) == (found["missing"], 0, 0)
    assert values(server)[:7] == [0, 1, 2, 3, 4, 5, 6]

    eventually(lambda: 7 in values(server))
    eventually(lambda: len(charon(server, "wal", "stat")) == 1)
    send(server, 10)
    eventually(lambda: values(server) == list(range(11)))
    assert charon(server, "wal", "verify")["damage"] == []
    assert charon(server, "reconcile", "--settled-seconds", "0")["missing"] == 0
    assert server.is_ok()


@pytest.mark.slow
def test_a_table_that_lost_its_rows_gets_them_from_the_log_and_looking_disturbs_nobody(server):
    send(server, *range(100, 150))
    eventually(lambda: len(rows(server)) == 50)
    before, workers = rows(server), server.worker_pids()
    said = len(server.log_path.read_text())
    charon(server, "sql", "--write", "TRUNCATE TABLE mlop_metrics")
    assert rows(server) == []

    with Sending(server) as sending:  # looked at in the midst of commits and deliveries
        [shard] = charon(server, "wal", "ls")
        for command in ("stat", "show", "verify"):
            charon(server, "wal", command)
        replayed = charon(server, "wal", "replay", "--shard", shard["shard"], "--stream", "metrics")
        assert replayed["rows"] >= 50
    eventually(lambda: set(before) <= set(rows(server)))
    eventually(lambda: len(rows(server)) >= 50 + len(sending.values))
    eventually(lambda: len(charon(server, "wal", "ls")) == 1)
    expected = {*before} | {(value, value, "loss", 1764423221123) for value in sending.values}
    found = [row for row in rows(server) if row[0] >= 100]
    assert sorted(found) == sorted(expected), "row by row, each once"
    assert server.is_ok()
    assert server.worker_pids() == workers
    log = server.log_path.read_text()[said:]
    assert not [line for line in log.splitlines() if " error " in line or " warning " in line]


def rows(server):
    """Every row from 100 on, as a reader sees it: value, step, name, time."""
    return [
        tuple(row)
        for row in server.sql(
            "SELECT value, step, logName, toUInt64(toUnixTimestamp64Milli(time)) "
            "FROM mlop_metrics FINAL WHERE value >= 100 ORDER BY ALL "
            "SETTINGS output_format_json_quote_64bit_integers = 0"
        )
    ]


class Sending:
    """Requests one after the other, in a thread, until the block ends; each must be a 200."""

    def __init__(self, server):
        self.values = []
        self._server = server
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._failed = None

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self._thread.join()
        assert self._failed is None

    def _run(self):
        try:
            while not self._is_over.wait(0.02):
                value = 1_000 + len(self.values)
                send(self._server, value)
                self.values.append(value)
        except Exception as error:
            self._failed = error
