"""What `charon serve` prints: where it is, and the lines that point the SDK at it."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

KEY_PLACE = "<a key>"


def banner(
    *,
    address: str,
    data_dir: str,
    workers: int,
    clickhouse: str,
    key: str | None,
    make_key: str = "charon keys create NAME",
    is_ingest_only: bool = False,
) -> str:
    """The text, with the key when one was made: it is shown here and never again.

    Without one it names ``make_key``, which makes another.
    """
    if is_ingest_only:
        lines = [f"export PLUTO_URL_INGEST={address}", "", "Keys and all else are Pluto's own."]
    else:
        lines = [
            *export_lines(address, key or KEY_PLACE),
            "",
            "The key is shown this once; only its hash is stored."
            if key
            else f"No key, or lost it? Make one: {make_key}",
        ]
    return "\n".join(
        [
            "",
            f"Charon serves on {address}",
            f"  workers     {workers}",
            f"  ClickHouse  {clickhouse}",
            f"  data        {data_dir}",
            "",
            "Point the SDK here:",
            "",
            *lines,
            "",
        ]
    )


def key_command(data_dir: Path | None) -> str:
    """What makes a key, as it can be typed here: the program where the shell finds it.

    Args:
        data_dir: where the catalogue is, unless the command finds that by itself.
    """
    typed = Path(sys.argv[0])
    is_found = typed.name != "charon" or shutil.which("charon") == str(typed.absolute())
    program = "charon" if is_found else shlex.quote(str(typed))
    place = "" if data_dir is None else f" --data-dir {shlex.quote(str(data_dir))}"
    return f"{program} keys create NAME{place}"


def export_lines(address: str, key: str) -> list[str]:
    """Shell lines that send all that the SDK does to one address."""
    quoted = key if key.replace("_", "").replace("-", "").isalnum() else f"'{key}'"
    roles = [f"export PLUTO_URL_{role}={address}" for role in ("APP", "API", "INGEST", "PY")]
    return [*roles, f"export PLUTO_API_KEY={quoted}"]
