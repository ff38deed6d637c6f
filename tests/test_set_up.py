"""What `make run` says on a machine that lacks something: a line to run, and no traceback."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / ".ci" / "venv"
MKDIR, CP = shutil.which("mkdir"), shutil.which("cp")


@pytest.fixture
def machine(tmp_path):
    """A PATH that holds only what a test puts there, and the shell's own needs."""
    path = tmp_path / "bin"
    path.mkdir()

    def program(name, text):
        (path / name).write_text(f"#!/bin/sh\n{text}\n")
        (path / name).chmod(0o755)

    def run(*arguments, **variables):
        return subprocess.run(
            ["/bin/sh", str(SCRIPT), *arguments],
            env={"PATH": str(path), "HOME": str(tmp_path), "SYSTEM_PYTHON": "", **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    return program, run


def python(*, optimised=True, has_ensurepip=True):
    """The text of a program that is Python 3.11 or newer, built as is said; it makes an environment
    of itself alone."""
    return f"""
case "$*" in
*interpreter.py) {"exit 0" if optimised else "echo plain; exit 1"};;
*ensurepip*) exit {0 if has_ensurepip else 1};;
"-m venv --clear "*) {MKDIR} -p "$4/bin"; exec {CP} "$0" "$4/bin/python";;
"-m pip"*) exit 0;;
*"sys.exit(tuple"*) exit 0;;
esac
exec {sys.executable} "$@"
"""


def test_without_a_python_the_line_to_run_is_printed(machine):
    _, run = machine
    done = run("venv")
    assert done.returncode == 1
    assert "Python 3.11 or newer" in done.stderr
    assert "sudo apt install python3 python3-venv" in done.stderr


def test_a_python_that_is_too_old_is_named(machine):
    program, run = machine
    program("python3", 'if [ "$1" = --version ]; then echo "Python 3.9.2"; else exit 1; fi')
    done = run("venv")
    assert done.returncode == 1
    assert "found: Python 3.9.2" in done.stderr


def test_a_debian_without_venv_gets_the_apt_line(machine):
    program, run = machine
    program("python3.12", python(has_ensurepip=False))
    done = run("venv")
    assert done.returncode == 1
    version = ".".join(map(str, sys.version_info[:2]))
    assert f"sudo apt install python{version}-venv" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_shim_with_nothing_behind_it_is_passed_over(machine):
    program, run = machine
    program("python3", "exit 127")
    program("python3.11", python(has_ensurepip=False))
    assert "python3.11 cannot make virtual environments" in run("venv").stderr


@pytest.mark.parametrize(
    ("programs", "chosen"),
    [
        ({"python3": {}, "python3.13": {}}, "python3"),
        ({"python3": {"optimised": False}, "python3.12": {}}, "python3.12"),
        ({"python3": {"optimised": False}, "python3.12": {"optimised": False}}, "python3"),
        ({"python3": {"has_ensurepip": False}, "python3.11": {}}, "python3.11"),
        (
            {"python3": {"optimised": False}, "python3.11": {"has_ensurepip": False}},
            "python3",
        ),
    ],
)
def test_the_first_that_is_optimised_and_can_make_environments_is_taken(machine, programs, chosen):
    program, run = machine
    for name, built in programs.items():
        program(name, python(**built))
    assert run().stdout.strip() == chosen


def test_a_distributions_python_behind_another_in_path_is_found(machine, tmp_path):
    program, run = machine
    program("python3", python(optimised=False))
    program("of-debian", python())
    theirs = str(tmp_path / "bin" / "of-debian")
    assert run(SYSTEM_PYTHON=theirs).stdout.strip() == theirs
    assert run(SYSTEM_PYTHON=str(tmp_path / "none")).stdout.strip() == "python3"


def test_a_python_that_is_named_is_taken_whatever_else_there_is(machine, tmp_path):
    program, run = machine
    program("python3", python())
    program("mine", python(optimised=False))
    program("old", 'if [ "$1" = --version ]; then echo "Python 3.9.2"; else exit 1; fi')
    assert run(PYTHON="mine").stdout.strip() == "mine"
    program("my own", python())
    theirs = str(tmp_path / "bin" / "my own")
    assert run(PYTHON=theirs).stdout.strip() == theirs
    done = run(PYTHON="old")
    assert (done.returncode, done.stdout) == (1, "")
    assert "found: Python 3.9.2" in done.stderr


def test_what_a_plain_python_costs_is_said_when_the_environment_is_made(machine, tmp_path):
    program, run = machine
    program("python3", python(optimised=False))
    plain = run(str(tmp_path / "plain"))
    assert (plain.returncode, plain.stdout.count("making")) == (0, 1)
    assert plain.stderr.startswith("plain; ")
    assert plain.stderr.count("\n") == 1
    assert "make PYTHON=/usr/bin/python3" in plain.stderr
    program("python3", python())
    assert run(str(tmp_path / "quick")).stderr == ""


def test_an_environment_that_is_there_stays_as_it_is(machine, tmp_path):
    program, run = machine
    program("python3", python(optimised=False))
    run(str(tmp_path / "venv"))
    program("python3", python())
    again = run(str(tmp_path / "venv"))
    assert (again.returncode, again.stdout) == (0, "")
    assert again.stderr.startswith("plain; ")


def test_the_scripts_are_sound_and_executable():
    for name in ("run", "venv"):
        script = ROOT / ".ci" / name
        assert os.access(script, os.X_OK)
        shell = script.read_text().splitlines()[0].rpartition("/")[2].split()[-1]
        subprocess.run([shell, "-n", str(script)], check=True)
