"""What tests of the command line share: a place without settings, and commands run in it."""

import json
import os
import sys

import pytest

from ingest.cli import main


@pytest.fixture
def no_settings(monkeypatch, tmp_path):
    """An empty directory to work in, and an environment that sets nothing."""
    for name in list(os.environ):
        if name.startswith(("CHARON_", "CLICKHOUSE_", "DATABASE_")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def charon(monkeypatch, capsys):
    """Runs a command in this process; gives its exit status, output and error output."""

    def run(*arguments):
        capsys.readouterr()  # what was logged before it
        monkeypatch.setattr(sys, "argv", ["charon", *map(str, arguments)])
        status = 0
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
        out, err = capsys.readouterr()
        return status, out, err

    return run


@pytest.fixture
def charon_json(charon):
    """The same with --json: what it prints, read, after the exit status is as expected."""

    def run(*arguments, status=0):
        found, out, err = charon(*arguments, "--json")
        assert found == status, out + err
        return json.loads(out)

    return run
