"""The command line without a server: keys, organisations, and what is said when it fails."""

import contextlib
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ingest.cli import app
from ingest.cli_output import print_table, shown

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _wide_and_bare(monkeypatch, no_settings):
    monkeypatch.setenv("COLUMNS", "200")


def test_the_first_key_needs_no_organisation_and_no_server(charon_json, tmp_path):
    made = charon_json("keys", "create", "laptop", "--data-dir", tmp_path / "data")
    assert made["key"].startswith("mlps_")
    assert (made["name"], made["organisation"], made["expires_at"]) == ("laptop", "default", None)
    (listed,) = charon_json("keys", "list", "--data-dir", tmp_path / "data")
    assert listed["id"] == made["id"]
    assert made["key"] not in json.dumps(listed)
    assert (tmp_path / "data").stat().st_mode & 0o077 == 0


def test_a_key_is_shown_once_as_the_line_to_paste(charon):
    status, out, _ = charon("keys", "create", "laptop")
    assert status == 0
    line = out.strip().splitlines()[-1]
    assert line.startswith("export PLUTO_API_KEY=mlps_")
    assert line.partition("=")[2] not in charon("keys", "list")[1]


def test_keys_expire_and_are_revoked_by_name_prefix_or_id(charon_json, charon):
    a = charon_json("keys", "create", "a", "--expires-in", "2d")
    b = charon_json("keys", "create", "b")
    assert a["expires_at"] > a["created_at"]
    assert charon_json("keys", "revoke", "a")["state"] == "revoked"
    assert charon_json("keys", "revoke", b["prefix"])["state"] == "revoked"
    assert charon_json("keys", "revoke", b["id"])["state"] == "revoked"
    status, _, err = charon("keys", "revoke", "c")
    assert (status, err.count("\n")) == (1, 1)
    assert "charon keys ls" in err


def test_a_key_is_rotated_ended_and_shown(charon_json, charon):
    old = charon_json("keys", "create", "ci", "--scopes", "ingest")
    new = charon_json("keys", "rotate", "ci", "--overlap", "1h")
    assert new["key"] != old["key"]
    assert (new["scopes"], new["rotated_from"]) == (["ingest"], old["id"])
    assert new["replaces"]["id"] == old["id"]
    assert charon_json("keys", "expire", old["id"])["state"] == "expired"
    assert charon_json("keys", "expire", old["id"], "--in", "2h")["state"] == "valid"
    assert charon_json("keys", "expire", old["id"], "--never")["expires_at"] is None
    shown = charon_json("keys", "show", old["key"])
    assert (shown["id"], shown["organisation"]) == (old["id"], "default")
    status, out, _ = charon("keys", "show", new["id"])
    assert status == 0
    assert f"rotated from  {old['id']}" in out
    assert new["key"] not in out
    assert [one["name"] for one in charon_json("keys", "ls")] == ["ci", "ci"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["create", "x", "--scopes", "write"], "no scope 'write'"),
        (["create", "x", "--expires-in", "soon"], "'soon' is no length of time"),
        (["rotate", "none"], "no such key"),
        (["show", "none"], "charon keys ls"),
    ],
)
def test_what_cannot_be_done_with_a_key_is_said(charon_json, charon, words, said):
    charon_json("keys", "create", "other")
    status, _, err = charon("keys", *words)
    assert status in {1, 2}
    assert said in " ".join(err.replace("│", " ").split())


