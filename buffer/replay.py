"""Rows sent again as a shard of their own, which a worker adopts, drains and removes.

A running server's logs are its workers' alone, so a replay never writes into one. It makes a whole
new shard beside them, under a name that is no shard's, and gives it its name when everything in it
is synced; a living worker adopts it after ten seconds, or the next start. The steps::

    <id>.new/ checkpoint, log      ─▶ manifest: what is to be taken out of the quarantine
             ─▶ entries deleted    ─▶ renamed to <id>

A kill before the manifest leaves nothing that counts, one after it is completed by the next replay
(`complete`); so rows are in the quarantine, or in a shard, and never in both for good. One replay
at a time: ``replay.lock``.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from buffer.checkpoint import Checkpoint
from buffer.clock import SystemClock
from buffer.disk import InlineDisk
from buffer.errors import LogFull, ShardTaken
from buffer.frame import DIGEST_BYTES, Submission, framed_bytes
from buffer.fs import create_durably
from buffer.log import Entry, Log
from buffer.lsn import Lsn
from buffer.metrics import NoMetrics
from buffer.shard import ID_BYTES, QUARANTINE_NAME, id_of, list_shards

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from buffer.fs import FileSystem
    from buffer.options import BufferOptions
    from schema.columns import Chunks

LOCK_NAME = "replay.lock"
MANIFEST_NAME = "replay.tmp"
"""Of this ending, because whoever opens a shard removes what ends so: it has done its work then."""
NEW_SUFFIX = ".new"


class Replayed(NamedTuple):
    """One frame to be sent again, with what its request was known by."""

    chunks: Chunks
    received_at_ns: int
    digest: bytes | None = None
    accepted: int | None = None
    rejected: int = 0


class Made(NamedTuple):
    """A shard that was made: its id (empty where there was nothing to send), frames and rows."""

    shard: str
    frames: int
    rows: int


@contextmanager
def replaying(fs: FileSystem, root: Path) -> Iterator[None]:
    """The right to replay under ``root``; what a killed replay left is completed or removed first.

    Raises:
        ShardTaken: another replay is under way.
        OSError: the directory cannot be used.
    """
    lock = fs.lock(root / LOCK_NAME)
    if lock is None:
        raise ShardTaken(f"another replay is under way on {root}: wait for it to end")
    try:
        complete(fs, root)
        yield
    finally:
        fs.close(lock)


def complete(fs: FileSystem, root: Path) -> int:
    """Finishes replays that were cut short after their point of no return; removes others.

    Returns how many were finished.
    """
    finished = 0
    for name in fs.list_dir(root):
        directory = root / name
        if not name.endswith(NEW_SUFFIX) or id_of(name.removesuffix(NEW_SUFFIX)) is None:
            continue
        if fs.exists(directory / MANIFEST_NAME):
            _publish(fs, root, directory)
            finished += 1
        else:
            _remove(fs, directory)
    return finished


async def make_shard(
    fs: FileSystem,
    root: Path,
    frames: Iterable[Replayed],
    options: BufferOptions,
    *,
    take_out: Sequence[str] = (),
) -> Made:
    """Makes a shard of these frames. Blocking, within `replaying`.

    Args:
        fs: where it is made.
        root: of all shards.
        frames: read as they are written, a group at a time in memory.
        options: the server's: how large files may be, how much room is to be left.
        take_out: names of the quarantine's entries that the frames are from; read after the frames,
            so that it may be filled while they are.

    Raises:
        LogFull: no room; nothing is left of it.
        BufferFailure, OSError: it could not be written; nothing is left of it.

    Durability: once this returns the rows survive a power cut, and a worker delivers them.
    """
    shard_id = os.urandom(ID_BYTES)
    directory = root / f"{shard_id.hex()}{NEW_SUFFIX}"
    try:
        fs.make_dir(directory)
        count, rows = await _write(fs, directory, shard_id, frames, options)
        if not count:
            _remove(fs, directory)
            return Made("", 0, 0)
        manifest = json.dumps({"take_out": list(take_out)}).encode()
    except BaseException:
        _remove(fs, directory)
        raise
    fs.close(create_durably(fs, directory / MANIFEST_NAME, [manifest]))
    _publish(fs, root, directory)
    return Made(shard_id.hex(), count, rows)


async def _write(
    fs: FileSystem,
    directory: Path,
    shard_id: bytes,
    frames: Iterable[Replayed],
    options: BufferOptions,
) -> tuple[int, int]:
    disk = InlineDisk()
    await Checkpoint.create(fs, directory, disk, shard_id).close()
    log = Log(
        fs,
        directory,
        shard_id,
        views=(),
        next_lsn=Lsn(0),
        options=options,
        disk=disk,
        clock=SystemClock(),
        metrics=NoMetrics(),
    )
    count = rows = size = 0
    group: list[Entry] = []
    for frame in frames:
        entry = _entry(frame)
        group.append(entry)
        count, rows, size = count + 1, rows + frame.chunks.row_count, size + entry.frame_bytes
        if len(group) >= options.group_frames_max or size >= options.group_bytes_max:
            _commit(fs, directory, log, group, size, options)
            group, size = [], 0
    if group:
        _commit(fs, directory, log, group, size, options)
    await log.close()
    return count, rows


def _entry(frame: Replayed) -> Entry:
    accepted = frame.chunks.row_count if frame.accepted is None else frame.accepted
    digest = os.urandom(DIGEST_BYTES) if frame.digest is None else frame.digest
    submission = Submission((frame.chunks,), digest, accepted, frame.rejected)
    return Entry(submission, frame.received_at_ns, framed_bytes(submission))


def _commit(
    fs: FileSystem,
    directory: Path,
    log: Log,
    group: Sequence[Entry],
    size: int,
    options: BufferOptions,
) -> None:
    free = fs.free_bytes(directory)
    if free - size < options.disk_free_bytes_min:
        raise LogFull(
            f"the disk has {free} bytes free, of which {options.disk_free_bytes_min} are kept free"
        )
    outcome = log.commit(group)
    for failure in outcome.failures.values():
        raise failure


def _publish(fs: FileSystem, root: Path, directory: Path) -> None:
    """Takes the entries out of the quarantine, and gives the shard its name."""
    manifest = directory / MANIFEST_NAME
    fd = fs.open_read(manifest)
    try:
        names = json.loads(fs.pread(fd, fs.size(fd), 0))["take_out"]
    finally:
        fs.close(fd)
    take_out(fs, root, names)
    target = directory.with_name(directory.name.removesuffix(NEW_SUFFIX))
    fs.rename(directory, target)
    fs.fsync_dir(root)
    take_out(fs, root, names)  # an entry that moved between two shards just then
    fs.unlink(target / MANIFEST_NAME)


def take_out(fs: FileSystem, root: Path, names: Sequence[str]) -> None:
    """Deletes entries, whichever shard has them now: a shard that is drained hands them on."""
    for name in names:
        for shard in list_shards(fs, root):
            quarantine = shard / QUARANTINE_NAME
            if fs.exists(quarantine / name):
                fs.unlink(quarantine / name)
                fs.fsync_dir(quarantine)


def _remove(fs: FileSystem, directory: Path) -> None:
    for name in fs.list_dir(directory):
        fs.unlink(directory / name)
    fs.remove_dir(directory)
