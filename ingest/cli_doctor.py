"""`charon doctor`."""

import asyncio
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli_options import (
    AsJson,
    ClickHouseCa,
    ClickHouseDatabase,
    ClickHouseUrl,
    ClickHouseUser,
    DataDir,
)
from ingest.cli_output import print_json

if TYPE_CHECKING:
    from ingest.diagnosis import Diagnosis
    from ingest.settings import Settings

_STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "bold red"}


def doctor(
    connect: Annotated[
        bool, typer.Option("--connect", help="Print how to reach ClickHouse with another client.")
    ] = False,
    data_dir: DataDir = None,
    clickhouse_url: ClickHouseUrl = None,
    clickhouse_user: ClickHouseUser = None,
    clickhouse_database: ClickHouseDatabase = None,
    clickhouse_ca: ClickHouseCa = None,
    as_json: AsJson = False,
) -> None:
    """Look at settings, disk, server, ClickHouse and catalogue, and say what to do.

    Exit status 1 when the server cannot do its work as things are.
    """
    from ingest.doctor import examine
    from ingest.settings import load_settings

    def load() -> "Settings":
        return load_settings(
            data_dir=data_dir,
            clickhouse_url=clickhouse_url,
            clickhouse_user=clickhouse_user,
            clickhouse_database=clickhouse_database,
            clickhouse_ca=clickhouse_ca,
        )

    if connect:
        _connect(load(), as_json=as_json)
        return

    async def work() -> "list[Diagnosis]":
        found = []
        async for diagnosis in examine(load):
            found.append(diagnosis)
            if not as_json:
                _print(diagnosis)
        return found

    found = asyncio.run(work())
    if as_json:
        print_json([asdict(diagnosis) for diagnosis in found])
    if any(diagnosis.state == "error" for diagnosis in found):
        sys.exit(1)


def _print(diagnosis: "Diagnosis") -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(soft_wrap=True, highlight=False)
    style = _STYLES[diagnosis.state]
    console.print(
        f"[{style}]{diagnosis.state:<8}[/] {diagnosis.subject:<11} {escape(diagnosis.found)}"
    )
    if diagnosis.advice:
        console.print(f"{'':<20} → {escape(diagnosis.advice)}")


def _connect(settings: "Settings", *, as_json: bool) -> None:
    from shlex import quote
    from urllib.parse import urlsplit

    from ingest.cli_access import clickhouse, layout_of

    client = clickhouse(settings)
    parts = urlsplit(client.url)
    password_file = str(layout_of(settings).clickhouse_password) if settings.is_embedded else None
    facts: dict[str, Any] = {
        "url": client.url,
        "host": parts.hostname,
        "port": parts.port or (8443 if parts.scheme == "https" else 8123),
        "user": client.user,
        "password_file": password_file,
        "database": client.database,
    }
    if as_json:
        print_json(facts)
        return
    shell = f"$(cat {quote(password_file)})" if password_file else "$CHARON_CLICKHOUSE_PASSWORD"
    python = (
        f"open({password_file!r}).read().strip()"
        if password_file
        else 'os.environ["CHARON_CLICKHOUSE_PASSWORD"]'
    )
    print(
        f"""ClickHouse's HTTP interface: {client.url}
user {client.user}, database {client.database}, password in {password_file or "the environment"}

curl:
  curl -H "X-ClickHouse-User: {client.user}" -H "X-ClickHouse-Key: {shell}" \\
    '{client.url}/?database={client.database}' -d 'SELECT count() FROM mlop_metrics'

Python, with clickhouse-connect:
  clickhouse_connect.get_client(host="{facts["host"]}", port={facts["port"]},
    username="{client.user}", database="{client.database}",
    password={python},
    tz_mode="aware")  # else times come as naive ones, in UTC"""  # noqa: S608 - text for a person to paste, not a query
    )
