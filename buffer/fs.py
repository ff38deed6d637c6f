"""Files, through one narrow door: the only module of the buffer that calls the operating system.

All calls block; they are made on a shard's disk threads. Errors are ``OSError`` as the system gave
them: what they mean is decided by the caller. ``tests/fakes/disk.py`` is the double that forgets
what was not synced.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from typing import TYPE_CHECKING, NewType, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Fd = NewType("Fd", int)
"""An open file of a `FileSystem`."""

TEMPORARY_SUFFIX = ".tmp"
"""Of a file being made; one found at a start is unfinished and is removed."""

IOVEC_COUNT_MAX = 1_024
"""Pieces that Linux takes in one vectored write (IOV_MAX)."""

NO_ROOM_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors that say "no room" rather than "the disk is sick"."""


class FileSystem(Protocol):
    """What the buffer asks of a file system. Paths are absolute; offsets and sizes are bytes."""

    def make_dir(self, path: Path) -> None:
        """Makes a directory and its parents; one that exists already is no error."""
        ...

    def list_dir(self, path: Path) -> list[str]:
        """Names in a directory, in no order; an absent directory has none."""
        ...

    def exists(self, path: Path) -> bool:
        """Whether something has this name."""
        ...

    def create(self, path: Path) -> Fd:
        """A new, empty file for reading and writing; a former one of this name is emptied."""
        ...

    def open_read(self, path: Path) -> Fd:
        """An existing file for reading."""
        ...

    def open_write(self, path: Path) -> Fd:
        """An existing file for reading and writing in place."""
        ...

    def pwritev(self, fd: Fd, pieces: Sequence[bytes], offset: int) -> int:
        """Writes the pieces one after the other; returns the bytes written, which may be fewer.

        At most `IOVEC_COUNT_MAX` pieces.
        """
        ...

    def pread(self, fd: Fd, count: int, offset: int) -> bytes:
        """Up to ``count`` bytes from ``offset``; fewer only at the end of the file."""
        ...

    def fdatasync(self, fd: Fd) -> None:
        """Durability: what was written to the file, and its size, survive a power cut."""
        ...

    def fsync_dir(self, path: Path) -> None:
        """Durability: names made, changed and removed in the directory survive a power cut."""
        ...

    def truncate(self, fd: Fd, size: int) -> None:
        """Cuts a file to ``size``."""
        ...

    def size(self, fd: Fd) -> int:
        """A file's size."""
        ...

    def size_of(self, path: Path) -> int:
        """The size of the file of this name; 0 where there is none (it may go at any time)."""
        ...

    def close(self, fd: Fd) -> None:
        """Closes; an error of closing says nothing about durability and is not raised."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Gives a file another name, in place of a file that had it."""
        ...

    def unlink(self, path: Path) -> None:
        """Removes a name; an absent one is no error."""
        ...

    def remove_dir(self, path: Path) -> None:
        """Removes an empty directory; an absent one is no error."""
        ...

    def lock(self, path: Path) -> Fd | None:
        """Takes the exclusive lock on a lock file, made where absent; None: another holds it.

        The holder's pid stands in the file. The lock goes when the descriptor is closed, also by
        the holder's death, and is not inherited by programs that the holder starts.
        """
        ...

    def free_bytes(self, path: Path) -> int:
        """Room that an unprivileged process may still use on the file system of ``path``."""
        ...


