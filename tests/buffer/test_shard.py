"""Shards: made, claimed by one, removed when drained."""

from __future__ import annotations

from pathlib import Path

import pytest

from buffer.disk import InlineDisk
from buffer.errors import Damaged, ShardTaken
from buffer.fs import RealFileSystem
from buffer.shard import Shard, holder, id_of, list_free, list_shards
from tests.buffer.log_rig import ROOT, LogRig, request


async def test_a_shard_is_made_claimed_and_given_back(tmp_path: Path) -> None:
    fs = RealFileSystem()
    shard = Shard.create(fs, tmp_path)
    assert list_shards(fs, tmp_path) == [shard.directory]
    assert list_free(fs, tmp_path) == []
    assert shard.tag == int(shard.directory.name[:8], 16)
    with pytest.raises(ShardTaken, match=f"held by process {holder(fs, shard.directory)}"):
        Shard.claim(fs, shard.directory)
    shard.release()
    assert list_free(fs, tmp_path) == [shard.directory]
    again = Shard.claim(fs, shard.directory)
    assert again.id == shard.id
    again.remove()
    assert list_shards(fs, tmp_path) == []


async def test_a_shard_whose_making_was_cut_short_is_claimed_and_completed() -> None:
    rig = LogRig()
    rig.fs.make_dir(ROOT)
    rig.fs.make_dir(ROOT / ("ab" * 16))
    rig.open()
    assert rig.shard is not None
    assert rig.shard.id == bytes.fromhex("ab" * 16)
    assert rig.checkpoint.delivered == 0


def test_a_log_without_a_checkpoint_is_refused() -> None:
    rig = LogRig().open()
    rig.commit(request(1))
    rig.fs.unlink(rig.directory / "checkpoint")
    with pytest.raises(Damaged, match="no checkpoint"):
        rig.kill()


def test_removing_leaves_a_quarantine_that_holds_something() -> None:
    rig = LogRig().open()
    rig.commit(request(1))
    rig.fs.make_dir(rig.directory / "quarantine")
    rig.fs.put(rig.directory / "quarantine" / "entry", b"x")
    assert rig.shard is not None
    rig.shard.remove()
    assert sorted(rig.fs.list_dir(rig.directory)) == ["lock", "quarantine"]
    again = Shard.claim(rig.fs, rig.directory)
    again.open_checkpoint(InlineDisk())
    rig.fs.unlink(rig.directory / "quarantine" / "entry")
    again.remove()
    assert list_shards(rig.fs, ROOT) == []


@pytest.mark.parametrize("name", ["", "lock", "ab", "AB" * 16, "ab" * 17, "zz" * 16])
def test_only_an_id_is_a_shards_name(name: str) -> None:
    assert id_of(name) is None
    with pytest.raises(ValueError, match="no shard's directory"):
        Shard.claim(RealFileSystem(), Path("/nowhere") / (name or "x"))
