"""The whole buffer of a worker, on real files, against the model of ClickHouse."""

import asyncio
import os
from collections import Counter
from dataclasses import replace
from typing import ClassVar

import pytest

from buffer import BufferOptions, Closed, LogFull, Submission, WriteAheadBuffer
from buffer.clock import SystemClock
from buffer.errors import OutcomeUnknown
from buffer.fs import RealFileSystem
from buffer.metrics import METRICS as NAMED
from buffer.shard import list_shards
from buffer.statistics import TableCondition
from schema.block import rows_of
from schema.layout import live_layout
from schema.streams import METRICS, StreamKind
from tests.buffer.delivery_rig import LeapingClock, logs, metrics
from tests.fakes.sink import FakeSink

OPTIONS = BufferOptions(batch_age_seconds_max=0.02, disk_free_bytes_min=0)


class Strict:
    """Metrics that know their list: a name or a label that is not in it is an error."""

    labels: ClassVar = {metric.name: set(metric.labels) for metric in NAMED}

    def __init__(self):
        self.counts = Counter()

    def count(self, name, n=1, **labels):
        self.observe(name, n, **labels)
        self.counts[name] += n

    def gauge(self, name, value, **labels):
        self.observe(name, value, **labels)

    def observe(self, name, value, **labels):
        assert set(labels) == self.labels[name], name


class Yard:
    """A root of shards, and the buffers that were opened on it."""

    def __init__(self, root):
        self.root = root
        self.sink = FakeSink()
        self.fs = RealFileSystem()
        self.metrics = Strict()
        self.opened = []

    async def open(self, *, clock=None, options=OPTIONS, start=True):
        buffer = await WriteAheadBuffer.open(
            self.root,
            options,
            sink=self.sink,
            clock=clock or SystemClock(),
            fs=self.fs,
            metrics=self.metrics,
        )
        self.opened.append(buffer)
        if start:
            await buffer.start()
        return buffer

    async def kill(self, buffer):
        """What kill -9 leaves: whatever is on disk, and the lock free."""
        buffer.terminate()
        await asyncio.sleep(0.02)
        buffer._own.shard.release()
        self.opened.remove(buffer)

    def values(self):
        return [row["value"] for row in self.sink.tables[StreamKind.METRICS].rows]


@pytest.fixture
async def yard(tmp_path):
    made = Yard(tmp_path / "log")
    yield made
    for buffer in made.opened:
        await buffer.close(0.0)


def submission(*chunks, digest=None):
    rows = sum(item.row_count for item in chunks)
    return Submission(tuple(chunks), digest or os.urandom(16), rows, 0)


async def append_for_ever(buffer):
    while True:
        await buffer.append(submission(metrics(*[1.0] * 100)))


async def drained(buffer):
    await until(lambda: buffer._delivery.is_drained)


async def until(condition, seconds=10.0):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


async def test_rows_are_durable_then_delivered(yard):
    buffer = await yard.open()
    receipt = await buffer.append(submission(metrics(1.0, 2.0), logs("a")))
    assert (receipt.accepted, receipt.rejected, receipt.is_repeat) == (3, 0, False)
    await until(lambda: yard.values() == [1.0, 2.0])
    statistics = buffer.statistics()
    assert statistics.is_writable
    assert statistics.dead_tasks == ()
    assert not statistics.is_degraded


async def test_a_repeat_stores_nothing_and_is_answered_with_the_first_counts(yard):
    buffer = await yard.open()
    one = submission(metrics(1.0), digest=b"d" * 16)
    first, joined = buffer.append(one), buffer.append(one)
    assert await first == replace(await joined, is_repeat=False)
    assert (await joined).is_repeat
    again = await buffer.append(one)
    assert again.is_repeat
    assert buffer.repeat_of(b"d" * 16) == again
    assert buffer.repeat_of(b"e" * 16) is None
    await buffer.close(5.0)
    assert yard.values() == [1.0]


async def test_the_first_request_hanging_up_does_not_take_its_repeat_down(yard):
    buffer = await yard.open(start=False)
    one = submission(metrics(1.0))
    first, joined = buffer.append(one), buffer.append(one)
    first.cancel()
    await buffer.start()
    assert (await joined).is_repeat
    await buffer.close(5.0)
    assert yard.values() == [1.0]


async def test_repeats_are_known_after_a_restart(yard):
    buffer = await yard.open()
    await buffer.append(submission(metrics(1.0), digest=b"d" * 16))
    await buffer.close(5.0)
    buffer = await yard.open()
    assert (await buffer.append(submission(metrics(1.0), digest=b"d" * 16))).is_repeat


