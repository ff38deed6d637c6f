"""The supervisor with small stand-in children: order, restarts, heartbeats, signals, no orphans."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest

from ingest.data_dir import DataDirLock, DataDirUnusable, holder
from ingest.layout import Layout
from ingest.ports import PortUnusable, is_free, reserve

STAND_IN = Path(__file__).with_name("stand_in.py")
ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 20


def until(condition, what):
    """Wait for something in another process; no event of ours tells of it."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {PATIENCE_SECONDS} s: {what}")


class Server:
    """A stand-in server in its own process, with what it printed and what its children noted."""

    def __init__(self, data_dir, workers=1, port=0, embedded_port=0):
        self.data_dir = data_dir
        data_dir.mkdir(exist_ok=True)
        self.output = data_dir.parent / f"{data_dir.name}.output"
        arguments = ["serve", str(data_dir), str(port), str(workers), str(embedded_port)]
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(STAND_IN), *arguments],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=output,
                stderr=output,
                cwd=data_dir,
            )
        self._process = psutil.Process(self.process.pid)

    @property
    def text(self):
        return self.output.read_text()

    @property
    def note(self):
        return json.loads((self.data_dir / "server.json").read_text())

    def events(self, word):
        path = self.data_dir / "events"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.startswith(word)]

    def children(self):
        return [c for c in self._process.children() if c.status() != psutil.STATUS_ZOMBIE]

    def child(self, word):
        found = [c for c in self.children() if word in c.cmdline()]
        return found[0] if found else None

    def wait_ready(self):
        until(lambda: "Charon serves on" in self.text or self.process.poll() is not None, "ready")
        assert self.process.poll() is None, self.text
        return self

    def ask(self):
        url = f"http://127.0.0.1:{self.note['port']}/"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return int(answer.read())

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_SECONDS)


@pytest.fixture
def server(tmp_path):
    """Starts servers; kills what is left of them and of their children."""
    started = []

    def start(**arguments):
        one = Server(tmp_path / arguments.pop("name", "data"), **arguments)
        started.append(one)
        return one

    yield start
    for one in started:
        with contextlib.suppress(psutil.NoSuchProcess):
            left = [one._process, *one._process.children()]
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        one.process.wait(PATIENCE_SECONDS)


def test_the_first_start_shows_the_key_once_and_the_lines_to_paste(server):
    first = server().wait_ready()
    port = first.note["port"]
    assert "export PLUTO_API_KEY=first_key-123" in first.text
    for role in ("APP", "API", "INGEST", "PY"):
        assert f"export PLUTO_URL_{role}=http://127.0.0.1:{port}\n" in first.text
    assert first.ask() == first.child("worker").pid
    assert first.stop() == 0
    second = server().wait_ready()
    until(lambda: second.text.count("Charon serves on") == 2, "the second start")
    assert second.text.count("first_key-123") == 1
    assert f"charon keys create NAME --data-dir {second.data_dir}\n" in second.text


def test_no_secret_is_in_arguments_environment_or_the_note(server):
    """F42."""
    one = server().wait_ready()
    password = (one.data_dir / "clickhouse.password").read_text().strip()
    assert (one.data_dir / "clickhouse.password").stat().st_mode & 0o777 == 0o600
    shown = one.text + (one.data_dir / "server.json").read_text()
    for process in one.children():
        shown += " ".join(process.cmdline()) + json.dumps(process.environ())
    assert len(password) >= 32
    assert password not in shown


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_the_workers_first_and_then_the_engine(server, number):
    one = server(workers=2).wait_ready()
    children = one.children()
    assert len(children) == 3
    assert one.stop(number) == 0
    ends = [line.split()[1] for line in one.events("end")]
    assert ends == ["worker", "worker", "engine"]
    assert not any(child.is_running() for child in children)
    assert not (one.data_dir / "server.json").exists()
    assert "Traceback" not in one.text


def test_a_dead_worker_is_started_again_at_once_and_the_others_serve_on(server):
    one = server(workers=2).wait_ready()
    victim = one.child("worker")
    victim.kill()
    until(lambda: len(one.events("start worker")) == 3, "the restart")
    until(lambda: len(one.children()) == 3, "all are there again")
    assert one.stop() == 0


def test_a_worker_that_dies_again_and_again_is_started_with_growing_pauses(server):
    one = server().wait_ready()
    begun = time.monotonic()
    for count in range(2, 5):
        until(lambda: one.child("worker"), "a worker").kill()
        until(lambda n=count: len(one.events("start worker")) == n, "the restart")
    assert time.monotonic() - begun >= 0.25 + 0.5
    assert "restart_waits" in one.text
    assert one.stop() == 0


def test_a_dead_engine_is_started_again_and_the_worker_stays(server):
    one = server().wait_ready()
    worker, engine = one.child("worker"), one.child("engine")
    engine.kill()
    until(lambda: len(one.events("start engine")) == 2, "the restart")
    assert one.child("worker") == worker
    assert one.stop() == 0