@pytest.mark.parametrize("words", [["migrate"], ["keys", "create", "x"], ["orgs", "ls"]])
def test_beside_an_existing_pluto_nothing_is_made_in_its_databases(charon, monkeypatch, words):
    monkeypatch.setenv("CHARON_ROLE", "ingest")
    monkeypatch.setenv("CHARON_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    monkeypatch.setenv("CHARON_CLICKHOUSE_URL", "http://127.0.0.1:1")
    status, out, err = charon(*words)
    assert (status, out) == (1, "")
    assert "role ingest: keys, organisations and runs are those of the Pluto beside it" in err


def test_with_several_organisations_a_key_says_whose_it_is(charon_json, charon):
    one = charon_json("orgs", "create", "Équipe A")
    charon_json("orgs", "create", "Other", "--slug", "other-one")
    assert one["slug"] == "equipe-a"
    assert [org["slug"] for org in charon_json("orgs", "list")] == ["equipe-a", "other-one"]
    status, _, err = charon("keys", "create", "k")
    assert status == 1
    assert "--org" in err
    assert "equipe-a, other-one" in err
    assert charon_json("keys", "create", "k", "--org", "other-one")["organisation"] == "other-one"
    assert len(charon_json("keys", "list", "--org", "equipe-a")) == 0


def test_a_look_at_what_is_not_there_makes_nothing(charon, tmp_path):
    for command in (
        ["keys", "list"],
        ["orgs", "ls"],
        ["keys", "revoke", "x"],
        ["sql", "SELECT 1"],
    ):
        status, out, err = charon(*command, "--data-dir", tmp_path / "none")
        assert (status, out) == (1, "")
        assert err.count("\n") == 1
        assert "--data-dir" in err
    assert not (tmp_path / "none").exists()


def test_migrate_makes_the_catalogue_and_says_when_the_tables_follow(charon_json, charon):
    first = charon_json("migrate")
    assert first["catalogue"]
    assert first["tables"] is None
    assert charon_json("migrate") == {"catalogue": [], "tables": None}
    status, out, _ = charon("migrate")
    assert status == 0
    assert "catalogue: up to date" in out
    assert "charon serve" in out


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["serve", "--port", "70000"], 1, "--port"),
        (["serve", "--port", "x"], 2, "--port"),
        (["serve", "--prot", "1"], 2, "--port"),
        (["serve", "--config", "none.toml"], 1, "none.toml"),
        (["serve", "--clickhouse-url", "ch:9000"], 1, "http://host:8123"),
        (["serve", "--host", "no.such.host.invalid"], 1, "is no address"),
        (["sql", "SELECT 1", "--clickhouse-url", "http://127.0.0.1:1"], 1, "cannot be reached"),
        (["nonsense"], 2, "nonsense"),
        (["sql", " ; "], 2, "empty"),
        (["serve", "--log-level", "loud"], 1, "'warning' or 'error'"),
        (["serve", "--data-dir", "/proc/none/x"], 1, "choose another with --data-dir"),
        (["keys", "create", "x", "--data-dir", "/proc/none/x"], 1, "choose another"),
        (["migrate", "--data-dir", "/proc/none/x"], 1, "choose another with --data-dir"),
    ],
)
def test_a_failure_is_a_message_and_an_exit_status_and_no_traceback(
    charon, arguments, status, words
):
    ended, _, err = charon(*arguments)
    assert ended == status
    assert words in err
    assert "Traceback" not in err


def test_a_data_directory_that_is_a_file_is_named(charon, tmp_path):
    (tmp_path / "file").touch()
    for command in (["serve"], ["keys", "create", "x"]):
        status, _, err = charon(*command, "--data-dir", tmp_path / "file")
        assert status == 1
        assert "file" in err
        assert "Traceback" not in err


def test_help_shows_the_defaults_and_lets_paragraphs_flow(monkeypatch):
    text = CliRunner(env={"COLUMNS": "120"}).invoke(app, ["serve", "--help"]).output
    for default in ("127.0.0.1", "3003", "./charon-data", "8123"):
        assert f"[default: {default}]" in text
    assert "in a TOML file; docs/configuration.md" in text


def test_a_ca_that_is_no_certificate_is_named(charon, tmp_path):
    (tmp_path / "ca.pem").write_text("no certificate")
    options = ["--clickhouse-url", "https://127.0.0.1:1", "--clickhouse-ca", "ca.pem"]
    for command in (["sql", "SELECT 1"], ["doctor"]):
        status, out, err = charon(*command, *options)
        assert status == 1
        assert "clickhouse_ca: ca.pem holds no certificate" in out + err


