"""Disks that fail on demand: a file system in memory that forgets, and threads that wait to be let.

`FakeFileSystem` holds for each file what is cached and what is durable, and for each directory its
names likewise. `kill` is kill -9: the cache survives. `power_cut` keeps what was synced and, of the
rest, as the given random source decides: a prefix of a file's operations, the last of them torn or
with holes; a prefix, or any choice, of a directory's changes of names. A failed `fdatasync` drops
what it should have made durable (every other time it is there after all), and a later one succeeds
all the same: that is what Linux does.
"""

from __future__ import annotations

import asyncio
import errno
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from buffer.fs import IOVEC_COUNT_MAX, Fd

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

T = TypeVar("T")

SECTOR_BYTES = 512


class Crash(BaseException):
    """The machine has gone; no handler of the program runs usefully any more."""


@dataclass(frozen=True)
class Fail:
    """The call fails with this error and does nothing."""

    errno: int


@dataclass(frozen=True)
class Short:
    """A write takes only so many bytes."""

    count: int


@dataclass(frozen=True)
class Cut:
    """The machine goes before the call."""


Fault = Fail | Short | Cut


@dataclass
class _File:
    cached: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Writes (offset, data) and truncations (size, None) since the last sync."""


@dataclass
class _Dir:
    cached: dict[str, _File] = field(default_factory=dict)
    durable: dict[str, _File] = field(default_factory=dict)
    pending: list[tuple[tuple[str, _File | None], ...]] = field(default_factory=list)


class FakeFileSystem:
    """Files in memory. ``faults`` maps the number of a changing call, from 1, to what happens."""

    def __init__(self, *, capacity: int | None = None) -> None:
        self.calls = 0
        self.trace: list[str] = []
        self.faults: dict[int, Fault] = {}
        self.capacity = capacity
        self.is_down = False
        self.failed_syncs = 0
        self._dirs: dict[Path, _Dir] = {}
        self._open: dict[Fd, _File] = {}
        self._locks: dict[Path, Fd] = {}
        self._next_fd = 100

    # -- what happens to it --

    def kill(self) -> None:
        """kill -9: descriptors and locks go, the cache stays."""
        self._open.clear()
        self._locks.clear()
        self.is_down = False

    def power_cut(self, random: Random) -> None:
        """The power goes, and comes back."""
        self.kill()
        for directory in self._dirs.values():
            kept = directory.pending[: random.randint(0, len(directory.pending))]
            if random.random() < 0.5:  # POSIX promises no order
                kept = [changes for changes in directory.pending if random.random() < 0.5]
            for changes in kept:
                _apply_names(directory.durable, changes)
            directory.cached = dict(directory.durable)
            directory.pending.clear()
            for file in directory.durable.values():
                _lose(file, random)

    def fail_next(self, fault: Fault, *, after: int = 0) -> None:
        """The call after ``after`` more changing calls meets this."""
        self.faults[self.calls + after + 1] = fault

    def flip(self, path: Path, offset: int, mask: int = 0xFF) -> None:
        """The disk rots: one byte, in cache and beneath."""
        file = self._file(path)
        file.cached[offset] ^= mask
        if offset < len(file.durable):
            file.durable[offset] ^= mask

    def content(self, path: Path) -> bytes:
        return bytes(self._file(path).cached)

    def put(self, path: Path, data: bytes) -> None:
        """A durable file with this content."""
        directory = self._dirs.setdefault(path.parent, _Dir())
        file = _File(bytearray(data), bytearray(data))
        directory.cached[path.name] = directory.durable[path.name] = file

    @property
    def used_bytes(self) -> int:
        return sum(len(f.cached) for d in self._dirs.values() for f in d.cached.values())

    @property
    def open_count(self) -> int:
        return len(self._open)

    # -- FileSystem --

    def make_dir(self, path: Path) -> None:
        self._step("make_dir", path)
        self._dirs.setdefault(path, _Dir())

    def list_dir(self, path: Path) -> list[str]:
        self._alive()
        below = {p.name for p in self._dirs if p.parent == path and p != path}
        return [*below, *(self._dirs[path].cached if path in self._dirs else ())]

    def exists(self, path: Path) -> bool:
        self._alive()
        parent = self._dirs.get(path.parent)
        return path in self._dirs or (parent is not None and path.name in parent.cached)

    def create(self, path: Path) -> Fd:
        self._step("create", path)
        if path.parent not in self._dirs:
            raise OSError(errno.ENOENT, "no such directory", str(path.parent))
        directory = self._dirs[path.parent]
        file = directory.cached.get(path.name)
        if file is None:
            file = _File()
            self._names(directory, (path.name, file))
        else:
            self._truncate(file, 0)
        return self._opened(file)

    def open_read(self, path: Path) -> Fd:
        self._alive()
        return self._opened(self._file(path))

    open_write = open_read

    def pwritev(self, fd: Fd, pieces: Sequence[bytes], offset: int) -> int:
        assert len(pieces) <= IOVEC_COUNT_MAX, "the system refuses longer vectors"
        data = b"".join(pieces)
        fault = self._step("pwritev", fd, may_be_short=True)
        if isinstance(fault, Short):
            data = data[: fault.count]
        file = self._open[fd]
        if self.capacity is not None:
            grows = max(offset + len(data) - len(file.cached), 0)
            lacking = grows - max(self.capacity - self.used_bytes, 0)
            if lacking > 0:
                data = data[: len(data) - lacking]
                if not data:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        _write(file.cached, offset, data)
        file.pending.append((offset, data))
        return len(data)

    def pread(self, fd: Fd, count: int, offset: int) -> bytes:
        self._alive()
        assert count >= 0
        return bytes(self._open[fd].cached[offset : offset + count])

    def fdatasync(self, fd: Fd) -> None:
        file = self._open.get(fd)
        try:
            self._step("fdatasync", fd)
        except OSError:
            assert file is not None
            self.failed_syncs += 1
            if self.failed_syncs % 2:  # every other time it was on the disk already
                for offset, data in file.pending:
                    _apply(file.durable, offset, data)
            file.pending.clear()
            raise
        assert file is not None
        for offset, data in file.pending:
            _apply(file.durable, offset, data)
        file.pending.clear()

    def fsync_dir(self, path: Path) -> None:
        self._step("fsync_dir", path)
        directory = self._dirs[path]
        for changes in directory.pending:
            _apply_names(directory.durable, changes)
        directory.pending.clear()

    def truncate(self, fd: Fd, size: int) -> None:
        self._step("truncate", fd)
        self._truncate(self._open[fd], size)

    def size(self, fd: Fd) -> int:
        self._alive()
        return len(self._open[fd].cached)

    def size_of(self, path: Path) -> int:
        return len(self._file(path).cached) if self.exists(path) and path not in self._dirs else 0

    def close(self, fd: Fd) -> None:
        self._open.pop(fd, None)
        self._locks = {path: held for path, held in self._locks.items() if held != fd}

    def rename(self, source: Path, target: Path) -> None:
        self._step("rename", source)
        assert source.parent == target.parent, "renames across directories are not modelled"
        self._names(
            self._dirs[source.parent], (source.name, None), (target.name, self._file(source))
        )

    def unlink(self, path: Path) -> None:
        self._step("unlink", path)
        directory = self._dirs.get(path.parent)
        if directory is not None and path.name in directory.cached:
            self._names(directory, (path.name, None))

    def remove_dir(self, path: Path) -> None:
        self._step("remove_dir", path)
        if path in self._dirs:
            if self.list_dir(path):
                raise OSError(errno.ENOTEMPTY, "not empty", str(path))
            del self._dirs[path]

    def lock(self, path: Path) -> Fd | None:
        self._alive()
        if path in self._locks:
            return None
        directory = self._dirs[path.parent]
        file = directory.cached.setdefault(path.name, _File())
        directory.durable.setdefault(path.name, file)
        file.cached[:] = b"4711"
        fd = self._opened(file)
        self._locks[path] = fd
        return fd

    def free_bytes(self, path: Path) -> int:
        self._alive()
        return 2**40 if self.capacity is None else max(self.capacity - self.used_bytes, 0)

    # -- inside --

    def _alive(self) -> None:
        if self.is_down:
            raise Crash

    def _step(self, name: str, what: object, *, may_be_short: bool = False) -> Fault | None:
        self._alive()
        self.calls += 1
        self.trace.append(f"{name} {what.name if isinstance(what, Path) else what}")
        fault = self.faults.pop(self.calls, None)
        if isinstance(fault, Cut):
            self.is_down = True
            raise Crash
        if isinstance(fault, Fail):
            raise OSError(fault.errno, os.strerror(fault.errno))
        return fault if may_be_short else None

    def _file(self, path: Path) -> _File:
        directory = self._dirs.get(path.parent)
        if directory is None or path.name not in directory.cached:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return directory.cached[path.name]

    def _opened(self, file: _File) -> Fd:
        self._next_fd += 1
        fd = Fd(self._next_fd)
        self._open[fd] = file
        return fd

    def _names(self, directory: _Dir, *changes: tuple[str, _File | None]) -> None:
        _apply_names(directory.cached, changes)
        directory.pending.append(changes)

    def _truncate(self, file: _File, size: int) -> None:
        _apply(file.cached, size, None)
        file.pending.append((size, None))


class HeldDisk:
    """A thread that begins a call only when the test lets it."""

    def __init__(self) -> None:
        self._held: list[tuple[asyncio.Future, Callable[[], object]]] = []
        self._arrived = asyncio.Event()

    def submit(self, fn: Callable[..., T], *args: object) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._held.append((future, lambda: fn(*args)))
        self._arrived.set()
        return future

    async def run(self, fn: Callable[..., T], *args: object) -> T:
        return await asyncio.shield(self.submit(fn, *args))

    def close(self) -> None:
        pass

    async def arrived(self) -> None:
        """Returns when a call waits."""
        while not self._held:
            self._arrived.clear()
            await self._arrived.wait()

    def let(self) -> None:
        """Runs the oldest call."""
        future, call = self._held.pop(0)
        try:
            future.set_result(call())
        except Exception as error:
            future.set_exception(error)


def _apply_names(names: dict[str, _File], changes: tuple[tuple[str, _File | None], ...]) -> None:
    for name, file in changes:
        if file is None:
            names.pop(name, None)
        else:
            names[name] = file


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is not None:
        _write(content, offset, data)
    elif offset <= len(content):
        del content[offset:]
    else:
        content.extend(bytes(offset - len(content)))


def _write(content: bytearray, offset: int, data: bytes) -> None:
    if offset > len(content):
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def _lose(file: _File, random: Random) -> None:
    kept = random.randint(0, len(file.pending))
    for offset, data in file.pending[:kept]:
        _apply(file.durable, offset, data)
    if kept < len(file.pending):
        offset, data = file.pending[kept]
        if data is not None:
            _write(file.durable, offset, _torn(file.durable, offset, data, random))
    file.cached = bytearray(file.durable)
    file.pending.clear()


def _torn(durable: bytearray, offset: int, data: bytes, random: Random) -> bytes:
    """A write that was under way: a prefix, in half the cases with sectors that never came.

    Those hold what was there before, or zeros in what is new.
    """
    torn = bytearray(data[: random.randint(0, len(data))])
    if random.random() < 0.5:
        before = bytes(durable[offset : offset + len(torn)]).ljust(len(torn), b"\0")
        for at in range(0, len(torn), SECTOR_BYTES):
            if random.random() < 0.3:
                end = min(at + SECTOR_BYTES, len(torn))
                torn[at:end] = before[at:end]
    return bytes(torn)
