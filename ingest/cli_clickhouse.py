"""`charon clickhouse`."""

from typing import Annotated

import typer

from ingest.cli_options import AsJson, ClickHouseDatabase, ClickHouseUser, DataDir


def clickhouse(
    *,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(help="Port; 0 takes a free one.  \\[default: 8123]")
    ] = None,
    clickhouse_user: ClickHouseUser = None,
    clickhouse_database: ClickHouseDatabase = None,
    data_dir: DataDir = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error.  \\[default: info]")
    ] = None,
    log_format: Annotated[str | None, typer.Option(help="console or json.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run the embedded ClickHouse by itself, for several `charon serve` on one machine.

    One engine in one process: no cluster, no replication, no TLS, and half of the machine's memory
    at most. The password is CHARON_CLICKHOUSE_PASSWORD, or what clickhouse.password in the data
    directory holds; it is made at the first start. Tables are made by `charon migrate`, not here.
    """
    from ingest import logs
    from ingest.embedded_alone import Place, run
    from ingest.layout import ENGINE_USER
    from ingest.settings import load_settings

    settings = load_settings(
        # Settings know the engine's port by its own name; `port` there is that of `charon serve`.
        embedded_port=port,
        clickhouse_user=clickhouse_user,
        clickhouse_database=clickhouse_database,
        data_dir=data_dir,
        log_level=log_level,
        log_format=log_format,
    )
    logs.set_up(settings.log_level, settings.log_format, process="clickhouse")
    run(
        Place(
            host=host,
            port=settings.embedded_port,
            user=settings.clickhouse_user
            if "clickhouse_user" in settings.model_fields_set
            else ENGINE_USER,
            password=settings.clickhouse_password.get_secret_value(),
            database=settings.clickhouse_database,
            data_dir=settings.data_dir.absolute(),
        ),
        as_json=as_json,
    )
