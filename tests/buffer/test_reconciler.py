"""Blocks that the server confirmed and does not have: noticed, told, and sent again on request."""

import asyncio
import os

import pytest

from buffer import Submission
from buffer.building import BlockBuilder
from buffer.journal import files_of, read_file
from buffer.lookups import identity
from buffer.metrics import METRICS as NAMED
from buffer.reconcile import BlockState, compare
from buffer.reconciler import MISSING_ROUNDS, Reconciler
from buffer.resend import ask, requests_of
from buffer.sink import SinkError
from buffer.surroundings import Surroundings
from schema.layout import live_layout
from schema.reading import rows_of
from schema.streams import METRICS, StreamKind
from tests.buffer.delivery_rig import LeapingClock, logs, metrics
from tests.buffer.test_writeahead import OPTIONS, Yard
from tests.fakes.sink import lose_request, refuse, store_and_lose_answer

KIND = StreamKind.METRICS


class Site:
    """A buffer on real files, and a reconciler over its shard whose clock leaps."""

    def __init__(self, root):
        self.yard = Yard(root)
        self.clock = LeapingClock()
        self.values = {}

    async def open(self):
        self.buffer = await self.yard.open()
        own = self.buffer._own
        self.shard = own.shard.directory
        around = Surroundings(
            sink=self.yard.sink,
            builder=BlockBuilder(),
            options=OPTIONS,
            clock=self.clock,
            metrics=self,
            random=lambda: 0.0,
        )
        self.reconciler = Reconciler(own, around)
        return self

    # The metrics that the reconciler counts.

    def count(self, name, n=1, **labels):
        assert set(labels) == {one.name: set(one.labels) for one in NAMED}[name]
        self.values[name] = self.values.get(name, 0) + n

    def gauge(self, name, value, **labels):
        assert name in {one.name for one in NAMED}
        self.values[name] = value

    @property
    def table(self):
        return self.yard.sink.tables[KIND]

    @property
    def requests(self):
        return requests_of(self.yard.fs, self.shard / "resend")

    async def send(self, *values):
        """Rows on their way in, and in the table."""
        await self.buffer.append(_submission(metrics(*values)))
        async with asyncio.timeout(10):
            while self.buffer.statistics().tables["mlop_metrics"].backlog_frames:
                await asyncio.sleep(0.005)

    async def round(self):
        self.clock.offset += 60.0
        await self.reconciler.compare()

    def ask(self, stored_rows=0):
        [record] = list(self.reconciler._missing.values())
        return ask(self.yard.fs, self.shard / "resend", record, stored_rows)


def _submission(chunks):
    return Submission((chunks,), os.urandom(16), chunks.row_count, 0)


@pytest.fixture
async def site(tmp_path):
    made = await Site(tmp_path).open()
    yield made
    for buffer in made.yard.opened:
        await buffer.close(1.0)


async def test_blocks_that_are_there_are_counted_and_looked_for_quickly(site):
    await site.send(1.0, 2.0)
    await site.round()
    assert site.values["reconciled_batches"] == 1
    assert site.values["batches_missing"] == 0
    [(_, since)] = site.yard.sink.looks
    assert since is not None
    await site.round()
    assert site.values["reconciled_batches"] == 1  # each block once


async def test_a_block_that_vanished_is_missing_after_two_looks_and_sent_again_when_asked(site):
    await site.send(1.0, 2.0)
    site.table.parts.clear()  # the server said 200 and has nothing; it keeps the token
    await site.round()
    assert "missing_batches" not in site.values
    await site.round()
    assert (site.values["missing_batches"], site.values["batches_missing"]) == (1, 1)
    await site.reconciler.resend()
    assert site.table.parts == []  # nothing is sent by itself
    _, number = next(iter(site.reconciler._missing))
    assert site.ask()
    assert not site.ask()
    await site.reconciler.resend()
    assert [row["value"] for row in site.table.rows] == [1.0, 2.0]
    assert {row["batch"] for row in site.table.rows} == {number}
    assert site.requests == []
    await site.round()
    assert (site.values["batches_missing"], site.values["resent_batches"]) == (0, 1)


async def test_rows_that_came_again_in_another_block_are_not_missing(site):
    await site.send(1.0)
    await site.send(2.0)
    first, second = site.table.parts
    second.rows += first.rows  # a repeat of the first, into which merges collapsed it
    site.table.parts.remove(first)
    await site.round()
    await site.round()
    assert "missing_batches" not in site.values


async def test_a_server_that_does_not_answer_is_asked_again(site):
    await site.send(1.0)
    site.yard.sink.is_down = True
    await site.round()
    assert site.values["reconcile_failures"] == 1
    site.yard.sink.is_down = False
    await site.round()
    assert site.values["reconciled_batches"] == 1


async def test_a_table_without_the_column_is_not_compared(site):
    await site.send(1.0)
    types = {column.name: column.type for column in METRICS.columns if column.name != "batch"}
    layout = live_layout(METRICS, types)
    record = site.buffer._own.journal.recent[0]
    [one] = await compare(site.yard.sink, layout, [record])
    assert one.state is BlockState.NOT_COMPARED


