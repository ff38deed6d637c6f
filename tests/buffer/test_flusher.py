"""The loop of one table against the model of ClickHouse: what is sent, and what is waited for."""

import asyncio
from dataclasses import replace

import pytest

from buffer.sink import SinkError
from buffer.statistics import TableCondition
from schema.block import rows_of
from schema.chcodes import ErrorClass
from schema.layout import live_layout
from schema.streams import METRICS, STREAMS, StreamKind
from tests.buffer.delivery_rig import SHARD, TAG, Rig, logs, metrics
from tests.fakes import sink as fakes
from tests.fakes.sink import FakeSink


@pytest.fixture
async def rig(tmp_path):
    made = Rig(tmp_path, FakeSink())
    yield made
    await made.close()


def values(table):
    return [row["value"] for row in table.rows]


async def test_all_streams_reach_their_tables_each_row_once(rig):
    rig.append(metrics(1.0, 2.0), logs("a", "b", "c"))
    rig.append(metrics(3.0))
    rig.start()
    await rig.drain()
    assert values(rig.table()) == [1.0, 2.0, 3.0]
    assert [row["message"] for row in rig.table(StreamKind.LOGS).rows] == ["a", "b", "c"]
    assert rig.statistics().delivered_rows == 3


async def test_a_backlog_of_many_frames_is_one_block_with_one_token(rig):
    for index in range(20):
        rig.append(metrics(float(index)))
    rig.start()
    await rig.drain()
    [insert] = rig.table().inserts
    assert insert.rows == 20
    shard, bounds, table, _, generation = insert.token.split(":")
    assert (shard, bounds, table, generation) == (SHARD.hex(), "0-19", "mlop_metrics", "0")
    assert insert.number == TAG << 32 | 1


async def test_rows_appended_while_it_runs_are_delivered_when_they_are_old_enough(rig):
    rig.start()
    await asyncio.sleep(0)
    rig.append(metrics(1.0))
    rig.append(metrics(2.0))
    await rig.until(lambda: len(rig.table().rows) == 2)
    await rig.drain()
    assert [insert.rows for insert in rig.table().inserts] == [2]


async def test_a_batch_ends_at_its_row_limit(tmp_path):
    rig = Rig(tmp_path, FakeSink(), batch_rows_max=10)
    for index in range(25):
        rig.append(metrics(float(index), float(index)))
    rig.start()
    await rig.drain()
    assert [insert.rows for insert in rig.table().inserts] == [10, 10, 10, 10, 10]
    assert len({insert.number for insert in rig.table().inserts}) == 5
    await rig.close()


async def test_a_batch_ends_before_its_block_passes_the_byte_limit(tmp_path):
    rig = Rig(tmp_path, FakeSink(), batch_bytes_max=6_000)
    for index in range(12):
        rig.append(metrics(*[float(index)] * 10, name="n" * 400))
    rig.start()
    await rig.drain()
    inserts = rig.table().inserts
    assert sum(insert.rows for insert in inserts) == 120
    assert len(inserts) >= 3
    await rig.close()


async def test_bounds_and_number_are_on_disk_before_the_first_try(rig):
    seen = []

    async def look(sink, table, token, number, rows, query_id):
        await rig.checkpoint.close()  # whatever is read now comes from the file
        stored = type(rig.checkpoint).open(rig.fs, rig.directory, rig.disk, SHARD)
        seen.append(stored.state(StreamKind.METRICS))
        await stored.close()
        rig.checkpoint._is_closed = False
        rig.checkpoint._fd = rig.fs.open_write(rig.directory / "checkpoint")
        table.store(token, number, rows)

    rig.table().script.append(look)
    rig.append(metrics(1.0, 2.0))
    rig.start()
    await rig.drain()
    pending = seen[0].pending
    assert (pending.first, pending.last, pending.rows, pending.generation) == (0, 0, 2, 0)
    assert pending.number == TAG << 32 | 1
    assert seen[0].next_number == 2


async def test_a_transient_error_is_retried_as_it_was_and_only_later_batches_grow(rig):
    rig.table().script.extend([fakes.refuse(252)] * 5)
    rig.append(metrics(1.0))
    rig.start()
    await rig.until(lambda: rig.table().inserts)
    rig.append(metrics(2.0))
    rig.append(metrics(3.0))
    await rig.drain()
    inserts = rig.table().inserts
    assert [insert.rows for insert in inserts] == [1] * 6 + [2]
    assert values(rig.table()) == [1.0, 2.0, 3.0]


