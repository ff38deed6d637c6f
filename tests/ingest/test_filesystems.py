"""Which file systems are warned of (F34)."""

from pathlib import Path

import pytest

from ingest.filesystems import kind_of, trouble_of

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:45 / /mnt/team rw shared:2 - nfs4 server:/team rw,vers=4.2
31 22 0:46 / /mnt/with\\040space rw - cifs //server/x rw
32 22 0:47 / /mnt/efs rw master:1 propagate_from:2 - fuse.s3fs s3fs rw
33 22 0:48 / /dev/shm rw - tmpfs tmpfs rw
34 30 8:2 / /mnt/team/local rw - xfs /dev/sdb rw
broken line
"""


@pytest.fixture
def mounts(tmp_path):
    path = tmp_path / "mountinfo"
    path.write_text(MOUNTS)
    return path


@pytest.mark.parametrize(
    ("path", "kind", "word"),
    [
        ("/srv/charon", "ext4", None),
        ("/mnt/team/charon/none/yet", "nfs4", "network"),
        ("/mnt/teammate", "ext4", None),
        ("/mnt/team/local/x", "xfs", None),
        ("/mnt/with space/x", "cifs", "network"),
        ("/mnt/efs", "fuse.s3fs", "network"),
        ("/dev/shm/x", "tmpfs", "memory"),
    ],
)
def test_network_and_memory_file_systems_are_told_from_disks(mounts, path, kind, word):

    assert kind_of(Path(path), mounts) == kind
    trouble = trouble_of(Path(path), mounts)
    assert (trouble is None) == (word is None)
    if word:
        assert word in trouble


def test_without_a_list_of_mounts_nothing_is_claimed(tmp_path):
    assert trouble_of(tmp_path, tmp_path / "none") is None
