from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest


def _starter():
    """`tests/engine_process.py`, whichever way the tests were imported."""
    name = "charon_tests_engine_process"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            name, Path(__file__).parents[1] / "engine_process.py"
        )
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def starter():
    return _starter()


@pytest.fixture(scope="session")
def engine(starter, tmp_path_factory):
    """One real engine for the whole session."""
    process = starter.start_engine(tmp_path_factory.mktemp("engine") / "clickhouse")
    yield process
    process.stop()
