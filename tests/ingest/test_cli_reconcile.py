"""`charon reconcile` against the real engine: rows that vanish behind our back are noticed."""

import asyncio

import pytest

from buffer.clickhouse import ClickHouseSink
from buffer.clickhouse_http import Endpoint
from buffer.clock import SystemClock
from schema.ddl import create_table
from schema.streams import STREAMS
from tests.buffer.delivery_rig import logs, metrics
from tests.engine_process import start_engine
from tests.ingest.log_site import Site


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    process = start_engine(tmp_path_factory.mktemp("engine") / "clickhouse")
    yield process
    process.stop()


class Tables:
    """The engine's tables, reached as the server reaches them."""

    def __init__(self, engine):
        self.endpoint = Endpoint(
            url=engine.url, database=engine.database, user=engine.user, password=engine.password
        )

    async def run(self, *statements):
        """Executes all; gives the rows of the last, where it is a SELECT."""
        sink = ClickHouseSink(self.endpoint, clock=SystemClock())
        try:
            for statement in statements:
                if statement.startswith("SELECT"):
                    return await sink._select(statement)
                await sink._client({}).execute(statement)
        finally:
            await sink.close()

    def __call__(self, *statements):
        return asyncio.run(self.run(*statements))


@pytest.fixture
def tables(engine, monkeypatch, no_settings, tmp_path):
    settings = {
        "DATA_DIR": tmp_path / "data",
        "CLICKHOUSE_URL": engine.url,
        "CLICKHOUSE_USER": engine.user,
        "CLICKHOUSE_PASSWORD": engine.password,
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"CHARON_{name}", str(value))
    made = Tables(engine)
    for stream in STREAMS.values():
        made(
            f"DROP TABLE IF EXISTS {stream.table} SYNC",
            create_table(stream, engine.database, cluster=None, retention_days=None),
        )
    return made


@pytest.fixture
def site(tables, tmp_path):
    return Site(tmp_path / "data", None)


def serve(site, tables, *requests, until=None):
    """A buffer at work until the requests are delivered, and `until` is true."""

    async def work():
        site.sink = ClickHouseSink(tables.endpoint, clock=SystemClock())
        try:
            async with site.serving() as buffer, asyncio.timeout(30):
                for request in requests:
                    await site.send(buffer, request)
                while until is not None and not until():
                    await asyncio.sleep(0.05)
        finally:
            await site.sink.close()

    asyncio.run(work())


@pytest.fixture
def reconcile(charon_json):
    def run(*arguments, status=0):
        return charon_json("reconcile", "--settled-seconds", "0", *arguments, status=status)

    return run


def no_requests(site):
    return lambda: not list(site.log.glob("*/resend/*.json"))


def test_rows_deleted_behind_our_back_are_noticed_and_sent_again(site, tables, reconcile):
    serve(site, tables, metrics(1.0, 2.0), metrics(3.0), logs("a"))
    found = reconcile()
    assert found["tables"]["mlop_metrics"]["stored"] == 2
    assert found["tables"]["mlop_logs"]["stored"] == 1
    assert (found["missing"], found["short"]) == (0, 0)

    tables("ALTER TABLE mlop_metrics DELETE WHERE value < 3 SETTINGS mutations_sync = 2")
    found = reconcile(status=1)
    assert found["blocks"], found
    [block] = found["blocks"]
    assert (block["state"], block["rows"], block["is_in_log"]) == ("missing", 2, True)

    found = reconcile("--resend", status=1)  # no server runs: it is asked for, and waits
    assert (found["asked"], found["waiting"]) == (1, 1)
    serve(site, tables, until=no_requests(site))
    assert reconcile()["tables"]["mlop_metrics"]["stored"] == 2
    values = tables("SELECT value FROM mlop_metrics ORDER BY value")
    assert [value for [value] in values] == [1.0, 2.0, 3.0]


def test_a_dropped_table_is_filled_again_from_the_log(site, tables, reconcile):
    serve(site, tables, *(metrics(float(i), step=float(i)) for i in range(4)))
    tables("TRUNCATE TABLE mlop_metrics SYNC")
    assert reconcile(status=1)["missing"] == 4
    assert reconcile("--resend", status=1)["asked"] == 4
    serve(site, tables, until=no_requests(site))
    assert reconcile()["missing"] == 0
    assert tables("SELECT count() FROM mlop_metrics") == [(4,)]


def test_rows_that_merges_collapsed_into_a_repeat_are_not_missing(site, tables, reconcile):
    serve(site, tables, metrics(1.0), metrics(1.0))
    serve(site, tables, metrics(5.0, 6.0))
    tables(
        "OPTIMIZE TABLE mlop_metrics FINAL",
        "ALTER TABLE mlop_metrics DELETE WHERE value = 6 SETTINGS mutations_sync = 2",
    )
    found = reconcile()
    assert found["tables"]["mlop_metrics"] == {
        "stored": 1,
        "short": 1,
        "replaced": 1,
        "missing": 0,
        "not compared": 0,
    }
    reconcile("--resend", "--short")
    serve(site, tables, until=no_requests(site))
    assert tables("SELECT count() FROM mlop_metrics FINAL") == [(3,)]


def test_a_block_whose_log_is_gone_is_told_and_cannot_be_sent_again(site, tables, reconcile):
    serve(site, tables, metrics(1.0))
    tables("TRUNCATE TABLE mlop_metrics SYNC")
    for path in site.log.glob("*/*.seg"):
        path.unlink()
    found = reconcile("--resend", status=1)
    assert (found["asked"], found["missing"], found["blocks"][0]["is_in_log"]) == (0, 1, False)