def create_durably(fs: FileSystem, path: Path, pieces: Sequence[bytes]) -> Fd:
    """Makes a file that is there in full or not at all; returns it open for reading and writing.

    Raises:
        OSError: it could not be made; a short write is ENOSPC. The name may or may not be there.

    Durability: content and name survive a power cut once this returns.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    fd = fs.create(temporary)
    try:
        write_all(fs, fd, pieces, 0)
        fs.fdatasync(fd)
        fs.rename(temporary, path)
        fs.fsync_dir(path.parent)
    except OSError:
        fs.close(fd)
        with contextlib.suppress(OSError):
            fs.unlink(temporary)
        raise
    return fd


def make_dir_durably(fs: FileSystem, path: Path) -> None:
    """Makes a directory and its parents; one that exists already is no error.

    Raises:
        OSError: it could not be made or synced; call again.

    Durability: its name, and those of the parents that were missing, survive a power cut once this
        returns. One that is there already is synced as well: whoever made it may not have come to.
    """
    unsynced = [path]
    for parent in path.parents:
        if fs.exists(parent):
            break
        unsynced.append(parent)
    fs.make_dir(path)
    for made in reversed(unsynced):
        fs.fsync_dir(made.parent)


def write_all(fs: FileSystem, fd: Fd, pieces: Sequence[bytes], offset: int) -> None:
    """Writes all of the pieces with one call.

    Raises:
        OSError: as the system gave it; ENOSPC also for a short write, which has left a part behind.
    """
    wanted = sum(map(len, pieces))
    written = fs.pwritev(fd, pieces, offset)
    if written != wanted:
        raise OSError(errno.ENOSPC, f"only {written} of {wanted} bytes were written")


def is_no_room(error: OSError) -> bool:
    """Whether an error says that there is no room, as against a disk that is sick."""
    return error.errno in NO_ROOM_ERRNOS


class RealFileSystem:
    """The operating system's files."""

    def make_dir(self, path: Path) -> None:
        """Makes a directory and its parents, for this user alone."""
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def list_dir(self, path: Path) -> list[str]:
        """Names in a directory, in no order; an absent directory has none."""
        try:
            return os.listdir(path)  # noqa: PTH208 - names, not paths
        except (FileNotFoundError, NotADirectoryError):
            return []

    def exists(self, path: Path) -> bool:
        """Whether something has this name."""
        return path.exists()

    def create(self, path: Path) -> Fd:
        """A new, empty file for reading and writing, for this user alone."""
        flags = os.O_CREAT | os.O_TRUNC | os.O_RDWR | os.O_CLOEXEC
        return Fd(os.open(path, flags, 0o600))

    def open_read(self, path: Path) -> Fd:
        """An existing file for reading."""
        return Fd(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def open_write(self, path: Path) -> Fd:
        """An existing file for reading and writing in place."""
        return Fd(os.open(path, os.O_RDWR | os.O_CLOEXEC))

    def pwritev(self, fd: Fd, pieces: Sequence[bytes], offset: int) -> int:
        """One vectored write."""
        return os.pwritev(fd, pieces, offset)

    def pread(self, fd: Fd, count: int, offset: int) -> bytes:
        """Up to ``count`` bytes from ``offset``; fewer only at the end of the file."""
        data = os.pread(fd, count, offset)
        if len(data) == count or not data:
            return data
        pieces = [data]
        have = len(data)
        while have < count and (data := os.pread(fd, count - have, offset + have)):
            pieces.append(data)
            have += len(data)
        return b"".join(pieces)

    def fdatasync(self, fd: Fd) -> None:
        """The system's fdatasync, which includes a changed size."""
        os.fdatasync(fd)

    def fsync_dir(self, path: Path) -> None:
        """Syncs the directory's entries."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def truncate(self, fd: Fd, size: int) -> None:
        """Cuts a file to ``size``."""
        os.ftruncate(fd, size)

    def size(self, fd: Fd) -> int:
        """A file's size."""
        return os.fstat(fd).st_size

    def size_of(self, path: Path) -> int:
        """The size of the file of this name; 0 where there is none."""
        try:
            return path.stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return 0

    def close(self, fd: Fd) -> None:
        """Closes, whatever the system says about it."""
        with contextlib.suppress(OSError):
            os.close(fd)

    def rename(self, source: Path, target: Path) -> None:
        """Gives a file another name, in place of a file that had it."""
        source.replace(target)

    def unlink(self, path: Path) -> None:
        """Removes a name; an absent one is no error."""
        path.unlink(missing_ok=True)

    def remove_dir(self, path: Path) -> None:
        """Removes an empty directory; an absent one is no error."""
        with contextlib.suppress(FileNotFoundError):
            path.rmdir()

    def lock(self, path: Path) -> Fd | None:
        """Takes the exclusive lock on a lock file, by ``flock``; None: another holds it."""
        while True:
            fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return None
            except OSError:
                os.close(fd)
                raise
            # Between open and flock the former holder may have removed the file with its shard: a
            # lock on a file without a name keeps nobody out.
            if _is_named(fd, path):
                os.ftruncate(fd, 0)
                os.pwrite(fd, str(os.getpid()).encode(), 0)
                return Fd(fd)
            os.close(fd)

    def free_bytes(self, path: Path) -> int:
        """Room that an unprivileged process may still use on the file system of ``path``."""
        figures = os.statvfs(path)
        return figures.f_bavail * figures.f_frsize


def _is_named(fd: int, path: Path) -> bool:
    mine = os.fstat(fd)
    try:
        named = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - beside fstat, for samestat
    except FileNotFoundError:
        return False
    return stat.S_ISREG(named.st_mode) and os.path.samestat(mine, named)
