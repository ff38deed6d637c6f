"""The real engine, once for the whole session: chDB takes one path a process."""

from __future__ import annotations

import os
from itertools import count

import chdb
import pytest

from schema.insert import INSERT_SETTINGS, insert_statement
from schema.native import decode_blocks
from schema.quoting import identifier

_numbers = count(1)


class Engine:
    """ClickHouse in this process; answers come through the Native decoder."""

    def __init__(self, path):
        self._connection = chdb.connect(str(path))
        # As a setting of the query it is ignored for INFILE; so it must be the connection's.
        self._connection.query("SET input_format_skip_unknown_fields = 0")

    def rows(self, sql):
        """The rows of a statement, as tuples."""
        rows = []
        for block in decode_blocks(self.native(sql)):
            rows.extend(zip(*block.columns, strict=True))
        return rows

    def value(self, sql):
        """The one value of a statement."""
        [[value]] = self.rows(sql)
        return value

    def native(self, sql):
        """A statement's answer as Native bytes."""
        return bytes(self._connection.query(sql, "Native").bytes())

    def text(self, sql, form):
        """A statement's answer in another format, as text."""
        return self._connection.query(sql, form).bytes().decode()

    async def run(self, sql):
        """For the migrations."""
        return self.rows(sql)

    def insert(self, target, data, *, token=None, **settings):
        """INSERT … FROM INFILE of a memory file: the only route of chDB that reports failures."""
        chosen = {**INSERT_SETTINGS, **settings}
        if token is not None:
            chosen["insert_deduplication_token"] = token
        clause = ", ".join(
            f"{name} = {value}" if isinstance(value, int) else f"{name} = '{value}'"
            for name, value in chosen.items()
        )
        file = os.memfd_create("block")
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]
            self._connection.query(
                f"{target} FROM INFILE '/proc/self/fd/{file}' SETTINGS {clause} FORMAT Native"
            )
        finally:
            os.close(file)

    def insert_block(self, layout, database, block, *, token=None, **settings):
        """A block of ours, by the statement of ours."""
        target, _, form = insert_statement(layout, database).rpartition(" FORMAT ")
        assert form == "Native"
        self.insert(target, b"".join(block.pieces), token=token, **settings)

    def close(self):
        self._connection.close()


@pytest.fixture(scope="session")
def engine(tmp_path_factory):
    opened = Engine(tmp_path_factory.mktemp("chdb"))
    yield opened
    opened.close()


@pytest.fixture
def database(engine):
    """A database of the test's own."""
    name = f"schema_test_{next(_numbers)}"
    engine.rows(f"CREATE DATABASE {identifier(name)} ENGINE = Atomic")
    yield name
    engine.rows(f"DROP DATABASE {identifier(name)} SYNC")
