"""How a Python was built, told by what it was configured with and where it is installed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ingest import doctor, interpreter
from ingest.interpreter import is_optimised
from loadtest import machine


@pytest.mark.parametrize(
    ("configured", "prefix", "expected"),
    [
        ("'--enable-shared' '--enable-optimizations' '--with-lto'", "/usr/local", True),
        ("'--enable-shared' 'LDFLAGS=-L/opt/lib -Wl,-rpath,/opt/lib'", "/opt/python", False),
        ("'CFLAGS=-O2 --enable-optimizations-of-mine'", "/usr/local", False),
        ("'--enable-shared' '--without-ensurepip'", "/usr", True),  # Debian's
        ("'--disable-optimizations'", "/usr", False),
        ("'--enable-optimizations' '--with-pydebug'", "/usr", False),
        ("", "/usr/local", False),
        ("--enable-optimizations CFLAGS='-O2", "/usr/local", True),  # a quote too few
    ],
)
def test_it_is_known_by_its_arguments_or_as_a_distributions(configured, prefix, expected):
    assert is_optimised(configured, prefix) is expected


def test_as_a_program_it_says_what_it_says_as_a_module():
    done = subprocess.run(
        [sys.executable, "-I", Path(interpreter.__file__)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) is is_optimised()
    said = "" if is_optimised() else interpreter.describe()
    assert said in done.stdout
    assert bool(said) is bool(done.stdout)


def test_every_report_says_which_python_it_was():
    version = ".".join(map(str, sys.version_info[:3]))
    said = machine.facts()["python"]
    assert re.fullmatch(rf"{re.escape(version)}\S* \((not )?optimised\)", said)


@pytest.mark.parametrize(("optimised", "state"), [(True, "ok"), (False, "note")])
def test_doctor_remarks_on_one_that_was_built_plainly(charon_json, monkeypatch, optimised, state):
    monkeypatch.setattr(interpreter, "is_optimised", lambda: optimised)
    monkeypatch.setattr(doctor, "is_optimised", lambda: optimised)
    (found,) = (one for one in charon_json("doctor") if one["subject"] == "Python")
    assert found["state"] == state
    assert ("not optimised" in found["found"]) is not optimised
    assert ("--enable-optimizations" in found["advice"]) is not optimised
