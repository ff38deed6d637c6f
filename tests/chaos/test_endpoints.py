"""F23: a replica that is away or has lost its Keeper is left for another one, under the same token.

Method: two proxies before one engine stand for two replicas of one table. The embedded engine has
no Keeper, so no table of it is replicated: the sinks' answer to that one question is made up
(`Replicated`), and what the engine's token window remembers stands for what Keeper would. All else
is as shipped: log, flusher, checkpoint, sinks, blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import structlog.testing

from buffer.clickhouse import ClickHouseSink
from buffer.clickhouse_http import Endpoint
from buffer.clock import SystemClock
from buffer.metrics import NoMetrics
from buffer.roaming import RoamingSink
from ingest.clickhouse_query import ClickHouseClient
from ingest.diagnosis import WARNING
from ingest.doctor_endpoints import examine_endpoints
from ingest.settings import Settings
from schema.ids import RunId, TenantId
from schema.rows import MetricsRows, name_shape
from tests.buffer.delivery_rig import Rig
from tests.chaos import proxy as faults
from tests.chaos.load import FIRST_RUNS
from tests.chaos.proxy import Proxy, refused, taken_but_refused
from tests.engine_process import PASSWORD, USER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.chaos.house import House

pytestmark = pytest.mark.slow

ROWS = 3


class Replicated(ClickHouseSink):
    """What a sink before a ReplicatedMergeTree would say."""

    async def is_replicated(self, kind) -> bool:
        await super().is_replicated(kind)  # it has to be asked all the same
        return True


class Pair:
    """Two endpoints, a shard that delivers to them, and what each was sent."""

    def __init__(self, house: House, one: Proxy, other: Proxy, rig: Rig) -> None:
        self.house, self.one, self.other, self.rig = house, one, other, rig
        self.run = next(FIRST_RUNS)
        self.tokens: dict[str, list[str]] = {"one": [], "other": []}

    def fault(self, name: str, fault: faults.Fault) -> None:
        """Each insert at that endpoint meets it, and its token is noted."""

        async def noted(exchange: faults.Exchange) -> None:
            token = exchange.query.partition("insert_deduplication_token=")[2].partition("&")[0]
            self.tokens[name].append(token)
            await fault(exchange)

        (self.one if name == "one" else self.other).every = noted

    def append(self, first: int) -> None:
        rows = MetricsRows(TenantId("1"), "endpoints", RunId(self.run))
        for step in range(first, first + ROWS):
            rows.add_line(1_764_423_221_000 + step, float(step), name_shape(["x"]), [float(step)])
        self.rig.append(rows.finish())

    def stored(self) -> list[float]:
        found = self.house.backend.ask(
            f"SELECT value FROM mlop_metrics WHERE runId = {self.run} ORDER BY value"
        )
        return [float(value) for (value,) in found]


@pytest.fixture
def other(house: House) -> Iterator[Proxy]:
    proxy = Proxy(house.proxy.upstream).start()
    yield proxy
    proxy.stop()


@pytest.fixture(params=[Replicated])
async def pair(
    request: pytest.FixtureRequest, house: House, proxy: Proxy, other: Proxy, tmp_path: Path
) -> AsyncIterator[Pair]:
    sinks = [
        request.param(
            Endpoint(one.url, "charon", USER, PASSWORD, timeout_seconds=1.0), clock=SystemClock()
        )
        for one in (proxy, other)
    ]
    rig = Rig(tmp_path, RoamingSink(sinks, metrics=NoMetrics()))
    pair = Pair(house, proxy, other, rig)
    pair.fault("one", faults.passed)
    pair.fault("other", faults.passed)
    yield pair
    await rig.close()
    await rig.sink.close()


@pytest.mark.parametrize(
    "fault",
    [
        *(refused(code) for code in (242, 225, 999, 319)),
        taken_but_refused(319),
        faults.cut_before,
        faults.cut_after,
        refused(None, 503),
    ],
    ids=["242", "225", "999", "319", "319 stored", "cut", "answer lost", "503"],
)
async def test_the_same_token_goes_to_the_other_endpoint(pair: Pair, fault: faults.Fault) -> None:
    pair.fault("one", fault)
    pair.append(0)
    pair.rig.start()
    await pair.rig.drain()
    pair.append(ROWS)
    await pair.rig.drain()
    assert pair.stored() == [float(step) for step in range(2 * ROWS)]
    assert len(pair.tokens["one"]) == 1, "it is not gone back to while the other is well"
    assert pair.tokens["other"][0] == pair.tokens["one"][0]


async def test_an_endpoint_that_is_not_there_is_left(pair: Pair) -> None:
    pair.one.down()
    pair.append(0)
    pair.rig.start()
    await pair.rig.drain()
    assert pair.stored() == [float(step) for step in range(ROWS)]
    pair.one.up()
    pair.other.down()
    pair.append(ROWS)
    await pair.rig.drain()
    assert pair.stored() == [float(step) for step in range(2 * ROWS)]


async def test_what_is_wrong_with_rows_or_table_is_no_endpoints_fault(pair: Pair) -> None:
    turns = iter([refused(60, 404), refused(252), refused(241)])

    async def in_turn(exchange: faults.Exchange) -> None:
        await next(turns, faults.passed)(exchange)

    pair.fault("one", in_turn)
    pair.append(0)
    pair.rig.start()
    await pair.rig.drain()
    assert pair.stored() == [float(step) for step in range(ROWS)]
    assert pair.tokens["other"] == []


@pytest.mark.parametrize("pair", [ClickHouseSink], indirect=True)
async def test_a_table_that_is_not_replicated_stays_where_it_is_and_says_so(pair: Pair) -> None:
    turns = iter([refused(242), faults.cut_after, refused(999)])

    async def in_turn(exchange: faults.Exchange) -> None:
        await next(turns, faults.passed)(exchange)

    pair.fault("one", in_turn)
    pair.append(0)
    with structlog.testing.capture_logs() as logs:
        pair.rig.start()
        await pair.rig.drain()
    assert pair.stored() == [float(step) for step in range(ROWS)]
    assert pair.tokens["other"] == []
    told = [one for one in logs if one["event"] == "endpoints_ignored"]
    assert [one["table"] for one in told] == ["mlop_metrics"]


@pytest.mark.parametrize("pair", [ClickHouseSink], indirect=True)
async def test_without_replication_nothing_goes_elsewhere_when_the_first_is_away_at_a_start(
    pair: Pair,
) -> None:
    pair.one.down()
    pair.append(0)
    pair.rig.start()
    await pair.rig.until(lambda: pair.rig.statistics().failures > 4)
    assert pair.tokens["other"] == []
    pair.one.up()
    await pair.rig.drain()
    assert pair.stored() == [float(step) for step in range(ROWS)]
    assert pair.tokens["other"] == []


async def test_doctor_says_which_endpoints_are_of_no_use(house: House, other: Proxy) -> None:
    settings = Settings(
        clickhouse_url=house.proxy.url, clickhouse_other_urls=(other.url, "http://127.0.0.1:1")
    )
    client = ClickHouseClient(house.proxy.url, USER, PASSWORD)
    found = [one async for one in examine_endpoints(client, settings)]
    assert [one.state for one in found] == [WARNING] * 3
    assert "mlop_metrics" in found[1].found
    assert "ignored" in found[1].found
    assert "127.0.0.1:1" in found[2].found
