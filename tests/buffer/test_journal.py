"""The journal of delivered blocks: read back after kills, bounded, and never in delivery's way."""

import errno

import pytest

from buffer import journal as journal_module
from buffer.fs import RealFileSystem
from buffer.journal import (
    FILES_MAX,
    RECORD_BYTES,
    Delivered,
    Journal,
    encode,
    files_of,
    newest_of,
    read_file,
    shard_of,
)
from buffer.lsn import Lsn
from buffer.metrics import NoMetrics
from schema.streams import StreamKind
from tests.buffer.delivery_rig import LeapingClock, Rig, logs, metrics
from tests.fakes.sink import FakeSink

SHARD = "ab" * 16


def delivered(number, at_ns=None, **changes):
    at_ns = LeapingClock().wall_ns() if at_ns is None else at_ns
    values = {"generation": 0, "first": Lsn(5), "last": Lsn(9), "batch_rows": 7}
    values |= {"first_row": 0, "end_row": 7, "rows": 6, "delivered_at_ns": at_ns}
    return Delivered(kind=StreamKind.LOGS, number=number, **(values | changes))


def opened(directory, shard=SHARD, fs=None, clock=None, metrics=None):
    made = Journal(
        fs or RealFileSystem(),
        directory,
        shard=shard,
        clock=clock or LeapingClock(),
        metrics=metrics or NoMetrics(),
    )
    made.open()
    return made


def read(directory):
    fs = RealFileSystem()
    return [one for path in files_of(fs, directory) for one in read_file(fs, path)]


def test_a_record_is_these_bytes():
    record = encode(delivered(2**63 + 1, 1_700_000_000_000_000_000, is_again=True))
    assert record.hex() == (
        "020100000000000001000000000000800500000000000000090000000000000007000000"
        "0000000000000000000000000700000000000000060000000000000000002a36fe9c9717"
        + record[72:].hex()
    )
    assert len(record) == RECORD_BYTES


def test_what_was_noted_is_read_back_while_it_is_written_and_after_a_restart(tmp_path):
    first = opened(tmp_path)
    first.note(delivered(1))
    assert [one.number for one in read(tmp_path)] == [1]
    second = opened(tmp_path)  # without a close: a kill
    second.note(delivered(2, is_again=True))
    assert [(one.number, one.is_again) for one in read(tmp_path)] == [(1, False), (2, True)]
    assert len(files_of(RealFileSystem(), tmp_path)) == 1
    assert shard_of(files_of(RealFileSystem(), tmp_path)[0]) == SHARD
    assert [one.number for one in second.due(2**63)] == [1, 2]


def test_a_torn_end_and_a_damaged_record_cost_themselves_alone(tmp_path):
    first = opened(tmp_path)
    for number in (1, 2, 3):
        first.note(delivered(number))
    [path] = files_of(RealFileSystem(), tmp_path)
    data = bytearray(path.read_bytes())
    data[2 * RECORD_BYTES + 9] ^= 1
    path.write_bytes(data[:-3])
    assert [one.number for one in read(tmp_path)] == [1]
    again = opened(tmp_path)
    again.note(delivered(4))
    assert [one.number for one in read(tmp_path)] == [1, 4]
    assert newest_of(RealFileSystem(), path).number == 4


def test_a_file_that_is_none_of_ours_has_no_records(tmp_path):
    (tmp_path / f"{SHARD}-00000000.journal").write_bytes(b"x" * 500)
    assert read(tmp_path) == []
    assert opened(tmp_path).due(2**63) == []


def test_files_are_rotated_and_the_oldest_go(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_module, "FILE_RECORDS_MAX", 3)
    journal = opened(tmp_path)
    for number in range(2 * FILES_MAX + 6):
        journal.note(delivered(number, at_ns=number))
    numbers = [one.number for one in read(tmp_path)]
    assert len(files_of(RealFileSystem(), tmp_path)) == FILES_MAX
    assert numbers == list(range(6, 2 * FILES_MAX + 6))


def test_a_drained_shard_leaves_its_files_to_the_heir(tmp_path):
    other, heir = opened(tmp_path / "a", "cd" * 16), opened(tmp_path / "b")
    other.note(delivered(1))
    heir.note(delivered(2))
    heir.take_over(other)
    assert {one.number for one in read(tmp_path / "b")} == {1, 2}
    assert read(tmp_path / "a") == []
    assert [one.number for one in heir.due(2**63)] == [1, 2]
    heir.note(delivered(3))
    assert {one.number for one in read(tmp_path / "b")} == {1, 2, 3}


def test_only_what_is_old_enough_is_due_and_what_is_put_back_comes_first(tmp_path):
    journal = opened(tmp_path)
    for number in range(4):
        journal.note(delivered(number, at_ns=number))
    due = journal.due(2)
    assert [one.number for one in due] == [0, 1]
    journal.put_back(due)
    assert [one.number for one in journal.due(3)] == [0, 1, 2]


def test_a_disk_that_refuses_it_is_counted_and_nothing_else(tmp_path):
    class Full(RealFileSystem):
        def pwritev(self, fd, pieces, offset):
            raise OSError(errno.ENOSPC, "No space left on device")

    class Counting(NoMetrics):
        def __init__(self):
            self.names = []

        def count(self, name, n=1, **labels):
            self.names.append(name)

    counting = Counting()
    journal = opened(tmp_path, fs=Full(), metrics=counting)
    journal.note(delivered(1))
    assert counting.names == ["journal_failures"]
    assert journal.due(2**63) != []  # compared from memory all the same
    working = opened(tmp_path)
    working.note(delivered(2))
    assert [one.number for one in read(tmp_path)] == [2]


@pytest.fixture
async def rig(tmp_path):
    made = Rig(tmp_path, FakeSink())
    yield made
    await made.close()


async def test_each_block_is_noted_with_its_rows_and_place(rig):
    rig.append(metrics(1.0, 2.0), logs("a"))
    rig.start()
    await rig.drain()
    noted = {one.kind: one for one in read(rig.directory / "delivered")}
    assert set(noted) == {StreamKind.METRICS, StreamKind.LOGS}
    one = noted[StreamKind.METRICS]
    [part] = rig.table().parts
    assert (one.number, one.rows, one.first, one.last) == (part.number, 2, 0, 0)
    assert (one.batch_rows, one.first_row, one.end_row) == (2, 0, 2)


async def test_the_blocks_of_a_search_for_bad_rows_are_noted_each(rig):
    rig.append(metrics(*range(40)))
    rig.table().is_bad = lambda row: row["value"] == 17
    rig.start()
    await rig.drain()
    noted = read(rig.directory / "delivered")
    assert sorted((one.number, one.rows) for one in noted) == sorted(
        (part.number, len(part.rows)) for part in rig.table().parts
    )
    assert sum(one.end_row - one.first_row for one in noted) == 39
