"""`charon quarantine …`: rows that were accepted and could not be delivered, and damaged bytes."""

import asyncio
import base64
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli_options import AsJson, DataDir
from ingest.cli_output import counted, print_json, print_table

if TYPE_CHECKING:
    from buffer.fs import FileSystem
    from buffer.quarantine import Entry
    from buffer.replay import Replayed

quarantine = typer.Typer(
    no_args_is_help=True,
    help="Rows that were accepted and could not be delivered. Works beside a running server.",
)

Names = Annotated[
    list[str] | None, typer.Argument(help="Names of entries, as `ls` shows them, or beginnings.")
]
All = Annotated[bool, typer.Option("--all", help="Every entry.")]


@quarantine.command("ls")
def list_entries(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """List the entries, with the reason of each."""
    fs, paths = _entries(data_dir)
    found = [_summary(path, _read(fs, path)) for path in paths]
    if as_json:
        print_json(found)
        return
    print_table(
        ["entry", "rows", "bytes", "set aside", "code", "reason"],
        [
            (
                *(one["entry"], one["rows"], one["bytes"]),
                *(one["quarantined_at"], one["code"] or "", one["reason"]),
            )
            for one in found
        ],
        numbers=[1, 2],
    )
    rows = sum(one["rows"] for one in found)
    print(f"{counted(len(found), 'entry', 'entries')}, {counted(rows, 'row')}")


@quarantine.command("show")
def show(
    name: Annotated[str, typer.Argument(help="An entry's name, or its beginning.")],
    limit: Annotated[int, typer.Option(min=1, help="Rows at most.")] = 20,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Show one entry: why it is here, whose it is, and its rows."""
    from ingest.cli_access import NotThere

    fs, paths = _entries(data_dir, [name])
    [path] = paths[:1]
    entry = _read(fs, path)
    if entry is None:
        raise NotThere(f"{path} is damaged, or has just gone")
    rows = list(_rows(entry, limit))
    value = {**_summary(path, entry), "header": entry.header, "content": rows}
    if entry.raw:
        value["raw_base64"] = base64.b64encode(entry.raw).decode()
    if as_json:
        print_json(value)
        return
    for key in ("entry", "reason", "code", "quarantined_at", "rows", "bytes"):
        print(f"{key}: {value[key]}")
    for frame in entry.header.get("frames", ()):
        print(
            f"LSN {frame['lsn']}: tenant {frame['tenant']}, project {frame['project']}, "
            f"run {frame['run_id']}, {frame['rows']} rows"
        )
    for row in rows:
        print(json.dumps(row, ensure_ascii=False))
    if value["rows"] > len(rows):
        print(f"and {value['rows'] - len(rows)} more rows: --limit, or `charon quarantine export`")


@quarantine.command("replay")
def replay(
    names: Names = None,
    all_entries: All = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Deliver entries anew, after what was wrong with them or with the table is mended.

    Their rows become a shard of their own, durably, and leave the quarantine; a running server
    takes the shard up after some ten seconds, any other at its start. Rows that are refused again
    come back. Damage cannot be replayed.
    """
    from buffer.replay import make_shard, replaying
    from ingest.cli_log_access import log_root
    from ingest.cli_progress import progress_bar
    from ingest.parts import buffer_options
    from ingest.settings import load_settings

    settings = load_settings(data_dir=data_dir)
    root = log_root(settings)
    fs, _ = _entries(data_dir, names, all_entries=all_entries)
    with replaying(fs, root):
        # Again, now that no other replay can take them away.
        fs, paths = _entries(data_dir, names, all_entries=all_entries)
        taken: list[str] = []
        with progress_bar("writing", len(paths), is_quiet=as_json) as reached:
            frames = _frames(fs, paths, taken, reached)
            work = make_shard(fs, root, frames, buffer_options(settings), take_out=taken)
            made = asyncio.run(work)
    left = [path.name for path in paths if path.name not in taken]
    if as_json:
        print_json({**made._asdict(), "shard": made.shard or None, "left": left})
        return
    if made.shard:
        print(f"{made.rows} rows of {len(taken)} entries are to be sent by shard {made.shard}")
    for name in left:
        print(f"{name} stays: it holds damaged bytes and no rows, or cannot be read")


@quarantine.command("export")
def export(
    names: Names = None,
    all_entries: All = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file.  \\[default: standard output]")
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Write entries as JSON lines: a line a row, with its table and reason; damage as base64.

    Nothing leaves the quarantine by this.
    """
    from ingest.cli_progress import progress_bar

    fs, paths = _entries(data_dir, names, all_entries=all_entries)
    lines = 0
    file = sys.stdout if output is None else output.open("x", encoding="utf-8")
    try:
        with progress_bar("exporting", len(paths), is_quiet=output is None) as reached:
            for done, path in enumerate(paths, 1):
                for line in _lines(path, _read(fs, path)):
                    print(json.dumps(line, ensure_ascii=False), file=file)
                    lines += 1
                reached(done)
    finally:
        if output is not None:
            file.close()
    if output is None:
        return
    if as_json:
        print_json({"lines": lines, "entries": len(paths), "output": str(output)})
    else:
        print(f"{lines} lines of {len(paths)} entries in {output}")


def _entries(
    data_dir: Any,  # noqa: ANN401 - see load_settings
    names: list[str] | None = None,
    *,
    all_entries: bool = True,
) -> "tuple[FileSystem, list[Path]]":
    """The files of the entries that were asked for."""
    from buffer.fs import RealFileSystem
    from buffer.quarantine import SUFFIX
    from buffer.shard import QUARANTINE_NAME, list_shards
    from ingest.cli_access import NotThere
    from ingest.cli_log_access import log_root
    from ingest.settings import load_settings

    fs = RealFileSystem()
    root = log_root(load_settings(data_dir=data_dir))
    paths = [
        shard / QUARANTINE_NAME / name
        for shard in list_shards(fs, root)
        for name in sorted(fs.list_dir(shard / QUARANTINE_NAME))
        if name.endswith(SUFFIX)
    ]
    if names:
        for name in names:
            if not any(path.name.startswith(name) for path in paths):
                raise NotThere(f"there is no entry {name}: see `charon quarantine ls`")
        paths = [path for path in paths if path.name.startswith(tuple(names))]
    elif not all_entries:
        raise NotThere("name entries, as `charon quarantine ls` shows them, or give --all")
    return fs, paths


def _read(fs: "FileSystem", path: Path) -> "Entry | None":
    """None where it is damaged, or has gone since it was listed."""
    from buffer.errors import Damaged
    from buffer.quarantine import read_entry

    try:
        return read_entry(fs, path)
    except (Damaged, FileNotFoundError):
        return None


def _summary(path: Path, entry: "Entry | None") -> dict[str, Any]:
    from ingest.cli_log_access import instant

    value = {
        "entry": path.name,
        "shard": path.parent.parent.name,
        "rows": 0,
        "bytes": path.stat().st_size if path.exists() else 0,
        "table": None,
        "reason": "the entry is damaged",
        "code": None,
        "quarantined_at": None,
    }
    if entry is not None:
        value |= {
            "rows": sum(chunks.row_count for chunks in entry.chunks),
            "table": entry.header.get("table"),
            "reason": entry.header.get("reason"),
            "code": entry.header.get("code"),
            "quarantined_at": instant(entry.header["quarantined_at_ns"]),
        }
    return value


def _rows(entry: "Entry", limit: int | None = None) -> Iterator[dict[str, object]]:
    """As many as can be read: a payload that is malformed is why some are here."""
    from ingest.cli_log_access import row_json
    from schema.block import rows_of
    from schema.errors import MalformedChunks

    left = limit
    for chunks in entry.chunks:
        try:
            for row in rows_of(chunks):
                if left is not None:
                    if left == 0:
                        return
                    left -= 1
                yield row_json(row)
        except MalformedChunks:
            continue


def _lines(path: Path, entry: "Entry | None") -> Iterator[dict[str, object]]:
    summary = _summary(path, entry)
    known = {name: summary[name] for name in ("entry", "table", "reason", "code")}
    if entry is None:
        yield known
        return
    if entry.raw:
        place = {name: entry.header[name] for name in ("segment", "offset", "length")}
        yield {**known, **place, "raw_base64": base64.b64encode(entry.raw).decode()}
    for row in _rows(entry):
        yield {**known, "row": row}


def _frames(
    fs: "FileSystem", paths: list[Path], taken: list[str], reached: Callable[[int], None]
) -> "Iterator[Replayed]":
    """The entries' frames; `taken` gets the names of those that were read whole."""
    from buffer.replay import Replayed

    for done, path in enumerate(paths, 1):
        reached(done)
        entry = _read(fs, path)
        if entry is None or not entry.chunks:
            continue
        for frame, chunks in zip(entry.header["frames"], entry.chunks, strict=True):
            yield Replayed(chunks, frame["received_at_ns"])
        taken.append(path.name)
