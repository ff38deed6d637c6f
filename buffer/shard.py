"""A shard: a directory with a random id, a lock, a checkpoint and a log.

::

    <root>/<id, 32 hex digits>/
        lock            held by whoever appends to or drains the shard; the holder's pid
        checkpoint
        <first LSN>.seg
        quarantine/     what could not be delivered
        delivered/      the journal of what was
        resend/         blocks that somebody wants to be sent again

The lock is on an open file: it goes with its holder, however that one ends.

An id is used once. The checkpoint is made with the shard and goes with it, last of all but the
lock: it holds the counter of block numbers, and a number that is given twice would let a lost block
pass for one that is stored. A directory without one is a making or a removal that was cut short; it
is left alone.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from buffer.checkpoint import FILE_NAME as CHECKPOINT_NAME
from buffer.checkpoint import Checkpoint
from buffer.errors import Damaged, ShardTaken
from buffer.fs import TEMPORARY_SUFFIX
from buffer.journal import DIRECTORY_NAME as JOURNAL_NAME
from buffer.segment import first_lsn_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from buffer.disk import Disk
    from buffer.fs import Fd, FileSystem

ID_BYTES = 16
LOCK_NAME = "lock"
QUARANTINE_NAME = "quarantine"
RESEND_NAME = "resend"

CLAIM_TRIES = 5
CLAIM_PAUSE_SECONDS = 0.01


@dataclass(slots=True)
class Shard:
    """A shard whose lock this process holds, until `release` or `remove`."""

    fs: FileSystem
    directory: Path
    id: bytes
    _lock: Fd | None
    _is_new: bool = False

    @classmethod
    def create(
        cls, fs: FileSystem, root: Path, random_bytes: Callable[[int], bytes] = os.urandom
    ) -> Shard:
        """Makes a new shard under ``root`` and holds it. Blocking.

        Raises:
            OSError: it could not be made; an empty directory may be left.
        """
        shard_id = random_bytes(ID_BYTES)
        directory = root / shard_id.hex()
        fs.make_dir(directory)
        fs.fsync_dir(root)
        return replace(cls.claim(fs, directory), _is_new=True)

    @classmethod
    def claim(cls, fs: FileSystem, directory: Path) -> Shard:
        """Takes the lock of a shard that is there. Blocking.

        Raises:
            ShardTaken: another process holds it; says which.
            ValueError: no shard's directory, by its name.
        """
        shard_id = id_of(directory.name)
        if shard_id is None:
            raise ValueError(f"{directory} is no shard's directory")
        lock = fs.lock(directory / LOCK_NAME)
        for _ in range(CLAIM_TRIES - 1):
            if lock is not None:
                break
            time.sleep(CLAIM_PAUSE_SECONDS)  # it may be a look by `list_free`
            lock = fs.lock(directory / LOCK_NAME)
        if lock is None:
            raise ShardTaken(
                f"{directory} is held by process {holder(fs, directory) or 'unknown'}; "
                "two processes must not write one shard"
            )
        return cls(fs, directory, shard_id, lock)

    @property
    def tag(self) -> int:
        """The id's upper 32 bits: the upper half of this shard's block numbers."""
        return int.from_bytes(self.id[:4], "big")

    def open_checkpoint(self, disk: Disk) -> Checkpoint:
        """The shard's checkpoint, made where the shard has just been created. Blocking.

        Raises:
            Damaged: it is missing, or not to be read.
            UnknownFormat: made by another release.
            OSError: the disk failed.
        """
        if self.fs.exists(self.directory / CHECKPOINT_NAME):
            return Checkpoint.open(self.fs, self.directory, disk, self.id)
        if not self._is_new:
            # Starting from nothing would send delivered rows again, under block numbers in use.
            raise Damaged(
                f"{self.directory}: there is no checkpoint; restore the file, or move the shard's "
                "directory away"
            )
        self._is_new = False
        return Checkpoint.create(self.fs, self.directory, disk, self.id)

    def release(self) -> None:
        """Gives the lock back; the shard stays."""
        if self._lock is not None:
            self.fs.close(self._lock)
            self._lock = None

    def remove(self) -> None:
        """Deletes the shard, all of which is delivered, and gives the lock back. Blocking.

        A quarantine that holds anything stays, and with it the checkpoint and the directory.

        Raises:
            OSError: some of it is still there; a later claim finds it.
        """
        assert self._lock is not None, "only the holder removes a shard"
        fs, quarantine = self.fs, self.directory / QUARANTINE_NAME
        for name in fs.list_dir(self.directory):
            if first_lsn_of(name) is not None or name.endswith(TEMPORARY_SUFFIX):
                fs.unlink(self.directory / name)
        fs.fsync_dir(self.directory)
        if not fs.list_dir(quarantine):
            for directory in (self.directory / JOURNAL_NAME, self.directory / RESEND_NAME):
                for name in fs.list_dir(directory):
                    fs.unlink(directory / name)
                fs.remove_dir(directory)
            fs.remove_dir(quarantine)
            fs.unlink(self.directory / CHECKPOINT_NAME)
            fs.unlink(self.directory / LOCK_NAME)
            fs.remove_dir(self.directory)
            fs.fsync_dir(self.directory.parent)
        self.release()


def id_of(name: str) -> bytes | None:
    """The shard's id that a directory's name says; None where it is no shard's name."""
    try:
        shard_id = bytes.fromhex(name)
    except ValueError:
        return None
    return shard_id if len(shard_id) == ID_BYTES and shard_id.hex() == name else None


def list_shards(fs: FileSystem, root: Path) -> list[Path]:
    """Directories of all shards under ``root``, in the order of their names."""
    return [root / name for name in sorted(fs.list_dir(root)) if id_of(name) is not None]


def list_free(fs: FileSystem, root: Path) -> list[Path]:
    """Shards whose lock nobody holds at this moment."""
    return [directory for directory in list_shards(fs, root) if _is_free(fs, directory)]


def _is_free(fs: FileSystem, directory: Path) -> bool:
    names = fs.list_dir(directory)
    if CHECKPOINT_NAME not in names and all(first_lsn_of(name) is None for name in names):
        return False  # being made or removed by another process, or what is left of that
    try:
        lock = fs.lock(directory / LOCK_NAME)
    except FileNotFoundError:
        return False  # removed meanwhile
    if lock is not None:
        fs.close(lock)
    return lock is not None


def holder(fs: FileSystem, directory: Path) -> int | None:
    """The pid that a shard's lock file says."""
    try:
        fd = fs.open_read(directory / LOCK_NAME)
    except OSError:
        return None
    try:
        text = fs.pread(fd, 32, 0)
    finally:
        fs.close(fd)
    return int(text) if text.strip().isdigit() else None
