"""The checkpoint: what is stored is there after a power cut, torn or not."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import zlib
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from buffer.batch import RowSpan, names_of
from buffer.checkpoint import (
    FILE_NAME,
    FIRST_STATE,
    SLOT_BYTES,
    Bisection,
    Checkpoint,
    Pending,
    TableState,
)
from buffer.disk import InlineDisk, ThreadDisk
from buffer.errors import Damaged, Unavailable, UnknownFormat
from buffer.frames import Frames
from buffer.fs import write_all
from buffer.lsn import Lsn
from schema.ids import BlockNumber
from schema.streams import StreamKind
from tests.fakes.disk import Crash, Cut, Fail, FakeFileSystem, HeldDisk, Short

HERE = Path("/shard")
ID = bytes(range(16))
PATH = Bisection(next_row=10, try_end=20, bad_end=30, inserts=4, bad_rows=5, bad_frames=6)
PENDING = Pending(Lsn(7), Lsn(2**40), 65_000, BlockNumber(2**63 + 5), 3, PATH)


@pytest.fixture
def fs() -> FakeFileSystem:
    fs = FakeFileSystem()
    fs.make_dir(HERE)
    return fs


def made(fs: FakeFileSystem) -> Checkpoint:
    return Checkpoint.create(fs, HERE, InlineDisk(), ID)


def opened(fs: FakeFileSystem) -> Checkpoint:
    return Checkpoint.open(fs, HERE, InlineDisk(), ID)


def state(delivered: int, pending: Pending | None = None) -> TableState:
    return TableState(Lsn(delivered), delivered + 1, pending)


async def test_a_new_checkpoint_is_whole_and_durable(fs: FakeFileSystem) -> None:
    made(fs)
    fs.power_cut(Random(1))
    assert [opened(fs).state(kind) for kind in StreamKind] == [FIRST_STATE] * 4
    assert len(fs.content(HERE / FILE_NAME)) == 2 * SLOT_BYTES


async def test_every_field_survives(fs: FakeFileSystem) -> None:
    checkpoint = made(fs)
    await checkpoint.store(StreamKind.LOGS, state(2**50, PENDING))
    await checkpoint.store(StreamKind.DATA, state(5))
    fs.power_cut(Random(1))
    again = opened(fs)
    assert again.state(StreamKind.LOGS) == state(2**50, PENDING)
    assert again.state(StreamKind.DATA) == state(5)
    assert again.state(StreamKind.FILES) == FIRST_STATE
    assert again.delivered == 0
    assert again.end_lsn == 2**50


async def test_pending_bounds_count_for_the_end(fs: FakeFileSystem) -> None:
    checkpoint = made(fs)
    await checkpoint.store(StreamKind.LOGS, state(5, PENDING))
    assert checkpoint.end_lsn == 2**40 + 1


async def test_stores_that_wait_together_share_one_write(fs: FakeFileSystem) -> None:
    disk = HeldDisk()
    checkpoint = Checkpoint.create(fs, HERE, disk, ID)
    first = asyncio.ensure_future(checkpoint.store(StreamKind.METRICS, state(1)))
    await disk.arrived()
    others = [asyncio.ensure_future(checkpoint.store(kind, state(9))) for kind in StreamKind]
    await asyncio.sleep(0)
    before = fs.calls
    disk.let()
    await first
    assert checkpoint.state(StreamKind.METRICS) == state(1)
    assert checkpoint.state(StreamKind.LOGS) == FIRST_STATE, "not durable yet"
    await disk.arrived()
    disk.let()
    await asyncio.gather(*others)
    assert fs.calls == before + 4  # two writes, two syncs
    assert checkpoint.delivered == 9


async def test_a_cancelled_store_takes_nobody_with_it(fs: FakeFileSystem) -> None:
    disk = HeldDisk()
    checkpoint = Checkpoint.create(fs, HERE, disk, ID)
    first = asyncio.ensure_future(checkpoint.store(StreamKind.METRICS, state(1)))
    second = asyncio.ensure_future(checkpoint.store(StreamKind.LOGS, state(2)))
    await disk.arrived()
    first.cancel()
    disk.let()
    await asyncio.wait([first])
    await disk.arrived()
    disk.let()
    await second
    assert first.cancelled()
    assert opened(fs).state(StreamKind.METRICS) == state(1)
    assert opened(fs).state(StreamKind.LOGS) == state(2)


async def test_it_can_be_written_on_a_full_disk(fs: FakeFileSystem) -> None:
    checkpoint = made(fs)
    fs.capacity = fs.used_bytes
    for delivered in range(1, 6):
        await checkpoint.store(StreamKind.METRICS, state(delivered))
    assert opened(fs).state(StreamKind.METRICS) == state(5)


@pytest.mark.parametrize("seed", range(40))
async def test_a_torn_write_leaves_the_former_state(fs: FakeFileSystem, seed: int) -> None:
    checkpoint = made(fs)
    for delivered in range(1, 4):
        await checkpoint.store(StreamKind.METRICS, state(delivered))
    fs.fail_next(Cut(), after=1)
    with pytest.raises(Crash):
        await checkpoint.store(StreamKind.METRICS, state(4))
    fs.power_cut(Random(seed))
    found = opened(fs).state(StreamKind.METRICS)
    assert found.delivered in {3, 4}
    assert found.pending == state(found.delivered).pending


@pytest.mark.parametrize("fault", [Fail(errno.EIO), Fail(errno.ENOSPC), Short(100)])
async def test_a_failed_write_is_tried_again_in_the_same_slot(
    fs: FakeFileSystem, fault: Fail | Short
) -> None:
    checkpoint = made(fs)
    await checkpoint.store(StreamKind.METRICS, state(1))
    for _ in range(3):
        fs.fail_next(fault)
        with pytest.raises(Unavailable):
            await checkpoint.store(StreamKind.METRICS, state(2))
        assert checkpoint.state(StreamKind.METRICS) == state(1)
    fs.power_cut(Random(3))
    assert opened(fs).state(StreamKind.METRICS).delivered in {1, 2}
    again = opened(fs)
    await again.store(StreamKind.METRICS, state(3))
    assert opened(fs).state(StreamKind.METRICS) == state(3)


async def test_what_only_the_cache_holds_is_made_durable_when_opened(fs: FakeFileSystem) -> None:
    """A sync failed, the process was killed, its successor reads the cache, then the power goes."""
    checkpoint = made(fs)
    fs.fail_next(Fail(errno.EIO), after=1)
    with pytest.raises(Unavailable):
        await checkpoint.store(StreamKind.METRICS, state(1))
    fs.kill()
    seen = opened(fs).state(StreamKind.METRICS)
    fs.power_cut(Random(1))
    assert opened(fs).state(StreamKind.METRICS) == seen == state(1)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("failing", range(4))
async def test_a_slot_that_is_not_on_disk_never_costs_the_one_that_is(
    fs: FakeFileSystem, failing: int, seed: int
) -> None:
    """One slot is torn; a start's sync fails; the next is met by a power cut."""
    checkpoint = made(fs)
    await checkpoint.store(StreamKind.METRICS, state(1))
    fs.flip(HERE / FILE_NAME, 50)
    fs.failed_syncs = 1  # what the next one should have written is not on disk
    fs.kill()
    fs.fail_next(Fail(errno.EIO), after=failing)
    with contextlib.suppress(OSError):
        opened(fs)
    fs.faults.clear()
    fs.kill()
    fs.fail_next(Cut(), after=1)
    with pytest.raises(Crash):
        opened(fs)
    fs.power_cut(Random(seed))
    assert opened(fs).state(StreamKind.METRICS).delivered == 1


