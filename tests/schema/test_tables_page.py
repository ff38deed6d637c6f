"""docs/tables.md shows the tables as they are declared, and queries that are answered."""

import re
from pathlib import Path

import pytest

from schema.migrations import apply
from schema.streams import STREAMS

PAGE = (Path(__file__).parents[2] / "docs" / "tables.md").read_text()
NAMES = [stream.table.removeprefix("mlop_") for stream in STREAMS.values()]
QUERIES = re.findall(r"^```sql\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_every_column_is_there_with_its_type_and_tables():
    declared = {}
    for stream in STREAMS.values():
        for column in stream.columns:
            places = declared.setdefault((column.name, column.type), [])
            places.append(stream.table.removeprefix("mlop_"))
    told = {
        (name, kind): NAMES if places == "all" else places.split(", ")
        for name, kind, places in re.findall(
            r"^\| `(\w+)` \| `([^`]+)` \| ([^|]+) \|", PAGE, re.MULTILINE
        )
    }
    assert told == declared


def test_every_key_is_the_tables():
    rows = re.findall(r"^\| `(mlop_\w+)` \| ([^|]+) \| ([^|]+) \|", PAGE, re.MULTILINE)
    assert {table: (primary, rest) for table, primary, rest in rows} == {
        stream.table: (
            ", ".join(stream.primary_key),
            ", ".join(stream.sorting_key[len(stream.primary_key) :]),
        )
        for stream in STREAMS.values()
    }


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.split("\n")[0])
async def test_every_query_is_answered(engine, database, query):
    await apply(engine.run, database)
    assert engine.rows(re.sub(r"\bFROM (mlop_\w+)", rf"FROM {database}.\1", query)) == []
