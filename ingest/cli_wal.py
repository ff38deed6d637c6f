"""`charon wal …`: looking into the write-ahead log of a server that runs, or of none."""

import asyncio
import itertools
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli_options import AsJson, DataDir
from ingest.cli_output import counted, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from buffer.fs import FileSystem
    from buffer.inspection import Found, SegmentLook, ShardLook
    from buffer.replay import Replayed

wal = typer.Typer(
    no_args_is_help=True,
    help="The write-ahead log. Reads alone, beside a running server too; `replay` adds a shard.",
)

Shard = Annotated[str | None, typer.Option(help="Beginning of a shard's id.  \\[default: all]")]
Stream = Annotated[str | None, typer.Option(help="metrics, logs, data or files.  \\[default: all]")]
FromLsn = Annotated[int | None, typer.Option("--from", help="First LSN.  \\[default: the oldest]")]
ToLsn = Annotated[int | None, typer.Option("--to", help="Last LSN.  \\[default: the newest]")]


@wal.command("ls")
def list_segments(shard: Shard = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """List the files of the log, oldest first."""
    from buffer.inspection import end_of
    from ingest.cli_log_access import instant, is_held

    fs, shards = _open(data_dir, shard)
    found: list[dict[str, Any]] = [
        {
            "shard": look.name,
            "segment": segment.path.name,
            "first_lsn": segment.first_lsn,
            "state": "active"
            if segment.next_lsn is None and is_held(look)
            else segment.state.value,
            "bytes": segment.size,
            "good_bytes": segment.good_bytes,
            "created_at": segment.header and instant(segment.header.created_at_ns),
            "is_delivered": end_of(fs, segment) <= look.delivered,
        }
        for look in shards
        for segment in look.segments
    ]
    if as_json:
        print_json(found)
        return
    columns = ["shard", "segment", "first LSN", "state", "bytes", "made", "delivered"]
    print_table(
        columns,
        [
            (
                *(one["shard"][:8], one["segment"], one["first_lsn"], one["state"], one["bytes"]),
                *(one["created_at"], "yes" if one["is_delivered"] else "no"),
            )
            for one in found
        ],
        numbers=[2, 4],
    )


@wal.command("stat")
def show_places(shard: Shard = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show each shard: who holds it, how far each table is, what waits beside it."""
    fs, shards = _open(data_dir, shard)
    found = [_statistics(fs, look) for look in shards]
    if as_json:
        print_json(found)
        return
    for one in found:
        held = f"held by pid {one['pid']}" if one["is_held"] else "held by nobody"
        print(
            f"shard {one['shard']}, {held}: {counted(one['segments'], 'segment')}, "
            f"{one['bytes']} bytes, {_lsns(one['first_lsn'], one['end_lsn'])}; "
            f"quarantine {counted(one['quarantine'], 'entry', 'entries')}; "
            f"{counted(one['resend'], 'block')} asked to be sent again"
        )
        if one["trouble"]:
            print(f"  {one['trouble']}")
        if one["tables"]:
            print_table(
                ["stream", "delivered below", "frames behind, at most", "pending", "blocks"],
                [
                    (
                        name,
                        table["delivered_lsn"],
                        max(one["end_lsn"] - table["delivered_lsn"], 0),
                        _pending(table["pending"]),
                        table["next_number"] - 1,
                    )
                    for name, table in one["tables"].items()
                ],
                numbers=[1, 2, 4],
            )


@wal.command("show")
def show_frames(
    shard: Shard = None,
    first: FromLsn = None,
    last: ToLsn = None,
    stream: Stream = None,
    limit: Annotated[int, typer.Option(min=1, help="Frames at most.")] = 100,
    rows: Annotated[
        bool, typer.Option("--rows", help="Print the rows too, as JSON lines.")
    ] = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Show frames of the log, and what is wrong between them."""
    import json

    from ingest.cli_log_access import frame_json, row_json
    from schema.block import rows_of

    fs, shards = _open(data_dir, shard)
    items = itertools.islice(_items(fs, shards, first, last, stream), limit)
    found = []
    for look, item in items:
        value = frame_json(look.name, item)
        if rows and item.frame is not None and item.fault is None:
            value["content"] = [row_json(row) for row in rows_of(item.frame.chunks)]
        found.append(value)
    if as_json:
        print_json(found)
    elif rows:
        for value in found:
            print(json.dumps(value, ensure_ascii=False))
    else:
        columns = ["shard", "LSN", "stream", "tenant", "project", "run", "rows", "bytes"]
        print_table(
            [*columns, "received", "fault"],
            [
                (
                    value["shard"][:8],
                    *(value.get(name) for name in ("lsn", "stream", "tenant", "project")),
                    *(value.get(name) for name in ("run_id", "rows", "bytes", "received_at")),
                    _fault(value),
                )
                for value in found
            ],
            numbers=[1, 5, 6, 7],
        )


@wal.command("verify")
def verify(shard: Shard = None, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Read everything and check every checksum. Exit status 1 when something is damaged.

    An unfinished end is no damage: nobody was told that it is stored.
    """
    from ingest.cli_log_access import frame_json, total_of
    from ingest.cli_progress import progress_bar

    fs, shards = _open(data_dir, shard)
    total = total_of(segment.good_bytes for look in shards for segment in look.segments)
    frames = rows = 0
    faults: list[dict[str, Any]] = [
        {"shard": look.name, "fault": look.trouble, "is_tail": False}
        for look in shards
        if look.trouble is not None
    ]
    with progress_bar("checking", total, is_quiet=as_json) as reached:
        for look, item in _items(fs, shards, None, None, None, reached):
            if item.fault is not None:
                faults.append(frame_json(look.name, item))
            elif item.frame is not None:
                frames += 1
                rows += item.frame.chunks.row_count
    damage = [one for one in faults if not one["is_tail"]]
    segments = sum(len(look.segments) for look in shards)
    result = {
        "shards": len(shards),
        "segments": segments,
        "bytes": total,
        "frames": frames,
        "rows": rows,
        "damage": damage,
        "tails": [one for one in faults if one["is_tail"]],
    }
    if as_json:
        print_json(result)
    else:
        print(
            f"{counted(len(shards), 'shard')}, {counted(segments, 'segment')}, "
            f"{total} bytes: "
            f"{frames} frames with {rows} rows are whole, {len(damage)} places are damaged"
        )
        for one in faults:
            print(f"{one['shard'][:8]} {one.get('segment', '')}: {_fault(one)}")
    if damage:
        sys.exit(1)


@wal.command("replay")
def replay(
    shard: Annotated[str, typer.Option(help="Beginning of the shard's id.")],
    first: FromLsn = None,
    last: ToLsn = None,
    stream: Stream = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be sent, and send nothing.")
    ] = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Send delivered frames once more, for a table that has lost its rows.

    They become a shard of their own, which a running server takes up after some ten seconds, and
    any other at its start. Frames that are not delivered yet are left out: they are delivered
    anyhow. Rows that the table still has collapse with their repeats; a materialized view counts
    them twice. For blocks that are missing, `charon reconcile --resend` is exact.
    """
    from buffer.replay import make_shard, replaying
    from ingest.cli_log_access import log_root
    from ingest.cli_progress import progress_bar
    from ingest.parts import buffer_options
    from ingest.settings import load_settings

    settings = load_settings(data_dir=data_dir)
    fs, shards = _open(data_dir, shard)
    skipped: dict[str, int] = {"undelivered": 0, "damaged": 0}
    total = sum(segment.good_bytes for look in shards for segment in look.segments)
    with progress_bar("reading", total, is_quiet=as_json) as reached:
        items = _items(fs, shards, first, last, stream, reached)
        frames = _delivered(items, skipped)
        if dry_run:
            counts = [one.chunks.row_count for one in frames]
            result: dict[str, Any] = {"shard": None, "frames": len(counts), "rows": sum(counts)}
        else:
            root = log_root(settings)
            with replaying(fs, root):
                made = asyncio.run(make_shard(fs, root, frames, buffer_options(settings)))
            result = {**made._asdict(), "shard": made.shard or None}
    result |= {"left_out": skipped}
    if as_json:
        print_json(result)
        return
    verb = "would be sent" if dry_run else "are to be sent"
    where = f" by the new shard {result['shard']}" if result["shard"] else ""
    print(f"{result['frames']} frames with {result['rows']} rows {verb} again{where}")
    for why, count in skipped.items():
        if count:
            print(f"{count} left out: {why}")


def _open(data_dir: Any, shard: str | None) -> "tuple[FileSystem, list[ShardLook]]":  # noqa: ANN401
    from buffer.fs import RealFileSystem
    from ingest.cli_log_access import chosen_shards, log_root
    from ingest.settings import load_settings

    fs = RealFileSystem()
    return fs, chosen_shards(fs, log_root(load_settings(data_dir=data_dir)), shard)


def _items(
    fs: "FileSystem",
    shards: "list[ShardLook]",
    first: int | None,
    last: int | None,
    stream: str | None,
    reached: "Callable[[int], None] | None" = None,
) -> "Iterator[tuple[ShardLook, Found]]":
    from buffer.inspection import frames_of
    from buffer.lsn import Lsn
    from ingest.cli_log_access import stream_kind

    kind = stream_kind(stream)
    done = 0
    for look in shards:
        for segment in look.segments:
            if _is_passed(segment, first, last):
                done += segment.good_bytes
                continue
            start = done
            for item in frames_of(
                fs,
                segment,
                first=None if first is None else Lsn(first),
                last=None if last is None else Lsn(last),
                kind=kind,
                progress=reached and partial(_shifted, reached, start),
            ):
                yield look, item
            done += segment.good_bytes


def _shifted(reached: "Callable[[int], None]", start: int, at: int) -> None:
    reached(start + at)


def _is_passed(segment: "SegmentLook", first: int | None, last: int | None) -> bool:
    is_before = first is not None and segment.next_lsn is not None and segment.next_lsn <= first
    return is_before or (last is not None and segment.first_lsn > last)


def _delivered(
    items: "Iterator[tuple[ShardLook, Found]]", skipped: dict[str, int]
) -> "Iterator[Replayed]":
    from buffer.replay import Replayed

    for look, item in items:
        frame = item.frame
        if frame is None or item.fault is not None:
            skipped["damaged"] += not item.is_tail
        elif look.tables is None or frame.lsn >= look.tables[frame.chunks.kind].delivered:
            skipped["undelivered"] += 1
        else:
            yield Replayed(
                frame.chunks, frame.received_at_ns, frame.digest, frame.accepted, frame.rejected
            )


def _statistics(fs: "FileSystem", look: "ShardLook") -> dict[str, Any]:
    from buffer.inspection import end_of
    from buffer.resend import requests_of
    from buffer.shard import QUARANTINE_NAME, RESEND_NAME
    from ingest.cli_log_access import is_held, table_json

    segments = look.segments
    return {
        "shard": look.name,
        "pid": look.pid,
        "is_held": is_held(look),
        "segments": len(segments),
        "bytes": sum(segment.size for segment in segments),
        "first_lsn": segments[0].first_lsn if segments else look.delivered,
        "end_lsn": end_of(fs, segments[-1]) if segments else look.delivered,
        "tables": look.tables
        and {kind.name.lower(): table_json(state) for kind, state in look.tables.items()},
        "quarantine": len(fs.list_dir(look.directory / QUARANTINE_NAME)),
        "resend": len(requests_of(fs, look.directory / RESEND_NAME)),
        "trouble": look.trouble,
    }


def _pending(pending: dict[str, Any] | None) -> str:
    if pending is None:
        return "none"
    return f"LSN {pending['first']} to {pending['last']}, {pending['rows']} rows"


def _lsns(first: int, end: int) -> str:
    return f"LSN {first} to {end - 1}" if end > first else "no frames"


def _fault(value: dict[str, Any]) -> str:
    fault = value.get("fault")
    if fault is None:
        return ""
    place = f" at byte {value['offset']}, {value['bytes']} bytes" if "offset" in value else ""
    return f"{'unfinished end' if value['is_tail'] else 'DAMAGE'}: {fault}{place}"
