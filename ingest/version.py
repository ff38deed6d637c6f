"""What release this is, and of what it was built."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

NAME = "charon"
BUILD_FILE = Path(__file__).with_name("build.json")
"""Written where an image or package is built; no part of the source."""
FIELDS = ("gitCommit", "gitBranch", "buildTime")


def version() -> str:
    """The installed distribution's version; `0+unknown` in a tree that is not installed."""
    try:
        return metadata.version(NAME)
    except metadata.PackageNotFoundError:
        return "0+unknown"


def build(file: Path = BUILD_FILE) -> dict[str, str | None]:
    """The commit, branch and time of the build, each None where nobody has noted it.

    Taken from `build.json` beside this module, an object of these three texts; else the commit and
    the branch are what an installer notes of a distribution that it took from Git (PEP 610).
    """
    noted = _object(_read(file))
    if not noted:
        origin = _object(_object(_origin()).get("vcs_info"))
        noted = {
            "gitCommit": origin.get("commit_id"),
            "gitBranch": origin.get("requested_revision"),
        }
    return {field: _text(noted.get(field)) for field in FIELDS}


def _read(file: Path) -> object:
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        return None


def _origin() -> object:
    try:
        return json.loads(metadata.distribution(NAME).read_text("direct_url.json") or "null")
    except (metadata.PackageNotFoundError, ValueError):
        return None


def _object(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
