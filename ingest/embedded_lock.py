"""A lock of our own on the engine's path: chDB says only "code 36" when the path is taken."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LOCK_FILE = "charon.lock"


class PathTaken(Exception):
    """Another process serves this path."""


class PathLock:
    """Held from construction to `release`, or until the process ends, however it ends."""

    def __init__(self, path: Path) -> None:
        """Takes the lock.

        Raises:
            PathTaken: another process holds it; the message names path and pid.
        """
        path.mkdir(parents=True, exist_ok=True)
        file = path / LOCK_FILE
        self._descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._descriptor, 32, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise PathTaken(
                f"the embedded ClickHouse at {path} is in use by process {holder or 'unknown'}: "
                f"stop that process, or choose another data directory"
            ) from error
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Gives the lock back; the file stays: removing it would race with the next holder."""
        with suppress(OSError):
            os.close(self._descriptor)