async def test_waits_grow_to_their_cap_and_never_end(rig):
    rig.table().script.extend([fakes.refuse(252)] * 20)
    rig.append(metrics(1.0))
    rig.start()
    await rig.drain()
    waits = [wait for wait in rig.clock.sleeps if wait >= 0.05]
    assert waits[:3] == [0.05, 0.1, 0.2]  # half of the span: the random part is nothing here
    assert max(waits) == 5.0
    assert values(rig.table()) == [1.0]


async def test_a_lost_answer_after_storing_is_found_and_nothing_is_added(rig):
    rig.table().script.append(fakes.store_and_lose_answer())
    rig.append(metrics(1.0, 2.0))
    rig.start()
    await rig.drain()
    insert, again = rig.table().inserts
    assert rig.sink.settled == [insert.query_id]
    assert rig.sink.asked == [insert.number]
    assert again.token == insert.token
    assert values(rig.table()) == [1.0, 2.0]


async def test_an_insert_that_ended_before_its_view_fills_it_when_it_is_found(rig):
    """Killed between the table's part and the view's, by us or with its server."""
    rig.table().script.append(fakes.store_without_view())
    rig.append(metrics(1.0, 2.0))
    rig.start()
    await rig.drain()
    assert values(rig.table()) == [1.0, 2.0]
    assert [row["value"] for _, row in rig.table().view_rows] == [1.0, 2.0]


async def test_answers_that_are_always_lost_do_not_keep_a_stored_batch(rig):
    rig.table().script.extend([fakes.store_and_lose_answer()] * 4)
    rig.append(metrics(1.0))
    rig.start()
    await rig.drain()
    rig.append(metrics(2.0))
    await rig.drain()
    assert [insert.token[-2:] for insert in rig.table().inserts] == [":0"] * 4
    assert values(rig.table()) == [1.0, 2.0]


async def test_a_lost_request_is_sent_again_under_the_next_generation(rig):
    rig.table().script.append(fakes.lose_request())
    rig.append(metrics(1.0))
    rig.start()
    await rig.drain()
    first, second = rig.table().inserts
    assert first.token.rpartition(":")[0] == second.token.rpartition(":")[0]
    assert (first.token[-2:], second.token[-2:]) == (":0", ":1")
    assert first.number == second.number
    assert first.query_id != second.query_id
    assert values(rig.table()) == [1.0]


async def test_a_token_noted_without_its_part_does_not_make_the_retry_a_lie(rig):
    rig.table().script.append(fakes.note_token_only())
    rig.append(metrics(1.0, 2.0))
    rig.start()
    await rig.drain()
    assert values(rig.table()) == [1.0, 2.0]


async def test_a_replicated_table_keeps_its_token(rig):
    rig.table().is_replicated = True
    rig.table().script.extend([fakes.lose_request(), fakes.refuse(242), fakes.refuse(319)])
    rig.append(metrics(1.0))
    rig.start()
    await rig.drain()
    assert len({insert.token for insert in rig.table().inserts}) == 1
    assert len(rig.table().inserts) == 4
    assert values(rig.table()) == [1.0]


async def test_a_query_that_outlives_its_client_is_settled_before_anything_is_sent_again(rig):
    rig.table().script.append(fakes.land_when_settled())
    rig.append(metrics(1.0))
    rig.start()
    await rig.drain()
    assert len({insert.token for insert in rig.table().inserts}) == 1
    assert values(rig.table()) == [1.0]


@pytest.mark.parametrize("code", [252, 241, 242, 243, 159, 209, 210, 225, 999, 319, 236, 394])
async def test_transient_codes_lose_and_double_nothing(rig, code):
    rig.table().script.extend([fakes.refuse(code), fakes.store_and_lose_answer()])
    rig.append(metrics(1.0))
    rig.start()
    await rig.drain()
    assert values(rig.table()) == [1.0]


@pytest.mark.parametrize(
    ("code", "status"), [(60, 404), (81, 404), (16, 400), (497, 403), (516, 403)]
)
async def test_what_the_operator_must_mend_waits_loudly_and_the_live_table_is_read_again(
    rig, code, status
):
    seen = []

    async def look_and_refuse(*_):
        seen.append(rig.statistics())
        raise fakes.refusal(code, status)

    rig.table().script.extend([look_and_refuse] * 3)
    rig.append(metrics(1.0))
    rig.start()
    await rig.drain()
    assert [item.condition for item in seen[1:]] == [TableCondition.WAITING] * 2
    assert seen[1].code == code
    assert rig.table().layout_reads == 4
    assert len({insert.token for insert in rig.table().inserts}) == 1
    assert rig.statistics().condition is TableCondition.OK
    assert values(rig.table()) == [1.0]


