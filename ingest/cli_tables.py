"""`charon migrate` and `charon sql`."""

import asyncio
from typing import Annotated, Any

import typer

from ingest.cli_options import (
    AsJson,
    ClickHouseCa,
    ClickHouseCluster,
    ClickHouseDatabase,
    ClickHouseUrl,
    ClickHouseUser,
    DataDir,
    RetentionDays,
)
from ingest.cli_output import print_json, print_table


def migrate(
    data_dir: DataDir = None,
    clickhouse_url: ClickHouseUrl = None,
    clickhouse_user: ClickHouseUser = None,
    clickhouse_database: ClickHouseDatabase = None,
    clickhouse_ca: ClickHouseCa = None,
    clickhouse_cluster: ClickHouseCluster = None,
    retention_days: RetentionDays = None,
    as_json: AsJson = False,
) -> None:
    """Bring ClickHouse's tables and the catalogue up to this release; does nothing when they are.

    `charon serve` does so itself for what is embedded, and never elsewhere.
    """
    from ingest.settings import load_settings

    settings = load_settings(
        data_dir=data_dir,
        clickhouse_url=clickhouse_url,
        clickhouse_user=clickhouse_user,
        clickhouse_database=clickhouse_database,
        clickhouse_ca=clickhouse_ca,
        clickhouse_cluster=clickhouse_cluster,
        retention_days=retention_days,
    )
    done = asyncio.run(_migrate(settings))
    if as_json:
        print_json(done)
        return
    for what, applied in done.items():
        if applied is None:
            print(f"{what}: the embedded engine's are migrated when `charon serve` starts it")
        else:
            print(f"{what}: {', '.join(applied) or 'up to date'}")


async def _migrate(settings: Any) -> dict[str, list[str] | None]:  # noqa: ANN401 - see load_settings
    from dataclasses import replace

    from catalog import Catalog
    from ingest.cli_access import NotThere, catalogue_url, clickhouse, layout_of
    from schema import migrations

    if settings.database_url is None:
        layout_of(settings).root.mkdir(mode=0o700, parents=True, exist_ok=True)
    catalog = await Catalog.open(catalogue_url(settings, direct=True))
    try:
        revisions = await catalog.upgrade()
    finally:
        await catalog.close()
    try:
        # The database may not exist yet, so none is named.
        client = replace(clickhouse(settings), database=None)
    except NotThere:
        return {"catalogue": revisions, "tables": None}
    applied = await migrations.apply(
        client.run,
        settings.clickhouse_database,
        cluster=settings.clickhouse_cluster,
        retention_days=settings.retention_days,
    )
    return {"catalogue": revisions, "tables": applied}


def sql(
    query: Annotated[str, typer.Argument(help="One statement; - reads it from standard input.")],
    data_dir: DataDir = None,
    clickhouse_url: ClickHouseUrl = None,
    clickhouse_user: ClickHouseUser = None,
    clickhouse_database: ClickHouseDatabase = None,
    clickhouse_ca: ClickHouseCa = None,
    as_json: AsJson = False,
) -> None:
    """Ask ClickHouse, and show the rows as a table.

    A query with a FORMAT of its own is printed as it comes.
    """
    import sys

    from ingest.cli_access import clickhouse
    from ingest.settings import load_settings

    settings = load_settings(
        data_dir=data_dir,
        clickhouse_url=clickhouse_url,
        clickhouse_user=clickhouse_user,
        clickhouse_database=clickhouse_database,
        clickhouse_ca=clickhouse_ca,
    )
    text = sys.stdin.read() if query == "-" else query
    answer = clickhouse(settings).query(text.strip().rstrip(";"))
    if answer.text:
        print(answer.text, end="" if answer.text.endswith("\n") else "\n")
    elif as_json:
        print_json({"columns": [list(column) for column in answer.columns], "rows": answer.rows})
    elif answer.columns:
        numbers = [i for i, (_, kind) in enumerate(answer.columns) if _is_number(kind)]
        print_table([name for name, _ in answer.columns], answer.rows, numbers=numbers)
        print(f"{len(answer.rows)} row{'' if len(answer.rows) == 1 else 's'}")
    else:
        print("done")


def _is_number(kind: str) -> bool:
    inner = kind.removeprefix("Nullable(")
    return inner.startswith(("UInt", "Int", "Float", "Decimal"))
