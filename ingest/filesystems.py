"""What kind of file system the data directory is on: some break promises that a log rests on."""

from __future__ import annotations

import os
import re
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")

_NETWORK = re.compile(
    r"nfs\d?|cifs|smb\d?|smbfs|afs|ceph|lustre|gpfs|beegfs|9p|glusterfs"
    r"|fuse\.(sshfs|s3fs|gcsfuse|glusterfs|rclone|goofys|blobfuse2?|mount-s3|juicefs|cephfs)"
)
_MEMORY = re.compile(r"tmpfs|ramfs")


def trouble_of(path: Path, mounts: Path = MOUNTS) -> str | None:
    """Why the file system below a path is not one for the log; None when nothing speaks against it.

    Args:
        path: need not exist yet.
        mounts: the kernel's list of mounts, in the form of /proc/self/mountinfo.
    """
    kind = kind_of(path, mounts)
    if kind is None:
        return None
    if _NETWORK.fullmatch(kind):
        return (
            f"{kind} is a network file system: locks and syncs are not dependable there, and one "
            "stall of the network stops ingestion; use a local disk"
        )
    if _MEMORY.fullmatch(kind):
        return f"{kind} is memory: all data is gone after a restart of the machine; use a disk"
    return None


def kind_of(path: Path, mounts: Path = MOUNTS) -> str | None:
    """The type of the file system that holds a path; None where it cannot be told."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    wanted = os.path.realpath(path)
    best, kind = -1, None
    for line in lines:
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if len(fields) < 5 or not after:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
        inside = wanted == point or wanted.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= best:  # of two on one point the later one is seen
            best, kind = len(point), after.split(" ")[0]
    return kind
