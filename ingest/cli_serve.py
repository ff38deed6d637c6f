"""`charon serve`."""

from pathlib import Path
from typing import Annotated

import typer

from ingest.cli_options import (
    ClickHouseCa,
    ClickHouseCluster,
    ClickHouseDatabase,
    ClickHouseUrl,
    ClickHouseUser,
    DataDir,
    RetentionDays,
)


def serve(
    *,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on.  \\[default: 127.0.0.1]")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port; 0 takes a free one.  \\[default: 3003]")
    ] = (None),
    workers: Annotated[int | None, typer.Option(help="Worker processes.  \\[default: 1]")] = None,
    data_dir: DataDir = None,
    public_url: Annotated[
        str | None, typer.Option(help="The address that clients are told.")
    ] = None,
    clickhouse_url: ClickHouseUrl = None,
    clickhouse_user: ClickHouseUser = None,
    clickhouse_database: ClickHouseDatabase = None,
    clickhouse_ca: ClickHouseCa = None,
    clickhouse_cluster: ClickHouseCluster = None,
    role: Annotated[
        str | None,
        typer.Option(
            help="all; or ingest, in the place of a Pluto's ingest server.  \\[default: all]"
        ),
    ] = None,
    embedded_port: Annotated[
        int | None, typer.Option(help="The embedded engine's port on loopback.  \\[default: 8123]")
    ] = None,
    retention_days: RetentionDays = None,
    drain_delay_seconds: Annotated[
        float | None, typer.Option(help="Serve on for so long after SIGTERM.  \\[default: 0]")
    ] = None,
    grace_seconds: Annotated[
        float | None, typer.Option(help="How long a stop may flush.  \\[default: 30]")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error.  \\[default: info]")
    ] = None,
    log_format: Annotated[str | None, typer.Option(help="console or json.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file of settings.  \\[default: ./charon.toml]")
    ] = None,
) -> None:
    """Run the server until Ctrl-C or SIGTERM.

    Every setting can also be given as CHARON_<NAME> in the environment or in a TOML file;
    docs/configuration.md lists them all. Options given here win.
    """
    import os

    import structlog

    from ingest import logs
    from ingest.filesystems import trouble_of
    from ingest.settings import CONFIG_VARIABLE, load_settings, unknown_variables
    from ingest.supervisor import serve as run

    if config is not None:
        os.environ[CONFIG_VARIABLE] = str(config)
    settings = load_settings(
        host=host,
        port=port,
        workers=workers,
        data_dir=data_dir,
        public_url=public_url,
        clickhouse_url=clickhouse_url,
        clickhouse_user=clickhouse_user,
        clickhouse_database=clickhouse_database,
        clickhouse_ca=clickhouse_ca,
        clickhouse_cluster=clickhouse_cluster,
        role=role,
        embedded_port=embedded_port,
        retention_days=retention_days,
        drain_delay_seconds=drain_delay_seconds,
        grace_seconds=grace_seconds,
        log_level=log_level,
        log_format=log_format,
    )
    logs.set_up(settings.log_level, settings.log_format, process="supervisor")
    log = structlog.get_logger()
    for name in unknown_variables(os.environ):
        log.warning("unknown_variable", name=name, effect="none")
    trouble = trouble_of(settings.data_dir)
    if trouble is not None:
        log.warning("data_dir_is_risky", path=str(settings.data_dir), reason=trouble)
    run(settings)
