"""The machine's disk, and one process's way to it.

`MachineDisk` is the fake of ``tests/fakes/disk.py``, seen by many processes, with more that a power
cut may take: directories that were made or removed and not synced, and any subset of a file's
unsynced writes. `ProcessFiles` is the `FileSystem` that one process is given: each call waits a
seeded while before and after (there another process, the loop or a crash has its turn), and may
meet what the disk's mood has in store.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from buffer.fs import TEMPORARY_SUFFIX, Fd
from buffer.segment import SUFFIX
from tests.fakes.disk import (
    Fail,
    FakeFileSystem,
    Short,
    _apply_names,
    _Dir,
    _File,
    _torn,
    _write,
)
from tests.simulation.loop import is_in_job

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from tests.simulation.loop import Process, SimLoop

T = TypeVar("T")

READ_CALLS = frozenset({"open_read", "open_write", "pread", "list_dir", "size_of"})


@dataclass
class DiskMood:
    """Chances, a call; set by the scenario, healed in the end."""

    sync_fails: float = 0.0
    write_fails: float = 0.0
    write_short: float = 0.0
    name_fails: float = 0.0
    """create, rename, fsync_dir, unlink and the like."""
    read_fails: float = 0.0
    sync_slow: float = 0.0
    sync_hung: float = 0.0
    kills: float = 0.0
    cuts: float = 0.0


class _Dirs(dict[Path, _Dir]):
    """Directories by path; what is below one is asked for at every turn, and seldom changes."""

    def __init__(self) -> None:
        super().__init__()
        self._below: dict[str, list[str]] | None = None

    def __setitem__(self, path: Path, directory: _Dir) -> None:
        super().__setitem__(path, directory)
        self._below = None

    def __delitem__(self, path: Path) -> None:
        super().__delitem__(path)
        self._below = None

    def setdefault(self, path: Path, directory: _Dir) -> _Dir:  # type: ignore[override]
        if path not in self:
            self[path] = directory
        return self[path]

    def below(self, path: Path) -> list[str]:
        """Names of the directories in a directory, in the order in which they were made."""
        if self._below is None:
            self._below = {}
            for one in self:
                if one.parent is not one:
                    self._below.setdefault(str(one.parent), []).append(one.name)
        return self._below.get(str(path), [])


class MachineDisk(FakeFileSystem):
    """What outlives processes. Nothing else may change it but through `ProcessFiles`."""

    def __init__(self, root: Path, random: Random) -> None:
        super().__init__()
        self.random = random
        self.mood = DiskMood()
        self.injected: dict[str, int] = {}
        self.cut_power: Callable[[], None] = lambda: None
        """What a call does that meets a power cut; set by the machine."""
        self.ordered: dict[int, Callable[[Process], Fail | Short | None]] = {}
        """What happens at the changing call of this number, from 1; for tests of each call."""
        self.changes = 0
        self._durable_dirs: set[Path] = {root.parent}
        self._removed: dict[Path, _Dir] = {}
        self._links: dict[tuple[int, str], tuple[Path, str, _File]] = {}
        self._dirs: _Dirs = _Dirs()
        self._dirs[root.parent] = _Dir()

    def power_cut(self, random: Random) -> None:
        for path, directory in list(self._removed.items()):
            if random.random() < 0.5:
                self._dirs[path] = directory
        self._removed.clear()
        for path in list(self._dirs):
            if path not in self._durable_dirs and random.random() < 0.5:
                self._lose_tree(path)
        self._durable_dirs |= set(self._dirs)
        for directory in self._dirs.values():
            for file in {id(f): f for f in directory.cached.values()}.values():
                if file.pending and random.random() < 0.3:
                    _lose_any(file, random)
        super().power_cut(random)
        self._links.clear()

    def make_dir(self, path: Path) -> None:
        for parent in reversed(path.parents):
            if len(parent.parts) > 1 and parent not in self._dirs:
                super().make_dir(parent)
        super().make_dir(path)

    def remove_dir(self, path: Path) -> None:
        before = self._dirs.get(path)
        super().remove_dir(path)
        if before is not None:
            if path in self._durable_dirs:
                self._removed[path] = before
            self._durable_dirs.discard(path)

    def fsync_dir(self, path: Path) -> None:
        if path not in self._dirs:
            raise FileNotFoundError(errno.ENOENT, "no such directory", str(path))
        for changes in self._dirs[path].pending:
            for name, file in changes:
                # A rename across directories is one change: the old name goes with the new one.
                link = self._links.pop((id(file), name), None) if file is not None else None
                if link is not None and link[0] in self._dirs:
                    self._dirs[link[0]].durable.pop(link[1], None)
        super().fsync_dir(path)
        self._durable_dirs |= {one for one in self._dirs if one.parent == path}
        for one in [one for one in self._removed if one.parent == path]:
            del self._removed[one]

    def rename(self, source: Path, target: Path) -> None:
        if source.parent == target.parent:
            super().rename(source, target)
            return
        self._step("rename", source)
        file = self._file(source)
        # The old name's end is durable with the new one's beginning: see fsync_dir.
        _apply_names(self._dirs[source.parent].cached, ((source.name, None),))
        self._names(self._dirs[target.parent], (target.name, file))
        self._links[id(file), target.name] = (source.parent, source.name, file)

    def list_dir(self, path: Path) -> list[str]:
        there = self._dirs.get(path)
        return [*self._dirs.below(path), *(there.cached if there is not None else ())]

    def lock(self, path: Path) -> Fd | None:
        if path.parent not in self._dirs:
            raise FileNotFoundError(errno.ENOENT, "no such directory", str(path))
        return super().lock(path)

    def paths(self) -> list[Path]:
        """Every file, in order."""
        return sorted(at / name for at, one in self._dirs.items() for name in one.cached)

    def take_out(self, path: Path) -> None:
        """Somebody moves a file to another disk."""
        directory = self._dirs[path.parent]
        directory.cached.pop(path.name, None)
        directory.durable.pop(path.name, None)

    def open_paths(self) -> list[str]:
        """Names of the files that somebody has open."""
        names = {id(f): name for one in self._dirs.values() for name, f in one.cached.items()}
        return sorted(names.get(id(file), "a removed file") for file in self._open.values())

    def _lose_tree(self, path: Path) -> None:
        for one in [one for one in self._dirs if one == path or path in one.parents]:
            del self._dirs[one]


class ProcessFiles:
    """One process's `FileSystem`."""

    def __init__(self, disk: MachineDisk, process: Process, loop: SimLoop) -> None:
        self._disk = disk
        self._process = process
        self._loop = loop
        self._fds: set[Fd] = set()
        self._segments: set[Fd] = set()
        """Those that this process has made."""
        self._groups: set[Fd] = set()
        """Those of them whose next sync is a group's."""
        self.syncing_since: float | None = None
        """When the sync of a group that is under way was asked for."""
        process.on_death.append(self._let_go)

    def make_dir(self, path: Path) -> None:
        self._call("make_dir", self._disk.make_dir, path)

    def list_dir(self, path: Path) -> list[str]:
        return sorted(self._call("list_dir", self._disk.list_dir, path))

    def exists(self, path: Path) -> bool:
        return self._call("exists", self._disk.exists, path)

    def create(self, path: Path) -> Fd:
        fd = self._call("create", lambda: self._opened(self._disk.create(path)))
        if path.name.endswith(f"{SUFFIX}{TEMPORARY_SUFFIX}"):
            self._segments.add(fd)
        return fd

    def open_read(self, path: Path) -> Fd:
        return self._call("open_read", lambda: self._opened(self._disk.open_read(path)))

    def open_write(self, path: Path) -> Fd:
        return self._call("open_write", lambda: self._opened(self._disk.open_write(path)))

    def pwritev(self, fd: Fd, pieces: Sequence[bytes], offset: int) -> int:
        return self._call("pwritev", self._disk.pwritev, fd, pieces, offset)

    def pread(self, fd: Fd, count: int, offset: int) -> bytes:
        return self._call("pread", self._disk.pread, fd, count, offset)

    def fdatasync(self, fd: Fd) -> None:
        if fd in self._groups:
            self.syncing_since = self._loop.time()
        try:
            self._call("fdatasync", self._disk.fdatasync, fd)
        finally:
            self.syncing_since = None if fd in self._groups else self.syncing_since
        if fd in self._segments:  # its first sync was its making
            self._groups.add(fd)

    def fsync_dir(self, path: Path) -> None:
        self._call("fsync_dir", self._disk.fsync_dir, path)

    def truncate(self, fd: Fd, size: int) -> None:
        self._call("truncate", self._disk.truncate, fd, size)

    def size(self, fd: Fd) -> int:
        return self._call("size", self._disk.size, fd)

    def size_of(self, path: Path) -> int:
        return self._call("size_of", self._disk.size_of, path)

    def close(self, fd: Fd) -> None:
        if self._process.is_alive:
            self._fds.discard(fd)
            self._disk.close(fd)

    def rename(self, source: Path, target: Path) -> None:
        self._call("rename", self._disk.rename, source, target)

    def unlink(self, path: Path) -> None:
        self._call("unlink", self._disk.unlink, path)

    def remove_dir(self, path: Path) -> None:
        self._call("remove_dir", self._disk.remove_dir, path)

    def lock(self, path: Path) -> Fd | None:
        return self._call("lock", lambda: self._locked(path))

    def free_bytes(self, path: Path) -> int:
        return self._call("free_bytes", self._disk.free_bytes, path)

    def _locked(self, path: Path) -> Fd | None:
        fd = self._disk.lock(path)
        return None if fd is None else self._opened(fd)

    def _opened(self, fd: Fd) -> Fd:
        self._fds.add(fd)
        return fd

    def _let_go(self) -> None:
        for fd in self._fds:
            self._disk.close(fd)
        self._fds.clear()

    def _call(self, name: str, call: Callable[..., T], *args: object) -> T:
        self._process.check()
        random, mood = self._disk.random, self._disk.mood
        is_change = name not in READ_CALLS and name not in {"exists", "size", "free_bytes", "lock"}
        if is_in_job() and (is_change or random.random() < 0.05):
            self._wait(name)
        self._die(mood, is_change)
        if (fault := self._ordered(is_change) or self._fault(name, mood)) is not None:
            if name in READ_CALLS:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self._disk.fail_next(fault)
        try:
            result = call(*args)
        finally:
            self._disk.faults.clear()  # where the call has failed before it met what was ordered
        if is_change:
            if is_in_job() and random.random() < 0.3:
                self._loop.pause(random.random() * 0.001)
            self._die(mood, is_change)
        self._process.check()
        return result

    def _wait(self, name: str) -> None:
        random, mood = self._disk.random, self._disk.mood
        seconds = random.random() * 0.0005
        if name == "fdatasync":
            seconds *= 10
            chance = random.random()
            if chance < mood.sync_hung:
                seconds = 5.0 + 4 * random.random()
                self._count("sync_hung")
            elif chance < mood.sync_hung + mood.sync_slow:
                seconds = 0.05 + 1.5 * random.random()
                self._count("sync_slow")
        self._loop.pause(seconds)

    def _die(self, mood: DiskMood, is_change: bool) -> None:
        if not is_change or not (mood.kills or mood.cuts):
            return
        chance = self._disk.random.random()
        if chance < mood.kills:
            self._count("kill_at_a_call")
            self._process.kill()
        elif chance < mood.kills + mood.cuts:
            self._count("power_cut_at_a_call")
            self._disk.cut_power()
        self._process.check()

    def _ordered(self, is_change: bool) -> Fail | Short | None:
        if not is_change:
            return None
        self._disk.changes += 1
        happen = self._disk.ordered.get(self._disk.changes)
        fault = None if happen is None else happen(self._process)
        self._process.check()
        return fault

    def _fault(self, name: str, mood: DiskMood) -> Fail | Short | None:
        random = self._disk.random
        if name in READ_CALLS:
            if mood.read_fails and random.random() < mood.read_fails:
                self._count("read_eio")
                return Fail(errno.EIO)
            return None
        if name == "fdatasync":
            if mood.sync_fails and random.random() < mood.sync_fails:
                self._count("sync_eio")
                return Fail(errno.EIO)
        elif name == "pwritev":
            chance = random.random() if mood.write_fails or mood.write_short else 1.0
            if chance < mood.write_fails:
                code = random.choice([errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
                self._count(f"write_{errno.errorcode[code].lower()}")
                return Fail(code)
            if chance < mood.write_fails + mood.write_short:
                self._count("write_short")
                return Short(random.randrange(600))
        elif name in {"create", "rename", "fsync_dir", "unlink", "truncate", "make_dir"}:
            is_full = self._disk.capacity is not None and name in {"create", "make_dir"}
            if is_full and self._disk.free_bytes(Path("/")) == 0 and random.random() < 0.5:
                return Fail(errno.ENOSPC)
            if mood.name_fails and random.random() < mood.name_fails:
                self._count(f"{name}_eio")
                return Fail(random.choice([errno.EIO, errno.ENOSPC]))
        return None

    def _count(self, what: str) -> None:
        self._disk.injected[what] = self._disk.injected.get(what, 0) + 1


def _lose_any(file: _File, random: Random) -> None:
    """Unsynced writes reach the disk in any order: each is kept, torn or lost by itself."""
    if any(data is None for _, data in file.pending):
        return  # sizes are journalled in order: the plain way is right
    for offset, data in file.pending:
        assert data is not None
        chance = random.random()
        if chance < 0.4:
            _write(file.durable, offset, data)
        elif chance < 0.7 and data:
            _write(file.durable, offset, _torn(file.durable, offset, data, random))
    file.pending.clear()