@pytest.mark.parametrize("stores", range(1, 4))
async def test_a_rotten_slot_gives_no_block_number_again(fs: FakeFileSystem, stores: int) -> None:
    checkpoint = made(fs)
    for number in range(1, stores + 1):
        pending = Pending(Lsn(0), Lsn(9), 10, BlockNumber(number), 0, None)
        await checkpoint.store(StreamKind.METRICS, TableState(Lsn(0), number + 1, pending))
    newest = (2 + stores) % 2
    fs.flip(HERE / FILE_NAME, newest * SLOT_BYTES + 50)
    assert opened(fs).state(StreamKind.METRICS).next_number == stores + 1
    assert opened(fs).state(StreamKind.METRICS).next_number == stores + 1, "mended, and said once"


async def test_two_bad_slots_are_refused(fs: FakeFileSystem) -> None:
    made(fs)
    for slot in range(2):
        fs.flip(HERE / FILE_NAME, slot * SLOT_BYTES + 50)
    with pytest.raises(Damaged, match="neither of the two slots"):
        opened(fs)


async def test_one_bad_slot_is_not(fs: FakeFileSystem) -> None:
    checkpoint = made(fs)
    await checkpoint.store(StreamKind.METRICS, state(1))
    fs.flip(HERE / FILE_NAME, 50)
    opened(fs)


