"""What `make run` says on a machine that lacks something: a line to run, and no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / ".ci" / "venv"


@pytest.fixture
def machine(tmp_path):
    """A PATH that holds only what a test puts there, and the shell's own needs."""
    path = tmp_path / "bin"
    path.mkdir()

    def program(name, text):
        (path / name).write_text(f"#!/bin/sh\n{text}\n")
        (path / name).chmod(0o755)

    def run():
        return subprocess.run(
            ["/bin/sh", str(SCRIPT), str(tmp_path / "venv")],
            env={"PATH": str(path), "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )

    return program, run


def test_without_a_python_the_line_to_run_is_printed(machine):
    _, run = machine
    done = run()
    assert done.returncode == 1
    assert "Python 3.11 or newer" in done.stderr
    assert "sudo apt install python3 python3-venv" in done.stderr


def test_a_python_that_is_too_old_is_named(machine):
    program, run = machine
    program("python3", 'if [ "$1" = --version ]; then echo "Python 3.9.2"; else exit 1; fi')
    done = run()
    assert done.returncode == 1
    assert "found: Python 3.9.2" in done.stderr


def test_a_debian_without_venv_gets_the_apt_line(machine):
    program, run = machine
    program(
        "python3.12",
        f'case "$2" in *ensurepip*) exit 1;; esac; exec {sys.executable} "$@"',
    )
    done = run()
    assert done.returncode == 1
    version = ".".join(map(str, sys.version_info[:2]))
    assert f"sudo apt install python{version}-venv" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_shim_with_nothing_behind_it_is_passed_over(machine):
    program, run = machine
    program("python3", "exit 127")
    program("python3.11", f'case "$2" in *ensurepip*) exit 1;; esac; exec {sys.executable} "$@"')
    assert "python3.11 cannot make virtual environments" in run().stderr


def test_the_scripts_are_sound_and_executable():
    for name in ("run", "venv"):
        script = ROOT / ".ci" / name
        assert os.access(script, os.X_OK)
        shell = script.read_text().splitlines()[0].rpartition("/")[2].split()[-1]
        subprocess.run([shell, "-n", str(script)], check=True)
