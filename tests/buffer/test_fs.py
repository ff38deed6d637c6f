"""One suite for both file systems: what the fake promises is what the real one does."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from buffer.fs import (
    FileSystem,
    RealFileSystem,
    create_durably,
    is_no_room,
    make_dir_durably,
    write_all,
)
from tests.fakes.disk import Fail, FakeFileSystem, Short


@pytest.fixture(params=["real", "fake"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, Path]:
    fs: FileSystem = RealFileSystem() if request.param == "real" else FakeFileSystem()
    fs.make_dir(tmp_path)
    return fs, tmp_path


def test_what_is_written_is_read(place: tuple[FileSystem, Path]) -> None:
    fs, here = place
    fd = fs.create(here / "a")
    assert fs.pwritev(fd, [b"ab", b"", b"cde"], 0) == 5
    assert fs.pwritev(fd, [b"XY"], 3) == 2
    assert fs.pread(fd, 100, 1) == b"bcXY"
    assert fs.pread(fd, 2, 1) == b"bc"
    assert fs.pread(fd, 9, 50) == b""
    assert fs.size(fd) == fs.size_of(here / "a") == 5
    fs.truncate(fd, 2)
    assert fs.pread(fd, 100, 0) == b"ab"
    fs.fdatasync(fd)
    fs.close(fd)
    fd = fs.open_write(here / "a")
    fs.pwritev(fd, [b"Z"], 1)
    fs.close(fd)
    fd = fs.open_read(here / "a")
    assert fs.pread(fd, 100, 0) == b"aZ"
    fs.close(fd)


def test_creating_empties_a_former_file(place: tuple[FileSystem, Path]) -> None:
    fs, here = place
    for content in (b"long content", b"x"):
        fd = fs.create(here / "a")
        fs.pwritev(fd, [content], 0)
        fs.close(fd)
    assert fs.size_of(here / "a") == 1


def test_names_come_go_and_change(place: tuple[FileSystem, Path]) -> None:
    fs, here = place
    fs.close(create_durably(fs, here / "a", [b"1"]))
    fs.close(create_durably(fs, here / "b", [b"22"]))
    assert sorted(fs.list_dir(here)) == ["a", "b"]
    fs.rename(here / "b", here / "a")
    fs.fsync_dir(here)
    assert fs.list_dir(here) == ["a"]
    assert fs.size_of(here / "a") == 2
    assert fs.exists(here / "a")
    fs.unlink(here / "a")
    fs.unlink(here / "a")
    assert not fs.exists(here / "a")
    assert fs.size_of(here / "a") == 0
    assert fs.list_dir(here / "absent") == []
    with pytest.raises(FileNotFoundError):
        fs.open_read(here / "a")


def test_directories_are_made_listed_and_removed(place: tuple[FileSystem, Path]) -> None:
    fs, here = place
    fs.make_dir(here / "sub")
    fs.make_dir(here / "sub")
    assert fs.list_dir(here) == ["sub"]
    fs.close(fs.create(here / "sub" / "a"))
    with pytest.raises(OSError, match=r"not empty|Directory not empty"):
        fs.remove_dir(here / "sub")
    fs.unlink(here / "sub" / "a")
    fs.remove_dir(here / "sub")
    fs.remove_dir(here / "sub")
    assert fs.list_dir(here) == []


def test_a_lock_keeps_others_out_until_it_is_closed(place: tuple[FileSystem, Path]) -> None:
    fs, here = place
    lock = fs.lock(here / "lock")
    assert lock is not None
    assert fs.lock(here / "lock") is None
    fs.close(lock)
    again = fs.lock(here / "lock")
    assert again is not None
    fs.close(again)


def test_free_bytes_are_a_number(place: tuple[FileSystem, Path]) -> None:
    fs, here = place
    assert fs.free_bytes(here) > 0


def test_a_lock_goes_with_its_holder_and_is_not_inherited(tmp_path: Path) -> None:
    """kill -9 of the holder frees the lock at once, though a child that it started lives on."""
    program = (
        "import subprocess, sys, pathlib; from buffer.fs import RealFileSystem\n"
        f"assert RealFileSystem().lock(pathlib.Path({str(tmp_path / 'lock')!r})) is not None\n"
        "child = subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL)\n"
        "print(child.pid, flush=True); sys.stdin.read()\n"
    )
    fs = RealFileSystem()
    holder = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        child = int(holder.stdout.readline())
        assert fs.lock(tmp_path / "lock") is None
        assert (tmp_path / "lock").read_text() == str(holder.pid)
        holder.kill()
        holder.wait()
        lock = fs.lock(tmp_path / "lock")
        assert lock is not None
        assert (tmp_path / "lock").read_text() == str(os.getpid())
        fs.close(lock)
        os.kill(child, 9)
    finally:
        holder.kill()
        holder.communicate()


def test_a_real_full_file_is_no_room(tmp_path: Path) -> None:
    """RLIMIT_FSIZE makes a real short write, then EFBIG."""
    program = (
        "import resource, pathlib, signal\n"
        "from buffer.fs import RealFileSystem, write_all, is_no_room\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
        f"fs = RealFileSystem(); fd = fs.create(pathlib.Path({str(tmp_path / 'a')!r}))\n"
        "for offset in (0, 10_000):\n"
        "    try: write_all(fs, fd, [bytes(12_000)], offset)\n"
        "    except OSError as error: assert is_no_room(error), error\n"
        "    else: raise SystemExit('it fitted')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_file_is_made_in_full_or_not_at_all() -> None:
    here = Path("/here")
    for call in range(1, 6):
        for fault in (Fail(errno.EIO), Short(3)):
            fs = FakeFileSystem()
            fs.make_dir(here)
            fs.fail_next(fault, after=call - 1)
            with contextlib.suppress(OSError):
                fs.close(create_durably(fs, here / "a", [b"whole", b"file"]))
            if fs.exists(here / "a"):
                assert fs.content(here / "a") == b"wholefile"
            assert not fs.exists(here / "a.tmp")
            assert fs.open_count == 0


def test_a_short_write_is_no_room() -> None:
    fs = FakeFileSystem()
    fs.make_dir(Path("/here"))
    fd = fs.create(Path("/here/a"))
    fs.fail_next(Short(3))
    with pytest.raises(OSError, match="only 3 of 5") as caught:
        write_all(fs, fd, [b"whole"], 0)
    assert is_no_room(caught.value)


def test_a_directory_is_made_with_its_parents_and_every_new_name_is_synced(tmp_path: Path) -> None:
    class Watched(RealFileSystem):
        synced: list[Path]

        def fsync_dir(self, path: Path) -> None:
            super().fsync_dir(path)
            self.synced.append(path)

    fs = Watched()
    fs.synced = []
    make_dir_durably(fs, tmp_path / "data" / "log" / "shard")
    assert fs.synced == [tmp_path, tmp_path / "data", tmp_path / "data" / "log"]
    fs.synced.clear()
    make_dir_durably(fs, tmp_path / "data" / "log")
    assert fs.synced == [tmp_path / "data"], "whoever made it may not have come to sync it"
