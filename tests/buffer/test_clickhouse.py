"""The sink against the real engine, served over ClickHouse's HTTP interface."""

import asyncio
import time

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from buffer.clickhouse import HANDED_BYTES_MIN, ClickHouseSink
from buffer.clickhouse_http import Endpoint
from buffer.clock import SystemClock
from buffer.handing import hand
from buffer.sink import SinkError
from buffer.statistics import TableCondition
from schema.block import build_block, layout_of
from schema.chcodes import ErrorClass
from schema.ddl import create_table
from schema.handing import Place
from schema.streams import METRICS, STREAMS, StreamKind
from tests.buffer.delivery_rig import Rig, logs, metrics
from tests.engine_process import start_engine

LAYOUT = layout_of(METRICS)
SLOW = "SELECT sleepEachRow(1) FROM numbers(60) SETTINGS max_block_size = 1"


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    process = start_engine(tmp_path_factory.mktemp("engine") / "clickhouse")
    yield process
    process.stop()


def endpoint_of(engine, **changes):
    values = {
        "url": engine.url,
        "database": engine.database,
        "user": engine.user,
        "password": engine.password,
    }
    return Endpoint(**values | changes)


@pytest.fixture
async def sink(engine):
    made = ClickHouseSink(endpoint_of(engine), clock=SystemClock())
    for stream in STREAMS.values():
        await made._client({}).execute(f"DROP TABLE IF EXISTS {stream.table} SYNC")
        await made._client({}).execute(create_table(stream, engine.database))
    yield made
    await made.close()


async def execute(sink, statement):
    await sink._client({}).execute(statement)


async def count(sink, table="mlop_metrics"):
    [[rows]] = await sink._select(f"SELECT count() AS rows FROM {table}")
    return rows


def block(*values, number=1):
    return build_block(LAYOUT, [metrics(*values)], number)


async def test_a_block_is_stored_and_the_same_token_adds_nothing(sink):
    for _ in range(3):
        await sink.insert(LAYOUT, block(1.0, float("nan")), token="t:1", query_id="q-1")
    assert await count(sink) == 2
    await sink.insert(LAYOUT, block(1.0), token="t:2", query_id="q-2")
    assert await count(sink) == 3


@pytest.fixture
async def embedded(engine, sink):
    """A sink that hands large blocks over, and every block here is large."""
    made = ClickHouseSink(endpoint_of(engine, is_embedded=True), clock=SystemClock())
    yield made
    await made.close()


def large_block(number=1):
    made = build_block(LAYOUT, [metrics(*map(float, range(10_000)))], number)
    assert made.size >= HANDED_BYTES_MIN
    return made


async def test_a_large_block_is_handed_to_the_embedded_engine(embedded, monkeypatch):
    monkeypatch.setattr("buffer.clickhouse.BlockBody", None)  # nothing goes through the socket
    for _ in range(3):
        await embedded.insert(LAYOUT, large_block(), token="t:1", query_id="q-1")
    assert await count(embedded) == 10_000
    await embedded.insert(LAYOUT, large_block(2), token="t:2", query_id="q-2")
    assert await embedded.has_batch(LAYOUT, 2)


async def test_a_small_block_and_another_server_s_go_as_a_body(embedded, sink, monkeypatch):
    monkeypatch.setattr("buffer.clickhouse.hand", None)
    await embedded.insert(LAYOUT, block(1.0), token="t:1", query_id="q-1")
    await sink.insert(LAYOUT, large_block(), token="t:2", query_id="q-2")
    assert await count(sink) == 10_001


async def test_an_engine_that_cannot_have_it_gets_a_body_then_and_from_then_on(
    embedded, monkeypatch
):
    tries = []

    async def closed_at_once(pieces):
        handed = await hand(pieces)
        tries.append(handed)
        monkeypatch.setattr(handed, "place", Place(1, 0, handed.place.name))
        return handed

    monkeypatch.setattr("buffer.clickhouse.hand", closed_at_once)
    for number in (1, 2):
        await embedded.insert(LAYOUT, large_block(number), token=f"t:{number}", query_id="q")
    assert await count(embedded) == 20_000
    assert len(tries) == 1


