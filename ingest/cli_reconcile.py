"""`charon reconcile`."""

import asyncio
import sys
import time
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
from ingest.cli_output import print_json, print_table

if TYPE_CHECKING:
    from buffer.clickhouse import ClickHouseSink
    from ingest.reconciliation import Comparison, Noted
    from ingest.settings import Settings

POLL_SECONDS = 0.5
LISTED_MAX = 50


def reconcile(
    *,
    since_hours: Annotated[
        float, typer.Option(min=0, help="Compare what was delivered within so many hours.")
    ] = 24.0,
    settled_seconds: Annotated[
        float, typer.Option(min=0, help="Leave out what was delivered within so many seconds.")
    ] = 5.0,
    resend: Annotated[
        bool, typer.Option("--resend", help="Have missing blocks sent again.")
    ] = False,
    short: Annotated[
        bool, typer.Option("--short", help="With --resend: blocks with fewer rows, too.")
    ] = False,
    wait_seconds: Annotated[
        float, typer.Option(min=0, help="With --resend: how long to wait for a running server.")
    ] = 30.0,
    data_dir: DataDir = None,
    clickhouse_url: ClickHouseUrl = None,
    clickhouse_user: ClickHouseUser = None,
    clickhouse_database: ClickHouseDatabase = None,
    clickhouse_ca: ClickHouseCa = None,
    as_json: AsJson = False,
) -> None:
    """Compare what was delivered with what ClickHouse has, block by block.

    Exit status 1 when blocks are missing (after --resend: when some still are). A block is short
    when merges have collapsed its rows with repeats of them, or when somebody has deleted rows.
    Blocks whose log is not kept any more cannot be sent again.
    """
    from ingest.settings import load_settings

    settings = load_settings(
        data_dir=data_dir,
        clickhouse_url=clickhouse_url,
        clickhouse_user=clickhouse_user,
        clickhouse_database=clickhouse_database,
        clickhouse_ca=clickhouse_ca,
    )
    now_ns = time.time_ns()
    span = now_ns - int(since_hours * 3.6e12), now_ns - int(settled_seconds * 1e9)
    patience = wait_seconds if resend else None
    found = asyncio.run(_reconcile(settings, span, patience, short=short, is_quiet=as_json))
    if as_json:
        print_json(found)
    else:
        _print(found)
    if found["missing"]:
        sys.exit(1)


async def _reconcile(
    settings: "Settings",
    span: tuple[int, int],
    patience: float | None,
    *,
    short: bool,
    is_quiet: bool,
) -> dict[str, Any]:
    from buffer.fs import RealFileSystem
    from buffer.reconcile import BlockState
    from ingest.cli_log_access import log_root
    from ingest.cli_progress import progress_bar
    from ingest.reconciliation import Comparison

    root = log_root(settings)
    sink = _sink(settings)
    try:
        work = Comparison(RealFileSystem(), root, sink, since_ns=span[0], until_ns=span[1])
        with progress_bar("comparing", work.records(), is_quiet=is_quiet) as reached:
            result = await work.run(reached)
        found = _summary(result)
        if patience is None:
            return found
        states = [BlockState.MISSING, *([BlockState.SHORT] if short else [])]
        asked = work.resend(states)
        found["asked"] = len(asked)
        if asked and _runs(settings):
            await _wait(work, patience)
            await work.look_again()
            again = _summary(work.result)
            found |= {"missing": again["missing"], "short": again["short"]}
        found["waiting"] = work.waiting()
        found["blocks"] = [
            _block(one)
            for one in work.result.noted.values()
            if one.compared.state in states or not short
        ][:LISTED_MAX]
        return found
    finally:
        await sink.close()


async def _wait(work: "Comparison", seconds: float) -> None:
    """For the worker to work off the requests."""
    for _ in range(int(seconds / POLL_SECONDS)):
        if not work.waiting():
            return
        await asyncio.sleep(POLL_SECONDS)


def _sink(settings: "Settings") -> "ClickHouseSink":
    from buffer.clickhouse import ClickHouseSink
    from buffer.clickhouse_http import Endpoint
    from buffer.clock import SystemClock
    from ingest.cli_access import clickhouse

    client = clickhouse(settings)
    endpoint = Endpoint(
        url=client.url,
        database=settings.clickhouse_database,
        user=client.user,
        password=client.password,
        ca_file=client.ca,
        timeout_seconds=client.timeout_seconds,
    )
    return ClickHouseSink(endpoint, clock=SystemClock())


def _runs(settings: "Settings") -> bool:
    from ingest.cli_access import layout_of
    from ingest.data_dir import holder

    return holder(layout_of(settings)) is not None


def _summary(result: Any) -> dict[str, Any]:  # noqa: ANN401 - a Reconciliation
    from buffer.reconcile import BlockState
    from schema.streams import STREAMS

    return {
        "tables": {
            STREAMS[kind].table: {state.value: counts.get(state, 0) for state in BlockState}
            for kind, counts in sorted(result.counts.items())
        },
        "missing": result.count(BlockState.MISSING),
        "short": result.count(BlockState.SHORT),
        "blocks": [_block(one) for one in result.noted.values()][:LISTED_MAX],
    }


def _block(one: "Noted") -> dict[str, Any]:
    from ingest.cli_log_access import instant
    from schema.streams import STREAMS

    record = one.compared.delivered
    return {
        "table": STREAMS[record.kind].table,
        "batch": record.number,
        "state": one.compared.state.value,
        "rows": record.rows,
        "stored_rows": one.compared.stored_rows,
        "first_lsn": record.first,
        "last_lsn": record.last,
        "delivered_at": instant(record.delivered_at_ns),
        "shard": one.shard and one.shard.name,
        "is_in_log": one.shard is not None,
        "is_asked": one.is_asked,
    }


def _print(found: dict[str, Any]) -> None:
    states = list(next(iter(found["tables"].values()), {}))
    print_table(
        ["table", *states],
        [(table, *counts.values()) for table, counts in found["tables"].items()],
        numbers=range(1, len(states) + 1),
    )
    if found["blocks"]:
        print_table(
            ["table", "batch", "state", "rows", "stored", "LSN", "delivered", "log"],
            [
                (
                    *(one["table"], one["batch"], one["state"], one["rows"], one["stored_rows"]),
                    f"{one['first_lsn']}-{one['last_lsn']}",
                    one["delivered_at"],
                    "asked for" if one["is_asked"] else "kept" if one["is_in_log"] else "gone",
                )
                for one in found["blocks"]
            ],
            numbers=[1, 3, 4],
        )
    if "asked" in found:
        print(f"{found['asked']} blocks were asked for again, {found['waiting']} of them wait")
    print(f"{found['missing']} blocks are missing, {found['short']} are short")
