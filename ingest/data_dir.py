"""Owning the data directory: its lock, the engine's password, and the note of what runs now."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ingest.layout import Layout

LOCK_TRIES = 6
LOCK_SECONDS = 0.1
NO_ROOM_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""As `buffer.fs` has them, which the supervisor does not load."""
ROOM_BYTES_MIN = 2**20
"""What a start writes outside of the log, with a margin."""


class DataDirUnusable(Exception):
    """The data directory cannot be used; says why and what to do."""


class DataDirLock:
    """The lock of a data directory, held until `release` or the death of this process.

    Descriptors are closed on exec, so no child holds it on.

    Attributes:
        was_killed: the last holder did not release it, so its children may be about to end still.
    """

    def __init__(self, descriptor: int, *, was_killed: bool) -> None:
        self.was_killed = was_killed
        self._descriptor = descriptor

    @classmethod
    def take(cls, layout: Layout) -> DataDirLock:
        """Make the directory where it does not exist, and lock it.

        Raises:
            DataDirUnusable: another server has it, or it cannot be made or written.
        """
        root = layout.root
        make_root(layout)
        descriptor = os.open(layout.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(descriptor)
        except BlockingIOError as error:
            pid = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise DataDirUnusable(
                f"data directory {root} is in use by another server, pid {pid or 'unknown'}: "
                f"stop that one, or choose another with --data-dir"
            ) from error
        except OSError as error:
            os.close(descriptor)
            raise DataDirUnusable(
                f"data directory {root} cannot be locked: {error.strerror}; it must be on a local "
                f"disk: choose another with --data-dir"
            ) from error
        was_killed = bool(os.pread(descriptor, 32, 0).strip())
        _write_over(descriptor, str(os.getpid()))
        return cls(descriptor, was_killed=was_killed)

    def release(self) -> None:
        """Let another server have it. The file stays: removing it could split the lock in two."""
        _write_over(self._descriptor, "")
        os.close(self._descriptor)


def make_root(layout: Layout) -> None:
    """Make the directory where it does not exist, and see that files can be made in it.

    Raises:
        DataDirUnusable: it cannot be made, or not be written.
    """
    root = layout.root
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        _try_to_make_a_file(root)
    except (FileExistsError, NotADirectoryError) as error:
        raise DataDirUnusable(
            f"data directory {root} is a file: choose a directory with --data-dir"
        ) from error
    except OSError as error:
        raise DataDirUnusable(
            f"data directory {root} cannot be written: {error.strerror}; "
            f"mend that, or choose another with --data-dir"
        ) from error


def has_no_room(layout: Layout) -> bool:
    """Whether the disk is as good as full: a server starts then too, and delivers its log."""
    disk = os.statvfs(layout.root)
    return disk.f_bavail * disk.f_frsize < ROOM_BYTES_MIN


def engine_password(layout: Layout) -> str:
    """The embedded engine's password, made at the first call.

    Durability: the file is written whole or not at all; one that is lost is simply made anew.
    """
    path = layout.clickhouse_password
    if not path.exists() or not path.read_bytes().strip():
        _replace(path, secrets.token_urlsafe(24) + "\n")
    return path.read_text(encoding="ascii").strip()


def note_server(layout: Layout, note: Mapping[str, Any]) -> None:
    """Write down what runs now, for the command line."""
    _replace(layout.server, json.dumps(note, indent=1) + "\n")


def forget_server(layout: Layout) -> None:
    """Nothing runs any more."""
    layout.server.unlink(missing_ok=True)


def noted_server(layout: Layout) -> dict[str, Any] | None:
    """The note of the server that runs, or of one that was killed before it could remove it."""
    try:
        note = json.loads(layout.server.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return note if isinstance(note, dict) else None


def holder(layout: Layout) -> int | None:
    """The pid of the server that holds the directory; None when there is none."""
    try:
        with layout.lock.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(file.read(32) or b"0")
    except (OSError, ValueError):
        return None
    return None


def _try_to_make_a_file(root: Path) -> None:
    try:
        tempfile.TemporaryFile(dir=root).close()
    except OSError as error:
        if error.errno not in NO_ROOM_ERRNOS:
            raise


def _lock(descriptor: int) -> None:
    # A holder of half a second is no server, but a command that looks whether there is one.
    for _ in range(LOCK_TRIES - 1):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOCK_SECONDS)
        else:
            return
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _write_over(descriptor: int, text: str) -> None:
    """Never cut short: a file that keeps its block can be written on a full disk."""
    with contextlib.suppress(OSError):  # the lock holds without a pid in it
        os.pwrite(descriptor, f"{text:<31}\n".encode(), 0)


def _replace(path: Path, text: str) -> None:
    # mkstemp makes it 0600; a reader sees the former file or the whole new one.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
