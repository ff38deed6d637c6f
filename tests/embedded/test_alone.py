"""`charon clickhouse`: the engine as a command of its own, from its ready line to its end."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import urllib.error
import urllib.request
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

COMMAND = (sys.executable, "-P", "-m", "ingest.cli")
ROOT = Path(__file__).resolve().parents[2]


def environment(**extra):
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("CHARON_", "CLICKHOUSE_", "DATABASE_"))
    }
    return {**kept, "PYTHONPATH": str(ROOT), **extra}


class Engine:
    """One `charon clickhouse --json`, ready."""

    def __init__(self, data_dir, *options, **variables):
        self.process = subprocess.Popen(
            [*COMMAND, "clickhouse", "--json", "--port", "0", "--data-dir", data_dir, *options],
            env=environment(**variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        self.facts = json.loads(line)

    def ask(self, query, password, user="charon"):
        """The answer's text, or the status of a refusal."""
        request = urllib.request.Request(
            self.facts["url"],
            data=query.encode(),
            headers={"X-ClickHouse-User": user, "X-ClickHouse-Key": password},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    def stop(self):
        """SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        _, self.log = self.process.communicate(timeout=30)
        return self.process.returncode


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("alone") / "data"


@pytest.fixture(scope="module")
def engine(data_dir):
    engine = Engine(data_dir)
    yield engine
    if engine.process.poll() is None:
        engine.process.kill()
        engine.process.communicate()


def refused(*words, data_dir):
    done = subprocess.run(
        [*COMMAND, *words, "--data-dir", data_dir],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr


def test_the_ready_line_says_where_who_and_where_the_password_lies(engine, data_dir):
    assert engine.facts["pid"] == engine.process.pid
    assert engine.facts["url"].startswith("http://127.0.0.1:")  # loopback unless told otherwise
    assert engine.facts["user"] == "charon"
    file = Path(engine.facts["password_file"])
    assert file == data_dir / "clickhouse.password"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    password = file.read_text().strip()
    assert engine.ask("SELECT 41 + 1", password) == "42\n"
    assert engine.ask("SELECT 1", "wrong") in {401, 403}
    arguments = Path(f"/proc/{engine.process.pid}/cmdline").read_text()
    assert password not in arguments


def test_the_directory_is_refused_to_a_second_one_and_to_a_server_by_the_holders_pid(
    engine, data_dir
):
    for words in (("clickhouse", "--port", "0"), ("serve", "--port", "0")):
        said = refused(*words, data_dir=data_dir)
        assert str(data_dir) in said
        assert f"pid {engine.process.pid}" in said


def test_commands_that_look_for_a_server_there_say_what_it_is(engine, data_dir):
    said = refused("sql", "SELECT 1", data_dir=data_dir)
    assert f"process {engine.process.pid}" in said
    assert "--clickhouse-url" in said


def test_a_taken_port_is_an_error_that_names_it(engine, tmp_path):
    port = engine.facts["url"].rpartition(":")[2]
    assert f"port {port}" in refused("clickhouse", "--port", port, data_dir=tmp_path / "other")


def test_what_the_shipped_clickhouse_files_set_exists(engine):
    password = Path(engine.facts["password_file"]).read_text().strip()
    for table, file, element in (
        ("server_settings", "memory.xml", "."),
        ("settings", "queries.xml", "profiles/default"),
    ):
        root = ET.parse(ROOT / "deploy" / "clickhouse" / file).getroot()
        named = {one.tag for one in root.find(element)}
        known = set(engine.ask(f"SELECT name FROM system.{table}", password).split())
        # One ratio is read by the server's own start, before there are settings of a server.
        assert named - known <= {"max_server_memory_usage_to_ram_ratio"}
        assert named


def test_sigterm_closes_it_and_what_was_inserted_is_there_at_the_next_start(engine, data_dir):
    password = Path(engine.facts["password_file"]).read_text().strip()
    engine.ask("CREATE TABLE charon.kept (a UInt64) ENGINE = MergeTree ORDER BY a", password)
    engine.ask("INSERT INTO charon.kept VALUES (1), (2), (3)", password)
    assert engine.stop() == 0
    assert b"Traceback" not in engine.log
    # The environment's password and user win over the file's; no table was made by the start.
    again = Engine(
        data_dir,
        CHARON_CLICKHOUSE_PASSWORD="from the environment",
        CHARON_CLICKHOUSE_USER="replicas",
    )
    try:
        assert again.facts["password_file"] is None
        assert again.ask("SELECT sum(a) FROM charon.kept", password) in {401, 403}
        shown = again.ask("SHOW TABLES FROM charon", "from the environment", user="replicas")
        assert shown == "kept\n"
    finally:
        assert again.stop() == 0
