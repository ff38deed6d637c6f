"""What `charon serve` has another process do, so that it need not load a database library.

One JSON line in on standard input (see `ingest.programs`), one JSON object out on standard output:
`{"key": …}` or `{"applied": […]}`, or `{"error": …}`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


def main() -> None:
    """Do the one task."""
    config = json.loads(sys.stdin.buffer.readline())
    try:
        result = asyncio.run(_TASKS[config.pop("task")](**config))
    except Exception as error:  # noqa: BLE001 - the top of this process; the supervisor decides
        result = {"error": f"{error}" or type(error).__name__}
    print(json.dumps(result))


async def _catalogue(url: str, makes_key: bool) -> dict[str, Any]:
    from catalog import Catalog  # noqa: PLC0415 - the other task must not wait for SQLAlchemy

    catalog = await Catalog.open(url)
    try:
        await catalog.upgrade()
        new = await catalog.organisations.first_start() if makes_key else None
    finally:
        await catalog.close()
    return {"key": None if new is None else new.secret}


async def _tables(
    url: str, user: str, password: str, database: str, retention_days: int | None
) -> dict[str, Any]:
    from ingest.clickhouse_query import ClickHouseClient  # noqa: PLC0415
    from schema import migrations  # noqa: PLC0415

    client = ClickHouseClient(url, user, password)
    applied = await migrations.apply(client.run, database, retention_days=retention_days)
    return {"applied": applied}


_TASKS: dict[str, Callable[..., Coroutine[Any, Any, dict[str, Any]]]] = {
    "catalogue": _catalogue,
    "tables": _tables,
}

if __name__ == "__main__":
    main()
