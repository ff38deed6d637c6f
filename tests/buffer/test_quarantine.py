"""Quarantine files: read back whole, once, capped, and damaged ones are told."""

import errno
from pathlib import Path
from random import Random

import pytest

from buffer.clock import SystemClock
from buffer.errors import Damaged
from buffer.frame import Frame
from buffer.fs import RealFileSystem
from buffer.log import Damage
from buffer.lsn import Lsn
from buffer.quarantine import Quarantine, QuarantineFull, SetAside, read_entry
from schema.block import cut, rows_of
from tests.buffer.delivery_rig import logs, metrics
from tests.fakes.disk import Crash, Cut, FakeFileSystem


def frame(chunks, lsn=5):
    return Frame(Lsn(lsn), 1_000, b"d" * 16, chunks.row_count, 0, True, chunks, 0)


def damage(offset=4096):
    return Damage("1.seg", offset, 50, Lsn(1), Lsn(2), "CRC is wrong", b"\xff" * 50, None)


@pytest.fixture
def make(tmp_path):
    def make_(bytes_max=2**20, fs=None):
        made = Quarantine(
            fs or RealFileSystem(),
            tmp_path / "quarantine",
            shard="ab" * 16,
            bytes_max=bytes_max,
            clock=SystemClock(),
        )
        made.open()
        return made

    return make_


def test_rows_come_back_with_their_owner_and_reason(make):
    whole = metrics(1.0, 2.0, 3.0)
    quarantine = make()
    assert quarantine.put_rows("t", "why", 469, [SetAside(frame(whole), cut(whole, [1]))])
    [name] = quarantine.names()
    entry = quarantine.read(name)
    [chunks] = entry.chunks
    [row] = rows_of(chunks)
    assert (row["value"], row["tenantId"], row["projectName"], row["runId"]) == (
        2.0,
        "acme",
        "proj",
        7,
    )
    assert (entry.header["reason"], entry.header["code"]) == ("why", 469)
    assert entry.header["frames"][0]["lsn"] == 5


def test_the_same_rows_make_no_second_entry_and_other_reasons_do(make):
    item = SetAside(frame(logs("a")), logs("a"))
    quarantine = make()
    assert quarantine.put_rows("t", "why", None, [item])
    assert not quarantine.put_rows("t", "why", None, [item])
    assert not make().put_rows("t", "why", None, [item])  # after a restart, too
    assert quarantine.put_rows("t", "why else", None, [item])
    assert make().statistics().entries == 2
    assert make().statistics().rows == 2


def test_damage_is_kept_as_found(make):
    quarantine = make()
    assert quarantine.put_damage(damage())
    assert not quarantine.put_damage(damage())
    entry = quarantine.read(quarantine.names()[0])
    assert entry.raw == b"\xff" * 50
    assert entry.header["segment"] == "1.seg"
    assert quarantine.statistics().damaged_ranges == 1
    assert quarantine.statistics().rows == 0


def test_at_the_cap_nothing_is_written_and_an_emptied_one_takes_more(make, tmp_path):
    quarantine = make(bytes_max=400)
    quarantine.put_damage(damage(1))
    with pytest.raises(QuarantineFull):
        quarantine.put_damage(damage(2))
    assert quarantine.statistics().is_full
    for path in (tmp_path / "quarantine").iterdir():
        path.unlink()  # by the operator's hand
    quarantine.put_damage(damage(2))
    assert not quarantine.statistics().is_full
    assert quarantine.statistics().entries == 1


def test_a_full_disk_is_waited_for_like_the_cap(make):
    class FullDisk(RealFileSystem):
        def pwritev(self, fd, pieces, offset):
            raise OSError(errno.ENOSPC, "No space left on device")

    quarantine = make(fs=FullDisk())
    with pytest.raises(QuarantineFull):
        quarantine.put_damage(damage())
    assert quarantine.names() == []


def test_a_sick_disk_is_not_taken_for_a_full_one(make):
    class SickDisk(RealFileSystem):
        def fdatasync(self, fd):
            raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        make(fs=SickDisk()).put_damage(damage())


@pytest.mark.parametrize("at", [0, 9, 40, -6, -1])
def test_a_changed_byte_is_told(make, tmp_path, at):
    quarantine = make()
    quarantine.put_damage(damage())
    path = tmp_path / "quarantine" / quarantine.names()[0]
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged):
        read_entry(RealFileSystem(), path)


def test_unfinished_files_are_removed_at_a_start(make, tmp_path):
    quarantine = make()
    quarantine.put_damage(damage())
    (tmp_path / "quarantine" / "rows-x.q.tmp").write_bytes(b"half")
    assert make().statistics().entries == 1
    assert len(list((tmp_path / "quarantine").iterdir())) == 1


@pytest.mark.parametrize("seed", range(12))
def test_an_entry_whose_name_was_not_synced_is_made_durable_by_the_next_start(seed):
    """The process ends between the name and its sync; the next one counts it, and moves on."""
    fs = FakeFileSystem()
    fs.make_dir(Path("/shard"))

    def opened():
        made = Quarantine(
            fs, Path("/shard/quarantine"), shard="ab" * 16, bytes_max=2**20, clock=SystemClock()
        )
        made.open()
        return made

    fs.fail_next(Cut(), after=5)  # make_dir, its sync, create, pwritev, fdatasync, rename
    with pytest.raises(Crash):
        opened().put_damage(damage())
    fs.kill()
    while not opened().names():  # the call that it ended at is another one
        fs.fail_next(Cut(), after=6)
        with pytest.raises(Crash):
            opened().put_damage(damage())
        fs.kill()
    assert not opened().put_damage(damage()), "it is there already"
    fs.power_cut(Random(seed))
    assert len(opened().names()) == 1
