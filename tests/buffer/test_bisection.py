"""Finding bad rows: how many inserts it takes, and that it goes on where it was after a crash."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buffer import bisection
from buffer.batch import RowSpan
from buffer.checkpoint import Pending
from buffer.lsn import Lsn
from buffer.statistics import TableCondition
from schema.block import rows_of
from schema.ids import BlockNumber
from schema.streams import StreamKind
from tests.buffer.delivery_rig import Rig, logs, metrics
from tests.fakes import sink as fakes
from tests.fakes.sink import FakeSink


@pytest.fixture
async def rig(tmp_path):
    made = Rig(tmp_path, FakeSink())
    yield made
    await made.close()


def pending_of(rows, path=None):
    return Pending(Lsn(0), Lsn(9), rows, BlockNumber(1), 0, path)


def search(rows, bad, *, has_hint):
    """Works a batch through as the flusher does; returns spans tried, rows stored and set aside."""
    pending = pending_of(rows)
    tried, stored, aside = [], [], []
    path = None
    while True:
        span = bisection.span_of(pending)
        tried.append(span)
        wrong = [row for row in bad if span.first <= row < span.end]
        if not wrong:
            stored.extend(range(span.first, span.end))
            after = None if path is None else bisection.after_taken(path, rows)
        else:
            if bisection.is_exhausted(pending):
                return tried, stored, aside
            path = path or bisection.begun(pending)
            after = bisection.after_refused(path, wrong[0] if has_hint else None)
            if after is None:
                assert span.count == 1
                aside.append(span.first)
                after = bisection.after_quarantine(path, rows, is_new_frame=False)
        if after is None:
            return tried, stored, aside
        path = bisection.counted(after, rows)
        pending = pending_of(rows, path)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_every_row_is_stored_or_set_aside_once_and_only_bad_ones_are(data):
    rows = data.draw(st.integers(1, 300_000))
    bad = data.draw(st.sets(st.integers(0, rows - 1), max_size=3))
    has_hint = data.draw(st.booleans())
    tried, stored, aside = search(rows, sorted(bad), has_hint=has_hint)
    assert len(tried) <= bisection.INSERTS_MAX
    assert len(stored) == len(set(stored))
    assert set(aside) <= bad
    if len(tried) < bisection.INSERTS_MAX:
        assert sorted(stored + aside) == list(range(rows))


@pytest.mark.parametrize(("bad", "inserts_max"), [(0, 21), (100_000, 21), (199_999, 21)])
def test_one_bad_row_of_200_000_costs_about_its_logarithm(bad, inserts_max):
    tried, _, aside = search(200_000, [bad], has_hint=False)
    assert aside == [bad]
    assert len(tried) <= inserts_max


def test_three_inserts_are_enough_where_the_server_names_the_row():
    tried, _, aside = search(200_000, [123_456], has_hint=True)
    assert aside == [123_456]
    assert tried == [
        RowSpan(0, 200_000),
        RowSpan(0, 123_456),
        RowSpan(123_456, 123_457),
        RowSpan(123_457, 200_000),
    ]


def test_the_last_insert_is_all_the_rest():
    tried, _, _ = search(200_000, list(range(0, 200_000, 7)), has_hint=False)
    assert len(tried) == bisection.INSERTS_MAX
    assert tried[-1].end == 200_000


class TestInTheFlusher:
    async def fill(self, rig, frames, rows, bad):
        table = rig.table()
        table.is_bad = lambda row: row["value"] in bad
        for frame in range(frames):
            rig.append(metrics(*[float(frame * rows + row) for row in range(rows)]))
        rig.start()
        return table

    @pytest.mark.parametrize("names_bad_row", [True, False])
    async def test_only_the_bad_row_is_quarantined_and_the_rest_delivered(self, rig, names_bad_row):
        rig.table().names_bad_row = names_bad_row
        table = await self.fill(rig, 10, 40, {123.0})
        await rig.drain()
        assert sorted(row["value"] for row in table.rows) == [
            float(row) for row in range(400) if row != 123
        ]
        [entry] = rig.set_aside()
        [row] = rows_of(entry.chunks[0])
        assert row["value"] == 123.0
        assert entry.header["code"] == 469
        assert entry.header["frames"][0]["lsn"] == 3
        assert len(table.inserts) <= 64
        assert len({insert.token for insert in table.inserts}) == len(table.inserts)
        assert len({insert.number for insert in table.inserts}) == len(table.inserts)

    async def test_eight_bad_frames_are_found_where_rows_are_named(self, rig):
        bad = {float(frame * 40 + 7) for frame in range(8)}
        table = await self.fill(rig, 10, 40, bad)
        await rig.drain()
        assert len(table.rows) == 392
        assert rig.quarantine.statistics().rows == 8

    async def test_more_bad_frames_than_eight_are_the_operators(self, rig):
        bad = {float(frame * 40 + 7) for frame in range(10)}
        table = await self.fill(rig, 10, 40, bad)
        await rig.until(lambda: rig.statistics().condition is TableCondition.WAITING)
        assert rig.quarantine.statistics().rows == 8
        table.is_bad = None  # the operator drops the constraint
        await rig.drain()
        assert len(table.rows) == 392

    async def test_half_of_a_batch_is_the_operators(self, rig):
        rows = bisection.SHARE_ROWS_MIN
        table = await self.fill(rig, 1, rows, set(map(float, range(rows))))
        await rig.until(lambda: rig.statistics().condition is TableCondition.WAITING)
        aside = rig.quarantine.statistics().rows
        assert 2 * aside < rows
        table.is_bad = None
        await rig.drain()
        assert len(table.rows) == rows - aside

    @pytest.mark.parametrize("rows", [1, 2])
    async def test_a_bad_row_that_comes_alone_holds_up_nothing(self, rig, rows):
        table = await self.fill(rig, 1, rows, {0.0})
        await rig.drain()
        assert [row["value"] for row in table.rows] == [1.0][: rows - 1]
        [entry] = rig.set_aside()
        assert [row["value"] for row in rows_of(entry.chunks[0])] == [0.0]
        rig.append(metrics(7.0))
        await rig.drain()
        assert [row["value"] for row in table.rows][-1] == 7.0

    async def test_small_batches_that_are_all_bad_are_the_operators_across_restarts(self, rig):
        table = rig.table()
        table.is_bad = lambda row: True
        rig.start()
        for number in range(bisection.BAD_FRAMES_MAX):
            if number == 5:  # what was counted is on disk
                await rig.kill()
                rig.start()
            rig.append(metrics(float(number)))
            await rig.drain()
        assert rig.quarantine.statistics().rows == bisection.BAD_FRAMES_MAX
        rig.append(metrics(100.0))
        await rig.until(lambda: rig.statistics().condition is TableCondition.WAITING)
        table.is_bad = None
        await rig.drain()
        assert [row["value"] for row in table.rows] == [100.0]
        table.is_bad = lambda row: row["value"] == 200.0
        rig.append(metrics(200.0))  # a row was taken since: it is counted from nothing
        await rig.drain()
        assert rig.quarantine.statistics().rows == bisection.BAD_FRAMES_MAX + 1

    async def test_a_search_used_up_is_the_operators_and_ends_when_it_is_mended(self, rig):
        table = rig.table()
        table.names_bad_row = False
        bad = {float(row) for row in range(0, 1_000, 40)}
        table = await self.fill(rig, 1, 1_000, bad)
        await rig.until(lambda: rig.statistics().condition is TableCondition.WAITING)
        tries = len({insert.number for insert in table.inserts})
        assert tries <= 64
        await rig.until(lambda: rig.statistics().failures > 3)
        assert len({insert.number for insert in table.inserts}) == tries  # no more are made up
        aside = rig.quarantine.statistics().rows
        table.is_bad = None
        await rig.drain()
        assert len(table.rows) == 1_000 - aside

    async def test_another_table_is_delivered_meanwhile(self, rig):
        rows = bisection.SHARE_ROWS_MIN
        await self.fill(rig, 1, rows, set(map(float, range(rows))))
        await rig.until(lambda: rig.statistics().condition is TableCondition.WAITING)
        rig.append(logs("a"))
        await rig.until(lambda: rig.table(StreamKind.LOGS).rows)

    @pytest.mark.parametrize("kill_at", range(1, 11))
    async def test_a_crash_at_any_try_loses_and_doubles_nothing(self, rig, kill_at):
        table = rig.table()
        table.names_bad_row = False
        table.is_bad = lambda row: row["value"] == 77.0
        reached = asyncio.Event()

        async def store_and_hang(sink, table, token, number, rows, query_id):
            if not any(row["value"] == 77.0 for row in rows):
                table.store(token, number, rows)
            reached.set()
            await asyncio.Event().wait()

        async def plainly(sink, table, token, number, rows, query_id):
            sink._store(table, token, number, rows)

        table.script.extend([plainly] * (kill_at - 1) + [store_and_hang])
        for frame in range(5):
            rig.append(metrics(*[float(frame * 20 + row) for row in range(20)]))
        rig.start()
        async with asyncio.timeout(5):
            await reached.wait()
        await rig.kill()
        rig.start()
        await rig.drain()
        assert sorted(row["value"] for row in table.rows) == [
            float(row) for row in range(100) if row != 77
        ]
        assert rig.quarantine.statistics().rows == 1
        assert len(table.inserts) <= 64

    async def test_lost_answers_in_a_bisection_are_settled_like_any(self, rig):
        table = rig.table()
        table.names_bad_row = False
        table.is_bad = lambda row: row["value"] == 5.0

        def plainly():
            async def act(sink, table, token, number, rows, query_id):
                sink._store(table, token, number, rows)

            return act

        for _ in range(6):
            table.script.extend([plainly(), fakes.lose_request()])
        table.script.extend([fakes.store_and_lose_answer(), fakes.note_token_only()])
        rig.append(metrics(*[float(row) for row in range(64)]))
        rig.start()
        await rig.drain()
        assert sorted(row["value"] for row in table.rows) == [
            float(row) for row in range(64) if row != 5
        ]
        assert rig.quarantine.statistics().rows == 1
