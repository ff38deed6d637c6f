"""Shards: made, claimed by one, removed when drained."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from random import Random

import pytest

from buffer.disk import InlineDisk
from buffer.errors import Damaged, ShardTaken
from buffer.fs import RealFileSystem
from buffer.shard import Shard, holder, id_of, list_free, list_shards
from tests.buffer.log_rig import ROOT, LogRig, request
from tests.fakes.disk import Crash, Cut


async def test_a_shard_is_made_claimed_and_given_back(tmp_path: Path) -> None:
    fs = RealFileSystem()
    shard = Shard.create(fs, tmp_path)
    assert list_shards(fs, tmp_path) == [shard.directory]
    assert list_free(fs, tmp_path) == []
    assert shard.tag == int(shard.directory.name[:8], 16)
    with pytest.raises(ShardTaken, match=f"held by process {holder(fs, shard.directory)}"):
        Shard.claim(fs, shard.directory)
    await shard.open_checkpoint(InlineDisk()).close()
    shard.release()
    assert list_free(fs, tmp_path) == [shard.directory]
    again = Shard.claim(fs, shard.directory)
    assert again.id == shard.id
    again.remove()
    assert list_shards(fs, tmp_path) == []


def test_a_directory_without_a_checkpoint_is_no_free_shard_and_its_id_is_not_used_again() -> None:
    """Its making or its removal was cut short; block numbers begin anew, so the id must be new."""
    rig = LogRig()
    rig.fs.make_dir(ROOT)
    rig.fs.make_dir(ROOT / ("ab" * 16))
    rig.open()
    assert rig.shard is not None
    assert rig.shard.id != bytes.fromhex("ab" * 16)
    assert list_free(rig.fs, ROOT) == []
    with pytest.raises(Damaged, match="no checkpoint"):
        Shard.claim(rig.fs, ROOT / ("ab" * 16)).open_checkpoint(InlineDisk())


def test_a_log_without_a_checkpoint_is_refused() -> None:
    rig = LogRig().open()
    rig.commit(request(1))
    rig.fs.unlink(rig.directory / "checkpoint")
    with pytest.raises(Damaged, match="no checkpoint"):
        rig.kill()


def test_removing_leaves_a_quarantine_that_holds_something_and_the_block_counter() -> None:
    rig = LogRig().open()
    rig.commit(request(1))
    rig.deliver(1)
    rig.fs.make_dir(rig.directory / "quarantine")
    rig.fs.put(rig.directory / "quarantine" / "entry", b"x")
    assert rig.shard is not None
    rig.shard.remove()
    assert sorted(rig.fs.list_dir(rig.directory)) == ["checkpoint", "lock", "quarantine"]
    rig.open()
    assert rig.checkpoint.delivered == 1
    rig.fs.unlink(rig.directory / "quarantine" / "entry")
    rig.shard.remove()
    assert list_shards(rig.fs, ROOT) == []


def test_a_removal_that_is_cut_short_anywhere_never_brings_the_id_back_with_a_new_counter() -> None:
    for call in range(12):
        for seed in range(6):
            rig = LogRig().open()
            rig.commit(request(1))
            rig.deliver(1)
            rig.fs.fail_next(Cut(), after=call)
            with contextlib.suppress(Crash):
                rig.shard.remove()
            rig.fs.faults.clear()
            rig.fs.power_cut(Random(seed))
            for directory in list_free(rig.fs, ROOT):
                checkpoint = Shard.claim(rig.fs, directory).open_checkpoint(InlineDisk())
                assert checkpoint.delivered == 1


def test_a_claim_outwaits_a_look_by_another(tmp_path: Path) -> None:
    fs = RealFileSystem()
    shard = Shard.create(fs, tmp_path)
    look = threading.Timer(0.02, shard.release)
    look.start()
    Shard.claim(fs, shard.directory).release()
    look.join()


@pytest.mark.parametrize("name", ["", "lock", "ab", "AB" * 16, "ab" * 17, "zz" * 16])
def test_only_an_id_is_a_shards_name(name: str) -> None:
    assert id_of(name) is None
    with pytest.raises(ValueError, match="no shard's directory"):
        Shard.claim(RealFileSystem(), Path("/nowhere") / (name or "x"))
