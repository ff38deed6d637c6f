"""What `charon serve` prints: where it is, and the lines that point the SDK at it."""

from __future__ import annotations

KEY_PLACE = "<a key>"


def banner(
    *,
    address: str,
    data_dir: str,
    workers: int,
    clickhouse: str,
    key: str | None,
    is_ingest_only: bool = False,
) -> str:
    """The text, with the key when one was made: it is shown here and never again."""
    if is_ingest_only:
        lines = [f"export PLUTO_URL_INGEST={address}", "", "Keys and all else are Pluto's own."]
    else:
        lines = [
            *export_lines(address, key or KEY_PLACE),
            "",
            "The key is shown this once; only its hash is stored."
            if key
            else "No key, or lost it? Make one: charon keys create NAME",
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


def export_lines(address: str, key: str) -> list[str]:
    """Shell lines that send all that the SDK does to one address."""
    quoted = key if key.replace("_", "").replace("-", "").isalnum() else f"'{key}'"
    roles = [f"export PLUTO_URL_{role}={address}" for role in ("APP", "API", "INGEST", "PY")]
    return [*roles, f"export PLUTO_API_KEY={quoted}"]