def test_a_postgres_that_is_away_is_said_without_its_password(charon, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:open-sesame@127.0.0.1:1/x")
    for command in (["keys", "list"], ["keys", "create", "x"], ["orgs", "ls"], ["migrate"]):
        status, out, err = charon(*command)
        assert (status, out, err.count("\n")) == (1, "", 1)
        assert "open-sesame" not in err
        assert "see that the Postgres of CHARON_DATABASE_URL runs" in err
        if command != ["migrate"]:
            assert "charon migrate" in err
    status, out, err = charon("doctor")
    assert status == 1
    assert "Postgres cannot be used" in out
    assert "open-sesame" not in out + err


def test_no_option_takes_a_secret():
    runner = CliRunner(env={"COLUMNS": "200"})
    commands = ["serve", "migrate", "sql", "doctor", "version", "keys create", "keys list"]
    for command in commands:
        text = runner.invoke(app, [*command.split(), "--help"]).output
        assert "password" not in text.lower()
        assert ("--json" in text) == (command != "serve")


def test_version_says_what_runs(charon_json):
    versions = charon_json("version")
    assert versions["charon"]
    assert versions["clickhouse"]
    assert versions["python"] == ".".join(map(str, sys.version_info[:3]))


def test_version_is_an_option_too(charon):
    assert charon("--version") == charon("version")


def test_values_cannot_steer_the_terminal(capsys):
    print_table(["a[b]", "n"], [("\x1b[2J[red]x", None), ("é\n", 1)], numbers=[1])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "[red]x" in out
    assert "a[b]" in out
    assert shown(None) == "NULL"


def test_doctor_says_what_to_do_about_each_finding(charon, charon_json, monkeypatch):
    monkeypatch.setenv("CHARON_WORKRS", "4")
    found = charon_json("doctor")
    states = {(one["subject"], one["state"]) for one in found}
    assert ("settings", "warning") in states
    assert any("CHARON_WORKRS" in one["found"] for one in found)
    subjects = {subject for subject, _ in states}
    assert subjects == {"settings", "Python", "disk", "server", "ClickHouse", "catalogue"}
    assert all(one["advice"] for one in found if one["state"] != "ok")
    assert any("sync of 200 kB" in one["found"] for one in found)
    status, out, _ = charon("doctor")
    assert status == 0
    assert "→" in out


def test_doctor_says_so_where_the_file_system_cannot_be_told(charon, monkeypatch):
    monkeypatch.setattr("ingest.doctor.kind_of", lambda _place: None)  # as in a chroot
    for log_bytes_max in (2**28, 2**60):
        monkeypatch.setenv("CHARON_LOG_BYTES_MAX", str(log_bytes_max))
        status, out, _ = charon("doctor")
        assert (status, "free on an unknown file system" in out) == (0, True)


def test_doctor_tells_of_a_catalogue_that_a_newer_release_has_upgraded(charon, tmp_path):
    data = tmp_path / "data"
    charon("keys", "create", "x", "--data-dir", data)
    with contextlib.closing(sqlite3.connect(data / "catalog.sqlite")) as catalogue:
        catalogue.execute("UPDATE charon_catalog_version SET version_num = '9999'")
        catalogue.commit()
    status, out, _ = charon("doctor", "--data-dir", data)
    assert status == 0
    assert "warning  catalogue   SQLite, upgraded by a newer release" in out


def test_doctor_fails_when_the_server_could_not_work(charon, monkeypatch, tmp_path):
    status, out, _ = charon("doctor", "--clickhouse-url", "http://127.0.0.1:1")
    assert status == 1
    assert "cannot be reached" in out
    monkeypatch.setenv("CHARON_DISK_FREE_BYTES_MIN", str(2**60))
    status, out, _ = charon("doctor")
    assert status == 1
    assert "make room" in out
    monkeypatch.setenv("CHARON_PORT", "x")
    status, out, _ = charon("doctor")
    assert status == 1
    assert "CHARON_PORT" in out


def test_doctor_tells_how_to_reach_a_clickhouse_without_showing_its_password(charon, monkeypatch):
    monkeypatch.setenv("CHARON_CLICKHOUSE_PASSWORD", "open-sesame")
    arguments = ["--clickhouse-url", "https://ch.example:9440", "--clickhouse-user", "me"]
    status, out, _ = charon("doctor", "--connect", *arguments)
    assert status == 0
    assert "https://ch.example:9440" in out
    assert "CHARON_CLICKHOUSE_PASSWORD" in out
    assert "open-sesame" not in out


def test_the_command_runs_as_a_module_too():
    done = subprocess.run(
        [sys.executable, "-m", "ingest.cli", "version", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["charon"]
    assert done.stderr == ""
