"""The data directory on a disk without a free byte: a server that cannot start never drains it."""

import contextlib
import os
import subprocess

import pytest

from ingest.data_dir import (
    DataDirLock,
    DataDirUnusable,
    has_no_room,
    holder,
    note_server,
    noted_server,
)
from ingest.layout import Layout


@pytest.fixture
def full_disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k,mode=700", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting is refused")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place):
    with (place / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_a_directory_on_a_full_disk_is_locked_with_the_pid_of_its_holder(full_disk):
    layout = Layout(full_disk / "data")
    DataDirLock.take(layout).release()
    fill(full_disk)
    assert has_no_room(layout)
    lock = DataDirLock.take(layout)
    assert not lock.was_killed
    assert holder(layout) == os.getpid()
    with pytest.raises(DataDirUnusable, match=str(os.getpid())):
        DataDirLock.take(layout)
    lock.release()
    assert holder(layout) is None


def test_a_holder_that_let_go_is_told_from_one_that_was_killed(tmp_path):
    layout = Layout(tmp_path / "data")
    lock = DataDirLock.take(layout)
    os.close(lock._descriptor)  # as its death would
    killed = DataDirLock.take(layout)
    assert killed.was_killed
    killed.release()
    assert not DataDirLock.take(layout).was_killed


def test_a_note_that_finds_no_room_leaves_no_file_half_made(full_disk):
    layout = Layout(full_disk / "data")
    DataDirLock.take(layout).release()
    fill(full_disk)
    with pytest.raises(OSError, match="No space left"):
        note_server(layout, {"pid": 1})
    assert noted_server(layout) is None
    assert {path.name for path in layout.root.iterdir()} == {"server.lock"}
    (full_disk / "filler").unlink()
    note_server(layout, {"pid": 1})
    assert noted_server(layout) == {"pid": 1}
