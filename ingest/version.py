"""What release this is."""

from __future__ import annotations

from importlib import metadata

NAME = "charon"


def version() -> str:
    """The installed distribution's version; `0+unknown` in a tree that is not installed."""
    try:
        return metadata.version(NAME)
    except metadata.PackageNotFoundError:
        return "0+unknown"
