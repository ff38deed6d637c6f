"""What `charon serve` prints for its user to type, typed where that is."""

import sys

from ingest.banner import key_command


def test_a_program_that_the_shell_finds_goes_by_its_name(tmp_path, monkeypatch):
    program = tmp_path / "charon"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [str(program), "serve"])
    assert key_command(None) == "charon keys create NAME"


def test_one_that_it_does_not_find_goes_by_its_path_and_a_directory_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [".venv/bin/charon", "serve"])
    assert key_command(tmp_path / "my data") == (
        f".venv/bin/charon keys create NAME --data-dir '{tmp_path}/my data'"
    )
