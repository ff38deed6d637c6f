"""`charon wal`, `quarantine` and `reconcile` beside a real server that is at work."""

import json
import os
import subprocess
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