async def test_an_engine_of_a_former_release_that_passes_the_header_over_gets_a_body():
    """It answers 200 for an insert of nothing: an upgrade in place replaces workers before it."""
    inserted = []

    async def insert(request):
        inserted.append(len(await request.read()))
        return web.Response()

    app = web.Application(client_max_size=2**30)
    app.router.add_post("/", insert)
    async with TestServer(app) as former:
        endpoint = Endpoint(str(former.make_url("/")), "charon", is_embedded=True)
        made = ClickHouseSink(endpoint, clock=SystemClock())
        for number in (1, 2):
            await made.insert(LAYOUT, large_block(number), token=f"t:{number}", query_id="q")
        await made.close()
    assert inserted == [0, large_block().size, large_block().size]


async def test_without_memory_a_block_goes_as_a_body(embedded, monkeypatch):
    async def none(_):
        return None

    monkeypatch.setattr("buffer.clickhouse.hand", none)
    await embedded.insert(LAYOUT, large_block(), token="t:1", query_id="q-1")
    assert await count(embedded) == 10_000


async def test_a_handed_block_s_error_is_the_engine_s_own(embedded):
    await execute(embedded, "DROP TABLE mlop_metrics SYNC")
    with pytest.raises(SinkError) as caught:
        await embedded.insert(LAYOUT, large_block(), token="t:1", query_id="q-1")
    assert caught.value.code == 60


async def test_a_block_is_looked_up_by_its_number(sink):
    await sink.insert(LAYOUT, block(1.0, number=2**63 + 5), token="t", query_id="q")
    assert await sink.has_batch(LAYOUT, 2**63 + 5)
    assert not await sink.has_batch(LAYOUT, 2**63 + 6)


async def test_the_live_layout_is_ours(sink):
    assert await sink.layout(StreamKind.METRICS) == LAYOUT
    assert not await sink.is_replicated(StreamKind.METRICS)


async def test_materialized_and_alias_columns_are_not_written(sink):
    await execute(sink, "ALTER TABLE mlop_metrics ADD COLUMN twice Float64 MATERIALIZED value * 2")
    assert await sink.layout(StreamKind.METRICS) == LAYOUT


async def test_a_missing_table_is_the_operators(sink):
    await execute(sink, "DROP TABLE mlop_metrics SYNC")
    for call in (
        sink.layout(StreamKind.METRICS),
        sink.insert(LAYOUT, block(1.0), token="t", query_id="q"),
        sink.has_batch(LAYOUT, 1),
    ):
        with pytest.raises(SinkError) as caught:
            await call
        assert caught.value.error_class is ErrorClass.OPERATOR
        assert caught.value.code == 60


async def test_a_changed_column_is_the_operators_and_named(sink):
    await execute(sink, "DROP TABLE mlop_metrics SYNC")
    await execute(
        sink, "CREATE TABLE mlop_metrics (tenantId String) ENGINE = MergeTree ORDER BY tenantId"
    )
    with pytest.raises(SinkError, match="projectName") as caught:
        await sink.layout(StreamKind.METRICS)
    assert caught.value.error_class is ErrorClass.OPERATOR


async def test_a_missing_database_and_a_wrong_password_are_the_operators(engine):
    for changes in ({"database": "elsewhere"}, {"password": "wrong-secret"}):
        sink = ClickHouseSink(endpoint_of(engine, **changes), clock=SystemClock())
        with pytest.raises(SinkError) as caught:
            await sink.insert(LAYOUT, block(1.0), token="t", query_id="q")
        assert caught.value.error_class is ErrorClass.OPERATOR
        assert "secret" not in str(caught.value)
        await sink.close()


async def test_a_violated_constraint_names_its_row(sink):
    await execute(sink, "ALTER TABLE mlop_metrics ADD CONSTRAINT c CHECK value != 3")
    with pytest.raises(SinkError) as caught:
        await sink.insert(LAYOUT, block(1.0, 2.0, 3.0, 4.0), token="t", query_id="q")
    assert caught.value.error_class is ErrorClass.ROWS
    assert caught.value.code == 469
    assert caught.value.bad_row == 2
    assert await count(sink) == 0


async def test_a_block_that_cannot_be_read_is_ours(sink):
    broken = block(1.0, 2.0)
    broken.pieces[-1] = broken.pieces[-1][:-3]
    with pytest.raises(SinkError) as caught:
        await sink.insert(LAYOUT, broken, token="t", query_id="q")
    assert caught.value.error_class is ErrorClass.OURS
    assert await count(sink) == 0


