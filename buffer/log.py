"""A shard's log: its segments, the group commit's blocking half, and what readers may see.

The life of a segment::

    active ── grown past its limit ──▶ sealed ── every table past it, window over ──▶ deleted
       └──── a write or sync failed ─▶ fenced ──────────── likewise ───────────────▶ deleted

Who may do what: `commit`, `release` and `close` work on the shard's committing thread, one after
the other; readers on any thread see the tuple of views, replaced as a whole after each sync.

What a failure means:

==========================  ===========================================================
no room (ENOSPC, EDQUOT,    nothing of the request is stored: cut back to the last whole
EFBIG, a short write)       group, try the group's requests one by one, refuse those
                            that do not fit
a failed sync, or another   unknown: the segment is fenced, its successor made first
error of a write            with the good length, then the group is told
fencing fails               broken: the worker stops, for the end of the log is not known
==========================  ===========================================================

An LSN that was given to a failed group is not given again: it costs nothing, and what the disk may
still hold of that group can then never be taken for something else.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from buffer.errors import Broken, BufferFailure, LogFull, OutcomeUnknown, Unavailable
from buffer.frame import GROUP_HEADER_BYTES, MARK_BYTES, encode_frames
from buffer.fs import is_no_room
from buffer.lsn import Lsn
from buffer.reader import Damage, Reader
from buffer.retention import delivered_count, kept_count
from buffer.segment import (
    HEADER_BLOCK_BYTES,
    Predecessor,
    SegmentHeader,
    SegmentView,
    SegmentWriter,
)
from buffer.statistics import LogStatistics
from schema.streams import StreamKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from buffer.clock import Clock
    from buffer.disk import Disk
    from buffer.frame import Submission
    from buffer.fs import FileSystem
    from buffer.metrics import Metrics
    from buffer.options import BufferOptions

__all__ = ["Damage", "Entry", "GroupOutcome", "Log", "Reader"]

_NO_ENDS = [0] * (max(StreamKind) + 1)


class Entry(NamedTuple):
    """One request on its way into the log. ``frame_bytes`` is `framed_bytes` of the submission."""

    submission: Submission
    received_at_ns: int
    frame_bytes: int


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """What became of a group: request by request.

    Attributes:
        failures: by index in the group; a request that is not in it is durable.
        frames, bytes: what was made durable, headers included.
    """

    failures: dict[int, BufferFailure]
    frames: int
    bytes: int


class Log:
    """The log of one shard. Made by ``buffer.recovery``."""

    def __init__(
        self,
        fs: FileSystem,
        directory: Path,
        shard_id: bytes,
        *,
        views: tuple[SegmentView, ...],
        next_lsn: Lsn,
        options: BufferOptions,
        disk: Disk,
        clock: Clock,
        metrics: Metrics,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._shard_id = shard_id
        self._views = views
        self._next_lsn = next_lsn
        self._options = options
        self._disk = disk
        self._clock = clock
        self._metrics = metrics
        self._random_bytes = random_bytes
        self._writer: SegmentWriter | None = None
        self._ends = _NO_ENDS.copy()
        self._is_rotating = False
        self._fenced = 0
        self._kept_bytes = 0
        self._undeleted: list[Path] = []
        self._broken: str | None = None
        self._growth: asyncio.Future[None] | None = None

    @property
    def durable_lsn(self) -> Lsn:
        """One past the last frame of a synced group."""
        return self._views[-1].end_lsn if self._views else self._next_lsn

    def reader(self, from_lsn: Lsn, kind: StreamKind) -> Reader:
        """One table's frames from an LSN on. Its `Reader.read` blocks: run it on a disk."""
        return Reader(self._fs, lambda: self._views, from_lsn, kind)

    async def grown(self, after: Lsn) -> None:
        """Returns when `durable_lsn` is above ``after``.

        Cancellation: leaves nothing behind.
        """
        while self.durable_lsn <= after:
            if self._growth is None:
                self._growth = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._growth)

    def announce(self) -> None:
        """Wakes those who wait for growth. Called on the event loop after a commit."""
        if self._growth is not None:
            self._growth.set_result(None)
            self._growth = None

    def statistics(self) -> LogStatistics:
        """The log now."""
        views = self._views
        return LogStatistics(
            bytes=sum(view.good_bytes for view in views),
            segments=len(views),
            kept_bytes=self._kept_bytes,
            oldest_lsn=views[0].first_lsn if views else self._next_lsn,
            durable_lsn=self.durable_lsn,
            next_lsn=self._next_lsn,
            fenced=self._fenced,
        )

    def bytes_from(self, lsn: Lsn) -> int:
        """About how many log bytes lie behind an LSN: exact at a segment's beginning."""
        total = 0
        for view in self._views:
            frames = view.end_lsn - view.first_lsn
            ahead = min(max(view.end_lsn - lsn, 0), frames)
            total += (view.good_bytes - HEADER_BLOCK_BYTES) * ahead // max(frames, 1)
        return max(total, 0)

    def commit(self, entries: Sequence[Entry]) -> GroupOutcome:
        """Makes one group durable: one write, one sync. Blocking; on the committing thread.

        Raises:
            Broken: the end of the log is not known any more; the worker must stop.

        Durability: every request that is not among the failures survives a power cut.
        """
        if self._broken is not None:
            raise Broken(self._broken)
        try:
            writer = self._writer_for(sum(entry.frame_bytes for entry in entries))
        except OSError as error:
            return _all_refused(entries, _refusal(error, "no new segment"))
        try:
            return self._commit_to(writer, entries)
        except OSError as error:
            self._fence(writer, error)
            unknown = OutcomeUnknown(f"the log could not be synced: {error}")
            unknown.__cause__ = error
            return _all_refused(entries, unknown)

    async def release(self, delivered: Lsn, *, keep: bool = True, disk: Disk | None = None) -> int:
        """Deletes sealed segments that every table is past; returns how many.

        Args:
            delivered: the least of all tables' positions, as it is durable in the checkpoint.
            keep: leave those within the repeat window; False when room is short, where the active
                segment is sealed too if all of it is delivered.
            disk: where the files are deleted, which takes 14 ms for 64 MiB on ext4; else on the
                committing thread, and commits wait.

        Cancellation: what was begun is completed; a file that is left goes with the next call.
        """
        gone = await self._disk.run(self._detach, delivered, keep)
        self.announce()  # a new segment begins above LSNs of failed groups: tables must pass them
        return await (disk or self._disk).run(self._delete, gone)

    async def close(self) -> None:
        """Ends the log in order: the last group is marked as synced, the file closed.

        Cancellation: it is closed.
        """
        await self._disk.run(self._close)

    def _commit_to(self, writer: SegmentWriter, entries: Sequence[Entry]) -> GroupOutcome:
        before = writer.written_bytes
        failures: dict[int, BufferFailure] = {}
        frames = 0
        try:
            frames = self._write(writer, entries)
        except OSError as error:
            if not is_no_room(error):
                raise
            writer.cut()
            self._metrics.count("log_no_room")
            if error.errno == errno.EFBIG and not writer.is_empty:
                self._is_rotating = True  # a limit on a file's size: the next one has its own
            if len(entries) == 1:
                failures[0] = _refusal(error, "no room for the log")
            else:
                frames = self._write_alone(writer, entries, failures)
        if frames:
            writer.sync()
            self._show(writer)
        return GroupOutcome(failures, frames, writer.written_bytes - before)

    def _write_alone(
        self, writer: SegmentWriter, entries: Sequence[Entry], failures: dict[int, BufferFailure]
    ) -> int:
        """One request's lack of room does not fail its neighbours: each is a group by itself."""
        frames = 0
        for index, entry in enumerate(entries):
            try:
                frames += self._write(writer, [entry])
            except OSError as error:
                if not is_no_room(error):
                    raise
                writer.cut()
                failures[index] = _refusal(error, "no room for the log")
        return frames

    def _write(self, writer: SegmentWriter, entries: Sequence[Entry]) -> int:
        first = lsn = self._next_lsn
        ends = self._ends
        pieces: list[bytes] = []
        for submission, received_at_ns, _ in entries:
            encode_frames(submission, received_at_ns, lsn, writer.seal, pieces)
            lsn = Lsn(lsn + len(submission.chunks))
            for chunks in submission.chunks:
                ends[chunks.kind] = lsn
        self._next_lsn = lsn
        writer.write_group(pieces, lsn - first, first, sum(entry.frame_bytes for entry in entries))
        return lsn - first

    def _writer_for(self, size: int) -> SegmentWriter:
        """The active segment, a new one where the group would grow it past its limit."""
        writer = self._writer
        if writer is None:
            if not self._views:
                return self._begin(None)
            last = self._views[-1]
            return self._begin(Predecessor(last.first_lsn, last.good_bytes, is_fenced=False))
        grown = writer.written_bytes + GROUP_HEADER_BYTES + size
        is_within = grown <= self._options.segment_bytes_max or writer.is_empty
        if is_within and not self._is_rotating:
            return writer
        return self._rotate(writer, is_fenced=False)

    def _rotate(self, writer: SegmentWriter, *, is_fenced: bool) -> SegmentWriter:
        """The successor first, then the old one is let go."""
        # From here on nothing more is appended to the old one, though the attempt may fail: its
        # successor may be on disk by then, and says where the old one ends.
        self._is_rotating = True
        first, good = writer.header.first_lsn, writer.synced_bytes
        successor = self._begin(Predecessor(first, good, is_fenced=is_fenced))
        self._is_rotating = False
        if not is_fenced:
            writer.trim()
        writer.close()
        return successor

    def _begin(self, predecessor: Predecessor | None) -> SegmentWriter:
        # Never the name of a segment that is there, were it even empty.
        first_lsn = self._next_lsn
        if self._views and first_lsn <= self._views[-1].first_lsn:
            first_lsn = self._next_lsn = Lsn(self._views[-1].first_lsn + 1)
        header = SegmentHeader(
            shard_id=self._shard_id,
            first_lsn=first_lsn,
            nonce=self._random_bytes(MARK_BYTES),
            created_at_ns=self._clock.wall_ns(),
            predecessor=predecessor,
        )
        ahead = min(self._options.ahead_bytes, self._options.segment_bytes_max)
        writer = SegmentWriter.create(self._fs, self._directory, header, ahead_bytes=ahead)
        self._writer = writer
        self._ends = _NO_ENDS.copy()
        view = SegmentView(
            writer.path, first_lsn, first_lsn, writer.synced_bytes, header, tuple(self._ends)
        )
        self._views = (*self._views, view)
        return writer

    def _show(self, writer: SegmentWriter) -> None:
        """Lets readers see what is synced."""
        last = replace(
            self._views[-1],
            end_lsn=self._next_lsn,
            good_bytes=writer.synced_bytes,
            ends=tuple(self._ends),
        )
        self._views = (*self._views[:-1], last)

    def _fence(self, writer: SegmentWriter, cause: OSError) -> None:
        self._metrics.count("log_fenced")
        self._fenced += 1
        try:
            self._rotate(writer, is_fenced=True)
        except OSError as error:
            self._broken = (
                f"{writer.path}: {cause}; and its successor could not be made: {error}. What "
                f"follows byte {writer.synced_bytes} is void, and nothing on disk says so: the log "
                "takes no more until a restart has read it"
            )
            raise Broken(self._broken) from error

    def _detach(self, delivered: Lsn, keep: bool) -> list[Path]:
        """Takes segments out of sight; returns their files, oldest first."""
        if not keep:
            self._seal_if_delivered(delivered)
        now_ns = self._clock.wall_ns()
        done = delivered_count(self._views, delivered)
        kept = kept_count(self._views, done, now_ns, self._options) if keep else 0
        self._kept_bytes = sum(view.good_bytes for view in self._views[done - kept : done])
        gone = self._views[: done - kept]
        self._views = self._views[len(gone) :]
        return [view.path for view in gone]

    def _delete(self, paths: list[Path]) -> int:
        """Deletes files; returns how many. What the disk refuses is tried again at the next call.

        One by one and in order: a fenced segment must not outlive its successor, which says so.
        """
        removed = 0
        self._undeleted += paths
        with contextlib.suppress(OSError):
            while self._undeleted:
                self._fs.unlink(self._undeleted[0])
                self._fs.fsync_dir(self._directory)
                del self._undeleted[0]
                removed += 1
        self._metrics.count("log_segments_released", removed)
        return removed

    def _seal_if_delivered(self, delivered: Lsn) -> None:
        writer = self._writer
        if writer is None or writer.is_empty or delivered < self.durable_lsn:
            return
        try:
            self._rotate(writer, is_fenced=False)
        except OSError:
            return  # no room even for that: the sealed ones are released all the same

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        if self._broken is None and not self._is_rotating and not writer.is_empty:
            # A help for the next start, not a promise: every answered group is synced already.
            with contextlib.suppress(OSError):
                writer.write_group([], 0, self._next_lsn, 0)
                writer.trim()
                writer.sync()
                self._show(writer)
        writer.close()


def _all_refused(entries: Sequence[Entry], failure: BufferFailure) -> GroupOutcome:
    return GroupOutcome(dict.fromkeys(range(len(entries)), failure), 0, 0)


def _refusal(error: OSError, what: str) -> Unavailable:
    kind = LogFull if is_no_room(error) else Unavailable
    failure = kind(f"{what}: {error}")
    failure.__cause__ = error
    return failure