@pytest.mark.parametrize(
    ("act", "is_stored_at_once"),
    [(store_and_lose_answer(), True), (lose_request(), False), (refuse(252), False)],
)
async def test_a_resend_of_unknown_outcome_is_settled_by_the_blocks_number(
    site, act, is_stored_at_once
):
    await site.send(1.0)
    site.table.parts.clear()
    await site.round()
    await site.round()
    site.ask()
    site.table.script.append(act)
    await site.reconciler.resend()
    [waiting] = site.requests
    assert waiting.is_tried
    await site.reconciler.resend()
    assert site.requests == []
    assert [row["value"] for row in site.table.rows] == [1.0]
    tokens = [insert.token for insert in site.table.inserts]
    assert len(set(tokens)) == len(tokens) == (2 if is_stored_at_once else 3)


async def test_what_can_never_be_sent_is_given_up_with_a_reason(site):
    await site.send(1.0)
    site.table.parts.clear()
    await site.round()
    await site.round()
    site.ask()
    site.table.is_bad = lambda row: True
    await site.reconciler.resend()
    assert site.requests == []
    assert site.table.rows == []


async def test_the_log_of_a_missing_block_is_kept_and_let_go_when_it_is_there_again(site):
    await site.send(1.0)
    parts, site.table.parts = site.table.parts, []
    for _ in range(2):
        await site.round()
        assert site.reconciler._parts.hold.from_lsn == 0
    looks = len(site.yard.sink.looks)
    for _ in range(MISSING_ROUNDS - 3):
        await site.round()
    assert len(site.yard.sink.looks) == looks  # a look for it reads a whole column
    site.table.parts = parts
    await site.round()
    assert site.reconciler._parts.hold.from_lsn is None
    assert site.values["batches_missing"] == 0


async def test_what_nobody_has_sent_again_for_a_day_is_let_go(site):
    await site.send(1.0)
    site.table.parts = []
    await site.round()
    await site.round()
    assert site.values["batches_missing"] == 1
    site.clock.offset += 25 * 3600
    await site.round()
    assert site.values["batches_missing"] == 0
    assert site.reconciler._parts.hold.from_lsn is None


async def test_a_request_survives_a_restart_and_an_adoption(site):
    await site.send(1.0)
    site.table.parts.clear()
    await site.round()
    await site.round()
    site.ask()
    await site.yard.kill(site.buffer)
    again = await site.open()
    assert again.reconciler._parts.hold.from_lsn == 0
    await again.reconciler.resend()
    assert [row["value"] for row in site.table.rows] == [1.0]


async def test_a_drained_shard_sends_again_what_it_was_asked_for_before_its_log_goes(site):
    await site.send(1.0)
    site.table.parts.clear()
    await site.round()
    await site.round()
    site.ask()
    heir = await site.yard.open(clock=LeapingClock(), start=False)
    await site.yard.kill(site.buffer)
    await heir.start()
    async with asyncio.timeout(10):
        while site.shard.exists():
            await asyncio.sleep(0.01)
    assert [row["value"] for row in site.table.rows] == [1.0]
    paths = files_of(site.yard.fs, heir._own.shard.directory / "delivered")
    noted = [one for path in paths for one in read_file(site.yard.fs, path)]
    assert [one.is_again for one in noted] == [False, True]


async def test_more_rows_of_a_short_block_can_be_asked_for(site):
    await site.send(1.0, 2.0, 3.0)
    [part] = site.table.parts
    part.rows.pop()
    record = site.buffer._own.journal.recent[0]
    [one] = await compare(site.yard.sink, site.table.layout, [record])
    assert (one.state, one.stored_rows) == (BlockState.SHORT, 2)
    ask(site.yard.fs, site.shard / "resend", record, one.stored_rows)
    await site.reconciler.resend()
    assert sorted({row["value"] for row in site.table.rows}) == [1.0, 2.0, 3.0]


def test_identities_are_bounded_and_quoted():
    rows = list(rows_of(metrics(1.0, 2.0, name="it's\\")))
    assert len(identity(KIND, rows)) == 2
    assert "\\'" in identity(KIND, rows)[0]
    assert len(identity(KIND, list(rows_of(metrics(*range(50), name="n" * 9_000))))) == 11


async def test_an_error_of_the_sink_leaves_the_task_alive(site):
    async def fail(*args, **kwargs):
        raise SinkError(None, 1, "no", is_outcome_unknown=False)

    site.yard.sink.stored_rows = fail
    await site.send(1.0)
    await site.round()
    assert site.values["reconcile_failures"] == 1


async def test_blocks_of_two_tables_under_one_number_are_told_apart(site):
    """Each table counts by itself: found when a table's missing block hid behind another's."""
    await site.send(1.0)
    await site.buffer.append(_submission(logs("a")))
    async with asyncio.timeout(10):
        while not site.yard.sink.tables[StreamKind.LOGS].rows:
            await asyncio.sleep(0.005)
    for table in site.yard.sink.tables.values():
        table.parts.clear()
    await site.round()
    await site.round()
    records = list(site.reconciler._missing.values())
    assert len({one.number for one in records}) == 1
    assert {one.kind for one in records} == {StreamKind.METRICS, StreamKind.LOGS}
    for record in records:
        assert ask(site.yard.fs, site.shard / "resend", record, 0)
    await site.reconciler.resend()
    assert site.values["resent_batches"] == 2