async def test_a_failed_request_is_forgotten_and_its_joined_repeat_fails_too(yard):
    buffer = await yard.open(start=False)
    one = submission(metrics(1.0))
    first, joined = buffer.append(one), buffer.append(one)
    buffer.terminate()
    for future in (first, joined):
        with pytest.raises(Closed):
            await future
    assert buffer.repeat_of(one.digest) is None


async def test_what_was_acknowledged_before_a_kill_arrives_once(yard):
    yard.sink.is_down = True
    for round_ in range(3):
        buffer = await yard.open()
        for index in range(5):
            await buffer.append(submission(metrics(float(10 * round_ + index))))
        await yard.kill(buffer)
    yard.sink.is_down = False
    buffer = await yard.open()
    await buffer.close(5.0)
    assert sorted(yard.values()) == [float(10 * r + i) for r in range(3) for i in range(5)]
    assert len(list_shards(yard.fs, yard.root)) == 1


async def test_a_stop_while_clickhouse_is_away_is_quick_and_loses_nothing(yard):
    """F30."""
    yard.sink.is_down = True
    buffer = await yard.open()
    for index in range(10):
        await buffer.append(submission(metrics(float(index))))
    async with asyncio.timeout(6):
        await buffer.close(30.0)
    with pytest.raises(Closed):
        buffer.append(submission(metrics(1.0)))
    assert not buffer.statistics().is_writable
    yard.sink.is_down = False
    await (await yard.open()).close(5.0)
    assert sorted(yard.values()) == [float(index) for index in range(10)]


async def test_fifty_clean_stops_while_clickhouse_is_away_lose_and_double_nothing(yard):
    """F30, as often as it was reported to take."""
    yard.sink.is_down = True
    for stop in range(50):
        buffer = await yard.open()
        for index in range(10):
            await buffer.append(submission(metrics(float(10 * stop + index))))
        await buffer.close(0.0)
        yard.opened.remove(buffer)
    yard.sink.is_down = False
    await (await yard.open()).close(5.0)
    assert sorted(yard.values()) == [float(index) for index in range(500)]
    assert len(list_shards(yard.fs, yard.root)) == 1


async def test_a_stop_delivers_what_is_queued_and_young(yard):
    options = replace(OPTIONS, batch_age_seconds_max=3600.0)
    buffer = await yard.open(options=options)
    futures = [buffer.append(submission(metrics(float(index)))) for index in range(20)]
    await buffer.close(5.0)
    assert all(future.done() for future in futures)
    assert yard.values() == [float(index) for index in range(20)]


async def test_a_shard_that_nobody_holds_is_drained_after_ten_seconds_and_removed(yard):
    yard.sink.is_down = True
    first, second = await yard.open(), await yard.open()
    await first.append(submission(metrics(1.0)))
    await second.append(submission(metrics(2.0)))
    await yard.kill(first)
    await yard.kill(second)
    yard.sink.is_down = False
    assert len(list_shards(yard.fs, yard.root)) == 2
    clock = LeapingClock()
    begun = clock.monotonic()
    buffer = await yard.open(clock=clock)
    await until(lambda: sorted(yard.values()) == [1.0, 2.0])
    assert clock.monotonic() - begun >= 10.0
    await until(lambda: len(list_shards(yard.fs, yard.root)) == 1)
    assert buffer.statistics().adopted == {}


async def test_an_adopted_shard_leaves_its_quarantine_to_its_heir(yard):
    types = {column.name: column.type for column in METRICS.columns} | {"step": "UInt64"}
    yard.sink.tables[StreamKind.METRICS].layout = live_layout(METRICS, types)
    first, second = await yard.open(), await yard.open()
    yard.sink.is_down = True
    for buffer in (first, second):
        await buffer.append(submission(metrics(1.0, step=-1.0)))
        await yard.kill(buffer)
    yard.sink.is_down = False
    buffer = await yard.open(clock=LeapingClock())
    await until(lambda: len(list_shards(yard.fs, yard.root)) == 1)
    await until(lambda: buffer.statistics().quarantine.rows == 2)
    assert yard.values() == []
    names = buffer._own.quarantine.names()
    assert len({name.split("-")[2] for name in names}) == 2  # each says the shard it came from


async def test_a_full_quarantine_holds_its_table_until_there_is_room(yard):
    types = {column.name: column.type for column in METRICS.columns} | {"step": "UInt64"}
    yard.sink.tables[StreamKind.METRICS].layout = live_layout(METRICS, types)
    options = replace(OPTIONS, quarantine_bytes_max=10)
    buffer = await yard.open(options=options, clock=LeapingClock())
    await buffer.append(submission(metrics(1.0, 2.0, step=-1.0), logs("a")))

    def table():
        return buffer.statistics().tables["mlop_metrics"]

    await until(lambda: table().condition is TableCondition.WAITING)
    assert buffer.statistics().quarantine.is_full
    assert buffer.statistics().is_degraded
    assert "quarantine" in table().reason
    assert yard.values() == []
    await until(lambda: yard.sink.tables[StreamKind.LOGS].rows)
    buffer._own.quarantine._bytes_max = 2**20
    await until(lambda: yard.values() == [2.0])
    assert not buffer.statistics().quarantine.is_full


