"""Starts `sdk_run.py` as a user's training process, pointed at a server by environment alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent / "sdk_run.py"


def environment(url: str, key: str, home: Path) -> dict[str, str]:
    """The variables that a user pastes, telemetry off, and a home for the SDK's queue."""
    home.mkdir(parents=True, exist_ok=True)
    inherited = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    return inherited | {
        "HOME": str(home),
        "PLUTO_DIR": str(home),
        "PLUTO_DISABLE_TELEMETRY": "1",
        "PLUTO_API_KEY": key,
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
        **{f"PLUTO_URL_{role}": url for role in ("APP", "API", "INGEST", "PY")},
    }


def start(url: str, key: str, home: Path, mode: str, **arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), json.dumps({"mode": mode, **arguments})],
        env=environment(url, key, home),
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def result(process: subprocess.Popen[str], timeout: float = 150) -> dict:
    """What the run says it logged; fails with the process's output when it did not end well."""
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        raise AssertionError(f"the training process hung:\n{output[-4000:]}") from None
    assert process.returncode == 0, output[-4000:]
    lines = [line for line in output.splitlines() if line.startswith("RESULT ")]
    assert lines, output[-4000:]
    return json.loads(lines[-1].removeprefix("RESULT "))