async def test_settling_a_query_that_never_was_is_quick(sink):
    begun = time.monotonic()
    await sink.settle("charon-none")
    assert time.monotonic() - begun < 2


async def test_a_running_query_is_gone_once_it_is_settled(sink):
    client = sink._client({"query_id": "charon-slow"})
    slow = asyncio.ensure_future(client.fetch(SLOW))
    async with asyncio.timeout(10):
        while not await sink._select(
            "SELECT 1 FROM system.processes WHERE query_id = 'charon-slow'"
        ):
            await asyncio.sleep(0.02)
    begun = time.monotonic()
    await sink.settle("charon-slow")
    assert time.monotonic() - begun < 8
    await asyncio.gather(slow, return_exceptions=True)


class TestDelivered:
    @pytest.fixture
    async def rig(self, tmp_path, sink):
        made = Rig(tmp_path, sink, clock=SystemClock())
        yield made
        await made.close()

    async def test_rows_of_all_streams_arrive(self, rig, sink):
        rig.append(metrics(1.0, float("inf")), logs("a", "ü"))
        rig.start()
        await rig.drain()
        assert await count(sink) == 2
        assert await count(sink, "mlop_logs") == 2

    async def test_only_the_row_that_violates_a_constraint_is_quarantined(self, rig, sink):
        await execute(sink, "ALTER TABLE mlop_metrics ADD CONSTRAINT c CHECK value != 777")
        for frame in range(10):
            rig.append(metrics(*[float(frame * 100 + row) for row in range(100)]))
        rig.start()
        await rig.drain()
        assert await count(sink) == 999
        [entry] = rig.set_aside()
        assert entry.header["code"] == 469
        assert sum(chunks.row_count for chunks in entry.chunks) == 1
        assert rig.checkpoint.state(StreamKind.METRICS).next_number <= 64

    async def test_a_table_made_later_gets_what_waited_for_it(self, rig, sink, engine):
        await execute(sink, "DROP TABLE mlop_metrics SYNC")
        rig.append(metrics(1.0), logs("a"))
        rig.start()
        await rig.until(lambda: rig.statistics().condition is TableCondition.WAITING)
        assert rig.statistics().code == 60
        await rig.until(lambda: rig.statistics(StreamKind.LOGS).delivered_rows == 1)
        await execute(sink, create_table(METRICS, engine.database))
        await rig.drain()
        assert await count(sink) == 1

    async def test_a_view_that_throws_gets_its_rows_when_it_is_mended(self, rig, sink):
        await execute(
            sink,
            "CREATE TABLE target (value Float64) ENGINE = MergeTree ORDER BY value "
            "SETTINGS non_replicated_deduplication_window = 1000",
        )
        await execute(
            sink,
            "CREATE MATERIALIZED VIEW broken TO target AS SELECT value FROM mlop_metrics "
            "WHERE throwIf(value = 2, 'no twos') = 0",
        )
        try:
            rig.append(metrics(1.0, 2.0))
            rig.start()
            await rig.until(lambda: rig.statistics().condition is TableCondition.WAITING)
            await execute(sink, "ALTER TABLE broken MODIFY QUERY SELECT value FROM mlop_metrics")
            await rig.drain(20)
            assert await count(sink) == 2
            assert await count(sink, "target") == 2
            assert rig.set_aside() == []
        finally:
            await execute(sink, "DROP TABLE broken SYNC")
            await execute(sink, "DROP TABLE target SYNC")

    async def test_200_000_rows_do_not_hold_the_loop(self, tmp_path, sink):
        rig = Rig(tmp_path, sink, clock=SystemClock(), batch_age_seconds_max=1.0)
        frame = metrics(*[float(row) for row in range(2_000)], name="train/loss")
        for _ in range(100):
            rig.append(frame)
        rig.start()
        worst = 0.0
        async with asyncio.timeout(30):
            while not rig.delivery.is_drained:
                begun = time.monotonic()
                await asyncio.sleep(0.001)
                worst = max(worst, time.monotonic() - begun)
        assert rig.statistics().delivered_batches == 1
        assert rig.statistics().delivered_rows == 200_000
        assert worst < 0.25  # two cores and whatever else runs on them; some 20 ms alone
        print(f"longest hold {worst * 1e3:.0f} ms")
        await rig.close()