async def test_damage_is_set_aside_once_and_what_follows_is_delivered(yard):
    """F31, F32: a flipped byte in a sealed segment."""
    options = replace(OPTIONS, segment_bytes_max=8192, log_bytes_max=2**20)
    yard.sink.is_down = True
    buffer = await yard.open(options=options)
    for index in range(30):
        await buffer.append(submission(metrics(float(index), *[0.5] * 50)))
    directory = buffer._own.shard.directory
    await yard.kill(buffer)
    [first, *_] = sorted(directory.glob("*.seg"))
    data = bytearray(first.read_bytes())
    data[-400] ^= 0xFF
    first.write_bytes(data)
    yard.sink.is_down = False
    files = set()
    for _ in range(20):
        buffer = await yard.open(options=options)
        await drained(buffer)
        await buffer.close(5.0)
        yard.opened.remove(buffer)
        files.add(len(list(yard.root.rglob("*"))))
    assert max(files) - min(files) <= 1, "no start leaves more behind than the one before"
    found = [value for value in yard.values() if value != 0.5]
    assert len(found) == len(set(found)) == 29
    assert buffer.statistics().quarantine.entries == 1
    assert buffer.statistics().quarantine.damaged_ranges == 1


async def test_a_full_log_refuses_and_room_comes_back(yard):
    options = replace(OPTIONS, segment_bytes_max=4096, log_bytes_max=16_384)
    yard.sink.is_down = True
    buffer = await yard.open(options=options)
    with pytest.raises(LogFull):
        await append_for_ever(buffer)
    assert not await buffer.room(0.05, 4_000)
    yard.sink.is_down = False
    assert await buffer.room(20.0, 4_000)
    await buffer.append(submission(metrics(1.0)))


async def test_a_log_that_cannot_go_on_is_told(yard):
    buffer = await yard.open()
    waiting = asyncio.ensure_future(buffer.broken())

    def fail(*_):
        raise RuntimeError("boom")

    buffer._own.log.commit = fail
    with pytest.raises(OutcomeUnknown):
        await buffer.append(submission(metrics(1.0)))
    assert "boom" in str(await asyncio.wait_for(waiting, 5))
    assert not buffer.statistics().is_writable


async def test_quarantined_rows_can_be_read_back(yard):
    types = {column.name: column.type for column in METRICS.columns} | {"step": "UInt64"}
    yard.sink.tables[StreamKind.METRICS].layout = live_layout(METRICS, types)
    buffer = await yard.open()
    await buffer.append(submission(metrics(5.0, 6.0, step=-1.0)))
    await until(lambda: yard.values() == [6.0])
    quarantine = buffer._own.quarantine
    [entry] = [quarantine.read(name) for name in quarantine.names()]
    [row] = rows_of(entry.chunks[0])
    assert (row["value"], row["step"], row["tenantId"]) == (5.0, -1.0, "acme")


async def test_data_for_finished_runs_flows_like_any_other(yard):
    buffer = await yard.open()
    await buffer.append(submission(metrics(1.0, run=1)))
    await buffer.append(submission(metrics(2.0, run=1)))
    await until(lambda: sorted(yard.values()) == [1.0, 2.0])


async def test_a_writer_that_stays_dead_turns_readiness_off_within_five_seconds(yard):
    """F22."""

    async def die(*_):
        raise RuntimeError("boom")

    buffer = await yard.open()
    yard.sink.layout = die
    await buffer.append(submission(metrics(1.0)))
    await until(lambda: buffer.statistics().dead_tasks, seconds=5.0)
    assert "mlop_metrics" in buffer.statistics().dead_tasks[0]
    del yard.sink.layout
    await until(lambda: yard.values() == [1.0])
    assert yard.metrics.counts["task_failures"] > 1


async def test_the_names_of_the_root_and_of_the_data_directory_are_synced_at_a_start(tmp_path):
    class Watched(RealFileSystem):
        def __init__(self):
            self.synced = set()

        def fsync_dir(self, path):
            super().fsync_dir(path)
            self.synced.add(path)

    yard = Yard(tmp_path / "data" / "log")
    yard.fs = Watched()
    buffer = await yard.open()
    assert {tmp_path, tmp_path / "data", tmp_path / "data" / "log"} <= yard.fs.synced
    await buffer.close(1.0)