def test_an_engine_that_cannot_start_does_not_keep_the_workers_from_serving(server, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "broken-engine").touch()
    one = server().wait_ready()
    assert one.ask() == one.child("worker").pid
    until(lambda: len(one.events("broken engine")) >= 3, "it is tried again")
    (tmp_path / "data" / "broken-engine").unlink()
    until(lambda: one.events("start engine"), "it starts at last")
    assert one.stop() == 0


def test_a_worker_without_a_heartbeat_is_killed_and_replaced(server):
    one = server().wait_ready()
    deaf = one.child("worker")
    (one.data_dir / "deaf").touch()
    until(lambda: not deaf.is_running(), "it is killed")
    until(lambda: len(one.events("start worker")) == 2, "it is replaced")
    assert "killed_as_late" in one.text
    assert one.stop() == 0


def test_a_stopped_worker_is_killed_too(server):
    one = server().wait_ready()
    frozen = one.child("worker")
    frozen.suspend()
    until(lambda: not frozen.is_running(), "it is killed")
    until(lambda: len(one.events("start worker")) == 2, "it is replaced")
    assert one.stop() == 0


def test_no_child_outlives_a_killed_supervisor_and_the_next_start_succeeds_at_once(server):
    """F33, first half: the lock of the dead does not block the living."""
    one = server(workers=2).wait_ready()
    port, children = one.note["port"], one.children()
    one.stop(signal.SIGKILL)
    assert (one.data_dir / "server.json").exists()
    two = server(port=port)
    until(lambda: not any(child.is_running() for child in children), "no orphan is left")
    two.wait_ready()
    assert two.note["port"] == port
    assert two.stop() == 0


def test_a_second_signal_does_not_wait(server):
    one = server().wait_ready()
    one.child("worker").suspend()  # it will not hear SIGTERM
    one.process.send_signal(signal.SIGINT)
    until(lambda: "stopping" in one.text, "it stops")
    begun = time.monotonic()
    one.process.send_signal(signal.SIGINT)
    assert one.process.wait(PATIENCE_SECONDS) == 0
    assert time.monotonic() - begun < 5


def test_a_second_server_on_the_data_directory_is_refused_with_the_holders_pid(server):
    """F33, second half, and F29: the engine's own error for a taken path would give no reason."""
    one = server().wait_ready()
    assert holder(Layout(one.data_dir)) == one.process.pid
    two = server()
    assert two.process.wait(PATIENCE_SECONDS) != 0
    assert f"in use by another server, pid {one.process.pid}" in two.text
    assert one.stop() == 0
    assert holder(Layout(one.data_dir)) is None


def test_a_taken_port_is_an_error_that_names_it_even_while_no_worker_listens(server):
    one = server().wait_ready()
    port = one.note["port"]
    two = server(name="other", port=port)
    assert two.process.wait(PATIENCE_SECONDS) != 0
    assert f"port {port} on 127.0.0.1 is taken" in two.text
    assert "--port" in two.text
    with pytest.raises(PortUnusable, match=str(port)):
        reserve("127.0.0.1", port)
    one.stop()
    assert is_free("127.0.0.1", port)


def test_a_taken_engine_port_is_replaced_by_a_free_one(server):
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as other:
        taken = other.getsockname()[1]
        one = server(embedded_port=taken).wait_ready()
        assert one.note["clickhouse_port"] != taken
        assert "embedded_port_taken" in one.text
        assert one.stop() == 0


def test_a_catalogue_that_cannot_be_prepared_ends_the_start_with_its_reason(server, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "no-catalogue").touch()
    one = server()
    assert one.process.wait(PATIENCE_SECONDS) != 0
    assert "the disk is full: make room" in one.text
    assert not one.events("start worker")


def test_workers_that_cannot_start_at_all_end_the_start_and_not_a_loop(server, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "broken-worker").touch()
    one = server(workers=2)
    assert one.process.wait(PATIENCE_SECONDS) != 0
    assert "the log cannot be read" in one.text
    assert "no worker can start" in one.text
    assert len(one.events("broken worker")) >= 6


def test_a_stop_during_the_start_is_orderly(server):
    one = server()
    until(lambda: one.events("start engine"), "the engine starts")
    assert one.stop() == 0
    assert "Traceback" not in one.text


@pytest.mark.parametrize(
    ("host", "port", "words"),
    [
        ("no.such.host.invalid", 0, "is no address"),
        ("192.0.2.1", 0, "not an address of this machine"),
    ],
)
def test_a_host_that_is_not_ours_is_named(host, port, words):
    with pytest.raises(PortUnusable, match=words):
        reserve(host, port)


def test_the_reserved_port_is_one_on_all_addresses_of_a_name():
    with contextlib.closing(reserve("localhost", 0)) as reservation:
        assert not is_free("127.0.0.1", reservation.port)


def test_a_data_directory_that_is_a_file_or_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataDirUnusable, match=r"is a file.*--data-dir"):
        DataDirLock.take(Layout(tmp_path / "file"))
    with pytest.raises(DataDirUnusable, match=r"cannot be written|is a file"):
        DataDirLock.take(Layout(tmp_path / "file" / "below"))