async def test_another_shards_file_is_refused(fs: FakeFileSystem) -> None:
    made(fs)
    with pytest.raises(Damaged, match="belongs to shard"):
        Checkpoint.open(fs, HERE, InlineDisk(), bytes(16))


async def test_an_unknown_version_is_refused(fs: FakeFileSystem) -> None:
    made(fs)
    for slot in range(2):
        fs.flip(HERE / FILE_NAME, slot * SLOT_BYTES + 8, 1)
    with pytest.raises(UnknownFormat, match="version 3; this release knows 2"):
        opened(fs)


def as_former(fs: FakeFileSystem, *slots: int, version: int = 1) -> None:
    """Slots as a release wrote them that knew another version, and of tokens without numbers."""
    data = bytearray(fs.content(HERE / FILE_NAME))
    for slot in slots:
        at = slot * SLOT_BYTES
        data[at + 8] = version
        for table in range(4):
            data[at + 40 + 92 * table + 1] &= 3
        body = bytes(data[at : at + SLOT_BYTES - 4])
        data[at + SLOT_BYTES - 4 : at + SLOT_BYTES] = zlib.crc32(body).to_bytes(4, "little")
    fd = fs.open_write(HERE / FILE_NAME)
    write_all(fs, fd, [bytes(data)], 0)
    fs.fdatasync(fd)
    fs.close(fd)


@pytest.mark.parametrize("stores", [1, 2])
async def test_a_former_releases_batch_keeps_its_token_and_that_release_finds_nothing_of_its_own(
    fs: FakeFileSystem, stores: int
) -> None:
    checkpoint = made(fs)
    for _ in range(stores):
        await checkpoint.store(StreamKind.METRICS, state(7, PENDING))
    as_former(fs, 0, 1)
    former = replace(PENDING, is_numbered=False)
    for _ in range(2):
        assert opened(fs).state(StreamKind.METRICS) == state(7, former)
        data = fs.content(HERE / FILE_NAME)
        assert [data[8], data[SLOT_BYTES + 8]] == [2, 2]
    fs.power_cut(Random(1))
    again = opened(fs)
    assert again.state(StreamKind.METRICS) == state(7, former)
    await again.store(StreamKind.METRICS, state(8, PENDING))
    assert opened(fs).state(StreamKind.METRICS) == state(8, PENDING)


async def test_one_slot_of_a_later_release_is_enough_to_refuse(fs: FakeFileSystem) -> None:
    made(fs)
    as_former(fs, 0, version=9)
    with pytest.raises(UnknownFormat, match="version 9"):
        opened(fs)


def test_the_token_of_a_former_releases_batch_is_the_one_it_had_there() -> None:
    frames = Frames(StreamKind.METRICS)
    frames.proofs.extend((1, 0xAABBCCDD, 2, 0x11223344))
    batch = Pending(Lsn(1), Lsn(2), 20, BlockNumber(5 << 32 | 6), 0, None)
    whole = RowSpan(0, 20)
    names = names_of("ab", "mlop_metrics", batch, frames, whole, [])
    former = names_of("ab", "mlop_metrics", replace(batch, is_numbered=False), frames, whole, [])
    assert former.token == "ab:1-2:mlop_metrics:3fc7288e24268905:0"
    assert names.token == "ab:1-2:mlop_metrics:647fa0b30253e80e:0"


async def test_on_a_real_thread_and_disk(tmp_path: Path) -> None:
    from buffer.fs import RealFileSystem

    fs, disk = RealFileSystem(), ThreadDisk()
    checkpoint = Checkpoint.create(fs, tmp_path, disk, ID)
    await asyncio.gather(*(checkpoint.store(kind, state(kind, PENDING)) for kind in StreamKind))
    await checkpoint.close()
    with pytest.raises(Unavailable):
        await checkpoint.store(StreamKind.METRICS, state(1))
    again = Checkpoint.open(fs, tmp_path, disk, ID)
    assert all(again.state(kind) == state(kind, PENDING) for kind in StreamKind)
    await again.close()
    disk.close()
