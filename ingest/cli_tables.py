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
from ingest.cli_output import counted, print_json, print_table


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
    from catalog.errors import Unavailable
    from ingest.cli_access import (
        NotThere,
        catalogue_url,
        clickhouse,
        layout_of,
        see_own_catalogue,
    )
    from ingest.data_dir import make_root
    from schema import migrations

    see_own_catalogue(settings)
    if settings.database_url is None:
        make_root(layout_of(settings))
    catalog = await Catalog.open(catalogue_url(settings, direct=True))
    try:
        revisions = await catalog.upgrade()
    except Unavailable as error:
        if settings.database_url is None:
            raise
        raise NotThere(
            f"{error}: see that the Postgres of CHARON_DATABASE_URL runs, and may be written"
        ) from error
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
    write: Annotated[
        bool, typer.Option("--write", help="Let the statement change tables and rows.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Ask ClickHouse, and show the rows as a table.

    A query with a FORMAT of its own is printed as it comes. Without --write it can only read.
    """
    import sys

    from ingest.cli_access import clickhouse
    from ingest.clickhouse_query import READONLY, QueryFailed
    from ingest.settings import load_settings

    settings = load_settings(
        data_dir=data_dir,
        clickhouse_url=clickhouse_url,
        clickhouse_user=clickhouse_user,
        clickhouse_database=clickhouse_database,
        clickhouse_ca=clickhouse_ca,
    )
    text = sys.stdin.read() if query == "-" else query
    statement = text.strip().rstrip(";")
    if not statement:
        raise typer.BadParameter("the query is empty", param_hint="query")
    client = clickhouse(settings)
    try:
        answer = client.query(statement, is_read_only=not write)
    except QueryFailed as error:
        if error.code != READONLY or write:
            raise
        raise QueryFailed(f"{error}: `charon sql --write` lets a statement change things") from None
    if answer.text:
        print(answer.text, end="" if answer.text.endswith("\n") else "\n")
    elif as_json:
        print_json({"columns": [list(column) for column in answer.columns], "rows": answer.rows})
    elif answer.columns:
        numbers = [i for i, (_, kind) in enumerate(answer.columns) if _is_number(kind)]
        print_table([name for name, _ in answer.columns], answer.rows, numbers=numbers)
        print(counted(len(answer.rows), "row"))
    elif write:  # what only reads, and has a FORMAT of its own, may have nothing to print
        print("done")


def _is_number(kind: str) -> bool:
    inner = kind.removeprefix("Nullable(")
    return inner.startswith(("UInt", "Int", "Float", "Decimal"))
