"""How commands reach the logs of a data directory, and what they make of what they find there."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest.cli_access import NotThere, layout_of

if TYPE_CHECKING:
    from buffer.checkpoint import TableState
    from buffer.fs import FileSystem
    from buffer.inspection import Found, ShardLook
    from ingest.settings import Settings
    from schema.streams import StreamKind


def log_root(settings: "Settings") -> Path:
    """The directory of all shards.

    Raises:
        NotThere: there is none.
    """
    root = layout_of(settings).log
    if not root.is_dir():
        raise NotThere(
            f"there is no log in {root.parent} yet: start the server, or say where the data is "
            f"with --data-dir"
        )
    return root


def chosen_shards(fs: "FileSystem", root: Path, prefix: str | None) -> "list[ShardLook]":
    """All shards, or those whose id begins so.

    Raises:
        NotThere: none does.
    """
    from buffer.inspection import look_at_all

    shards = [one for one in look_at_all(fs, root) if one.name.startswith(prefix or "")]
    if prefix and not shards:
        raise NotThere(f"no shard in {root} begins with {prefix}: see `charon wal ls`")
    return shards


def stream_kind(name: str | None) -> "StreamKind | None":
    """The stream of a name like `metrics` or `mlop_metrics`.

    Raises:
        NotThere: there is no such stream.
    """
    from schema.streams import STREAMS

    if name is None:
        return None
    names = {kind.name.lower(): kind for kind in STREAMS}
    kind = names.get(name.lower().removeprefix("mlop_"))
    if kind is None:
        raise NotThere(f"there is no stream {name}: {', '.join(names)}")
    return kind


def is_held(shard: "ShardLook") -> bool:
    """Whether a process holds the shard's lock, by what the kernel says: it is not touched."""
    from buffer.shard import LOCK_NAME

    try:
        inode = (shard.directory / LOCK_NAME).stat().st_ino
        locks = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return shard.pid is not None and Path(f"/proc/{shard.pid}").exists()
    # 1: FLOCK  ADVISORY  WRITE 4711 08:01:131090 0 EOF; the device's number is not always stat's.
    return any(
        " FLOCK " in line and line.split()[-3].rpartition(":")[2] == str(inode) for line in locks
    )


def table_json(state: "TableState") -> dict[str, Any]:
    """A table's place in a shard."""
    pending = state.pending
    return {
        "delivered_lsn": state.delivered,
        "next_number": state.next_number,
        "pending": None
        if pending is None
        else {**asdict(pending), "number": f"{pending.number:016x}"},
    }


def frame_json(shard: str, found: "Found") -> dict[str, Any]:
    """A frame, or what is wrong at its place, without its rows."""
    value: dict[str, Any] = {
        "shard": shard,
        "segment": found.segment.path.name,
        "offset": found.offset,
        "bytes": found.length,
    }
    frame = found.frame
    if frame is not None:
        value |= {
            "lsn": frame.lsn,
            "stream": frame.chunks.kind.name.lower(),
            "tenant": frame.chunks.tenant,
            "project": frame.chunks.project,
            "run_id": frame.chunks.run_id,
            "rows": frame.chunks.row_count,
            "received_at": instant(frame.received_at_ns),
            "digest": frame.digest.hex(),
            "accepted": frame.accepted,
            "rejected": frame.rejected,
        }
    if found.fault is not None:
        value |= {"fault": found.fault, "is_tail": found.is_tail}
    return value


def row_json(row: Mapping[str, object]) -> dict[str, object]:
    """A row for JSON, which has no NaN and no infinity: they are text, as in `charon sql`."""
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }


def instant(epoch_ns: int) -> str:
    """A stamp of ours as ISO 8601 in UTC."""
    return datetime.fromtimestamp(epoch_ns / 1e9, UTC).isoformat(timespec="milliseconds")


def total_of(numbers: Iterable[int]) -> int:
    """For bars: never 0."""
    return max(sum(numbers), 1)
