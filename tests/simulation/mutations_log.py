"""Defects of the log: writing, syncing, recovery, repeats, the directories."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import buffer.log
import buffer.opening
import buffer.reader
import buffer.segment
import buffer.sender
from buffer.committer import Committer
from buffer.frame import Receipt, Submission
from buffer.fs import Fd, FileSystem, write_all
from buffer.log import Log
from buffer.lsn import Lsn
from buffer.reader import Reader
from buffer.recovery import _Opening, _Tail
from buffer.repeats import RepeatWindow
from buffer.segment import SegmentWriter
from buffer.writeahead import WriteAheadBuffer

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from buffer.records import Gap


def skip_a_sync() -> AbstractContextManager[Any]:
    """A group is answered that was written and not synced."""

    def sync(self: SegmentWriter) -> None:
        self.synced_bytes = self.written_bytes

    return patch.object(SegmentWriter, "sync", sync)


def answer_before_the_sync() -> AbstractContextManager[Any]:
    """A request is answered when it is queued."""
    append_then = Committer.append_then

    def hasty(self: Committer, submission: Any, settle: Any) -> None:
        append_then(self, submission, lambda failure: None)
        asyncio.get_running_loop().call_soon(settle, None)

    return patch.object(Committer, "append_then", hasty)


def answer_after_a_failed_sync() -> AbstractContextManager[Any]:
    """A sync that failed is taken for one that did not matter."""

    def sync(self: SegmentWriter) -> None:
        with contextlib.suppress(OSError):
            self._fs.fdatasync(self._fd)
        self.synced_bytes = self.written_bytes

    return patch.object(SegmentWriter, "sync", sync)


def sync_again_after_a_failure() -> AbstractContextManager[Any]:
    """A sync that failed is tried again, and the second one believed."""

    def sync(self: SegmentWriter) -> None:
        try:
            self._fs.fdatasync(self._fd)
        except OSError:
            self._fs.fdatasync(self._fd)
        self.synced_bytes = self.written_bytes

    return patch.object(SegmentWriter, "sync", sync)


def read_unsynced_frames() -> AbstractContextManager[Any]:
    """The readers see a group as soon as it is written."""
    write = Log._write

    def shown(self: Log, writer: SegmentWriter, entries: Any) -> int:
        count = write(self, writer, entries)
        last = replace(self._views[-1], end_lsn=self._next_lsn, good_bytes=writer.written_bytes)
        self._views = (*self._views[:-1], last)
        return count

    return patch.object(Log, "_write", shown)


def reuse_an_lsn() -> AbstractContextManager[Any]:
    """A start gives the last LSN a second time."""
    init = Log.__init__

    def shifted(self: Log, *args: Any, next_lsn: Lsn, **options: Any) -> None:
        init(self, *args, next_lsn=Lsn(max(next_lsn - 1, 0)), **options)

    return patch.object(Log, "__init__", _with_defaults(shifted))


def fence_nothing() -> AbstractContextManager[Any]:
    """After a failed sync the same segment goes on."""
    return patch.object(Log, "_fence", lambda self, writer, cause: None)


def forget_the_directory() -> AbstractContextManager[Any]:
    """A new segment's name is not synced."""

    def careless(fs: FileSystem, path: Any, pieces: Any) -> Fd:
        temporary = path.with_name(path.name + ".tmp")
        fd = fs.create(temporary)
        write_all(fs, fd, pieces, 0)
        fs.fdatasync(fd)
        fs.rename(temporary, path)
        return fd

    return patch.object(buffer.segment, "create_durably", careless)


def release_too_early() -> AbstractContextManager[Any]:
    """Every segment but the last is deleted, whatever is delivered."""
    return patch.multiple(
        buffer.log,
        delivered_count=lambda views, delivered: max(len(views) - 1, 0),
        kept_count=lambda views, done, now_ns, options: 0,
    )


def cut_damage() -> AbstractContextManager[Any]:
    """A start cuts the log at the first bad byte, synced or not."""

    def proven(self: _Tail) -> tuple[int, Lsn]:
        if self.damage:
            return self.damage[0].offset, self._end_lsn
        return _PROVEN(self)

    return patch.object(_Tail, "proven", proven)


def keep_torn_tails() -> AbstractContextManager[Any]:
    """A start takes the file's end for the log's."""
    return patch.object(_Tail, "proven", lambda self: (self._records.end, self._end_lsn))


def hide_damage() -> AbstractContextManager[Any]:
    """A damaged range is passed over without a word."""
    gap = Reader._gap

    def silent(self: Reader, view: Any, successor: Any, found: Gap) -> Any:
        what = gap(self, view, successor, found)
        return buffer.reader._PASSED if what is not None else None

    return patch.object(Reader, "_gap", silent)


def trust_what_is_cached() -> AbstractContextManager[Any]:
    """A start delivers what it reads without making it durable."""
    return patch.object(_Opening, "sync", lambda self, views: None)


def forget_the_repeat_window() -> AbstractContextManager[Any]:
    """A start remembers no requests."""
    return patch.object(RepeatWindow, "load", lambda self, remembered: None)


def acknowledge_what_found_no_room() -> AbstractContextManager[Any]:
    """A request that did not fit is answered like its neighbours that did."""
    write_alone = Log._write_alone

    def all_well(self: Log, writer: SegmentWriter, entries: Any, failures: dict[int, Any]) -> int:
        return write_alone(self, writer, entries, {})

    return patch.object(Log, "_write_alone", all_well)


def remember_what_failed() -> AbstractContextManager[Any]:
    """A repeat of a request that was not stored is answered as if it had been."""
    append, settle = WriteAheadBuffer.append, RepeatWindow.settle
    receipts: dict[bytes, Receipt] = {}

    def noted(self: WriteAheadBuffer, submission: Submission) -> Any:
        receipt = Receipt(submission.accepted, submission.rejected, is_repeat=False)
        receipts[submission.digest] = receipt
        return append(self, submission)

    def forgiving(self: RepeatWindow, digest: bytes, receipt: Receipt | None) -> None:
        settle(self, digest, receipts[digest])

    stack = contextlib.ExitStack()
    stack.enter_context(patch.object(WriteAheadBuffer, "append", noted))
    stack.enter_context(patch.object(RepeatWindow, "settle", forgiving))
    return stack


def forget_the_root() -> AbstractContextManager[Any]:
    """The name of the directory that holds all shards is not synced."""
    return patch.object(buffer.opening, "make_dir_durably", lambda fs, path: fs.make_dir(path))


def vouch_for_the_page_cache() -> AbstractContextManager[Any]:
    """A start syncs what it accepts, and does not write it again: pages may count as written."""
    return patch.object(_Opening, "_rewrite", lambda self, fd, start, end: None)


_PROVEN = _Tail.proven


def _with_defaults(function: Any) -> Any:
    """The simulation seeds the log's randomness through its defaults."""
    function.__kwdefaults__ = {"random_bytes": None}
    init = Log.__init__

    def made(self: Log, *args: Any, **options: Any) -> None:
        options.setdefault("random_bytes", defaults["random_bytes"])
        function(self, *args, **options)

    defaults = made.__kwdefaults__ = dict(init.__kwdefaults__ or {})
    return made
