"""Doctor on further ClickHouse endpoints: whether they are there, and which tables may use them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ingest.clickhouse_query import QueryFailed
from ingest.diagnosis import OK, WARNING, Diagnosis
from schema.quoting import literal
from schema.streams import STREAMS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ingest.clickhouse_query import ClickHouseClient
    from ingest.settings import Settings

TOPIC = "ClickHouse endpoints"


async def examine_endpoints(
    client: ClickHouseClient, settings: Settings
) -> AsyncIterator[Diagnosis]:
    """Look at each endpoint besides the first, where there are more.

    Args:
        client: of the first endpoint.
        settings: with the other addresses.
    """
    urls = settings.clickhouse_other_urls
    if not urls:
        return
    tables = [stream.table for stream in STREAMS.values()]
    for one in (client, *(replace(client, url=url) for url in urls)):
        try:
            engines = await _engines(one, settings.clickhouse_database, tables)
        except QueryFailed as error:
            yield Diagnosis(
                TOPIC,
                WARNING,
                f"{one.url}: {error}",
                "the others are used meanwhile, for replicated tables",
            )
            continue
        plain = [table for table in tables if not engines.get(table, "").startswith(_REPLICATED)]
        if plain:
            yield Diagnosis(
                TOPIC,
                WARNING,
                f"{one.url}: {', '.join(plain)} not replicated there: "
                "clickhouse_other_urls are ignored for such tables",
                "replicate them (clickhouse_cluster, `charon migrate`), or leave the setting out",
            )
        else:
            yield Diagnosis(TOPIC, OK, f"{one.url}: all tables are replicated")


_REPLICATED = ("Replicated", "Shared")


async def _engines(client: ClickHouseClient, database: str, tables: list[str]) -> dict[str, str]:
    names = ", ".join(map(literal, tables))
    rows = await client.run(
        f"SELECT name, engine FROM system.tables WHERE database = {literal(database)} "  # noqa: S608 - quoted
        f"AND name IN ({names})"
    )
    return {str(name): str(engine) for name, engine in rows}
