"""The campaign is run once, whoever of the workers asks first; the others wait for its facts."""

from __future__ import annotations

import fcntl
import json
import os
import traceback
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from tests.sdk.campaign import Facts, run_campaign

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Facts]:
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    kept, home = shared / "sdk-facts.json", tmp_path_factory.mktemp("sdk")
    with (shared / "sdk-facts.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            kept.write_text(json.dumps(_facts_or_failure(home)))
    found = json.loads(kept.read_text())
    if "failure" in found:
        pytest.fail(f"the training processes could not be run:\n{found['failure']}")
    return {engine: Facts(**facts) for engine, facts in found.items()}


@pytest.fixture(params=["sqlite", "postgres"])
def facts(request: pytest.FixtureRequest, campaign: dict[str, Facts]) -> Facts:
    """What was seen on one of the two engines."""
    return campaign[request.param]


def _facts_or_failure(home: Path) -> dict[str, object]:
    try:
        return {engine: asdict(facts) for engine, facts in run_campaign(home).items()}
    except Exception:
        return {"failure": traceback.format_exc()[-8_000:]}