async def test_a_missing_table_holds_up_no_other(rig):
    rig.table().layout_error = SinkError(
        ErrorClass.OPERATOR, 60, "there is no table", is_outcome_unknown=False
    )
    rig.append(metrics(1.0), logs("a"))
    rig.start()
    await rig.until(lambda: rig.table(StreamKind.LOGS).rows)
    await rig.until(lambda: rig.statistics().condition is TableCondition.WAITING)
    rig.append(logs("b"))
    await rig.until(lambda: len(rig.table(StreamKind.LOGS).rows) == 2)
    assert rig.statistics(StreamKind.LOGS).condition is TableCondition.OK
    rig.table().layout_error = None
    await rig.drain()
    assert values(rig.table()) == [1.0]


async def test_one_hanging_insert_holds_up_no_other_table(rig):
    gate = asyncio.Event()
    rig.table().script.append(fakes.block_until(gate))
    rig.append(metrics(1.0), logs("a"))
    rig.start()
    await rig.until(lambda: rig.table(StreamKind.LOGS).rows and rig.table().inserts)
    assert not rig.table().rows
    gate.set()
    await rig.drain()
    assert values(rig.table()) == [1.0]


async def test_the_server_away_for_long_loses_nothing(rig):
    rig.sink.is_down = True
    rig.append(metrics(1.0), logs("a"))
    rig.start()
    await rig.until(lambda: rig.statistics().failures > 12)
    assert rig.statistics().condition is TableCondition.RETRYING
    assert rig.statistics().oldest_seconds > 0
    assert rig.statistics().backlog_frames == 2
    rig.append(metrics(2.0))
    rig.sink.is_down = False
    await rig.drain()
    assert values(rig.table()) == [1.0, 2.0]
    assert rig.statistics().backlog_bytes == 0


async def test_a_block_that_the_server_cannot_read_stops_its_table_alone(rig):
    rig.table().script.append(fakes.refuse(33, 400))
    rig.append(metrics(1.0), logs("a"))
    rig.start()
    await rig.until(lambda: rig.statistics().condition is TableCondition.STOPPED)
    rig.append(metrics(2.0), logs("b"))
    await rig.until(lambda: len(rig.table(StreamKind.LOGS).rows) == 2)
    assert len(rig.table().inserts) == 1
    await rig.kill()  # a restart tries again
    rig.start()
    await rig.drain()
    assert values(rig.table()) == [1.0, 2.0]


class TestFoundPending:
    """A batch that is pending in the checkpoint at a start."""

    async def crash_in(self, rig, act):
        rig.table().script.append(act)
        rig.append(metrics(1.0, 2.0))
        rig.append(metrics(3.0))
        rig.start()
        await rig.until(lambda: rig.table().inserts)
        await rig.until(lambda: rig.checkpoint.state(StreamKind.METRICS).pending)
        await rig.kill()
        rig.append(metrics(4.0))
        rig.start()
        await rig.drain()

    async def test_and_stored_is_done(self, rig):
        async def store_and_hang(sink, table, token, number, rows, query_id):
            table.store(token, number, rows)
            await asyncio.Event().wait()

        await self.crash_in(rig, store_and_hang)
        assert values(rig.table()) == [1.0, 2.0, 3.0, 4.0]
        first, again, _ = rig.table().inserts
        assert first.token == again.token

    async def test_and_absent_is_sent_again_with_the_same_rows_and_number(self, rig):
        await self.crash_in(rig, fakes.block_until(asyncio.Event()))
        first, again, later = rig.table().inserts
        assert (first.rows, again.rows, later.rows) == (3, 3, 1)
        assert first.number == again.number
        assert again.token == first.token[:-1] + "1"
        assert values(rig.table()) == [1.0, 2.0, 3.0, 4.0]

    async def test_and_still_running_is_settled_by_its_query_id(self, rig):
        async def hang_and_land(sink, table, token, number, rows, query_id):
            sink.late[query_id] = lambda: table.store(token, number, rows)
            await asyncio.Event().wait()

        await self.crash_in(rig, hang_and_land)
        assert rig.sink.settled == [rig.table().inserts[0].query_id]
        assert values(rig.table()) == [1.0, 2.0, 3.0, 4.0]


class TestForeignTables:
    """Tables that another migration made: no column ``batch``, steps as UInt64."""

    @pytest.fixture
    def foreign(self, rig):
        types = {column.name: column.type for column in METRICS.columns} | {"step": "UInt64"}
        del types["batch"]
        rig.table().layout = live_layout(METRICS, types)
        return rig

    async def test_rows_whose_steps_do_not_fit_are_cut_out_and_the_rest_delivered(self, foreign):
        foreign.append(metrics(1.0, 2.0))
        foreign.append(metrics(3.0, 4.0, 5.0, step=-1.0))
        foreign.append(metrics(6.0, step=0.5))
        foreign.start()
        await foreign.drain()
        assert values(foreign.table()) == [1.0, 2.0, 4.0, 5.0]
        [entry] = foreign.set_aside()
        assert "UInt64" in entry.header["reason"]
        kept = [row for chunks in entry.chunks for row in rows_of(chunks)]
        assert [(row["step"], row["value"]) for row in kept] == [(-1.0, 3.0), (0.5, 6.0)]
        assert [frame["lsn"] for frame in entry.header["frames"]] == [1, 2]

    async def test_a_batch_of_nothing_but_unfit_rows_is_set_aside_and_done(self, foreign):
        foreign.append(metrics(1.0, 2.0, step=0.25))
        foreign.start()
        await foreign.drain()
        assert foreign.table().inserts == []
        assert foreign.quarantine.statistics().rows == 2

    async def test_a_lost_answer_is_sent_again_because_nobody_can_be_asked(self, foreign):
        foreign.table().script.append(fakes.note_token_only())
        foreign.append(metrics(1.0))
        foreign.start()
        await foreign.drain()
        assert values(foreign.table()) == [1.0]
        assert foreign.sink.asked == []

    async def test_retries_of_a_batch_with_unfit_rows_set_them_aside_once(self, foreign):
        foreign.table().script.extend([fakes.refuse(252)] * 3)
        foreign.append(metrics(1.0, 2.0, step=-1.0))
        foreign.start()
        await foreign.drain()
        assert values(foreign.table()) == [2.0]
        assert len(foreign.set_aside()) == 1


async def test_a_view_that_throws_is_a_failed_insert_and_its_target_is_filled_later(rig):
    rig.table().view_refuses = True
    rig.append(metrics(1.0, 2.0))
    rig.start()
    await rig.until(lambda: rig.statistics().condition is TableCondition.WAITING)
    assert "view" in rig.statistics().reason
    await rig.until(lambda: len(rig.table().inserts) > 3)
    rig.table().view_refuses = False
    await rig.drain()
    assert values(rig.table()) == [1.0, 2.0]
    assert [row["value"] for _, row in rig.table().view_rows] == [1.0, 2.0]
    assert len({insert.token for insert in rig.table().inserts}) == 1
    assert rig.set_aside() == []


async def test_a_writer_task_that_dies_is_restarted_and_seen(rig):
    """F22: the first failed insert killed the writer, and the service went on saying 200."""
    rig.table().script.extend([fakes.crash(RuntimeError("boom"))] * 3)
    rig.append(metrics(1.0))
    rig.start()
    await rig.until(lambda: len(rig.table().inserts) >= 3)
    [task] = [task for task in rig.delivery.tasks() if "mlop_metrics" in task.name]
    assert task.failures >= 2
    assert "boom" in task.last_error
    assert task.failing_seconds > 0
    await rig.drain()
    assert values(rig.table()) == [1.0]


async def test_a_task_that_stays_dead_is_in_the_list_of_the_dead(rig):
    async def die(*_):
        raise RuntimeError("boom")

    rig.sink.layout = die
    rig.append(metrics(1.0))
    rig.start()

    def failing():
        return max(task.failing_seconds for task in rig.delivery.tasks())

    await rig.until(lambda: failing() > 3.0)  # by the rig's clock, which leaps


async def test_memory_does_not_hold_a_batch_while_it_waits(rig):
    rig.sink.is_down = True
    rig.append(metrics(1.0))
    rig.start()
    await rig.until(lambda: rig.statistics().failures > 2)
    flusher = rig.delivery._flushers["mlop_metrics"]
    assert flusher._sender._frames is None


async def test_other_tables_frames_do_not_hold_the_log(rig):
    rig.append(logs("a"))
    rig.start()
    await rig.drain()
    assert all(rig.checkpoint.state(kind).delivered == 1 for kind in STREAMS)


async def test_a_failed_checkpoint_write_is_tried_again_before_anything_is_sent(rig):
    calls = []
    pwritev = rig.fs.pwritev

    def fail_twice(fd, pieces, offset):
        if fd == rig.checkpoint._fd and len(calls) < 2:
            calls.append(len(rig.table().inserts))
            raise OSError(28, "No space left on device")
        return pwritev(fd, pieces, offset)

    rig.fs.pwritev = fail_twice
    rig.append(metrics(1.0))
    rig.start()
    await rig.drain()
    assert calls == [0, 0]
    assert values(rig.table()) == [1.0]


async def test_nothing_is_waited_for_at_a_stop(rig):
    rig.options = replace(rig.options, batch_age_seconds_max=3600.0)
    rig.start()
    rig.append(metrics(1.0))
    rig.delivery.finish()
    await asyncio.wait_for(rig.delivery.drained(), 5)
    assert values(rig.table()) == [1.0]
