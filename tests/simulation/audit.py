"""In the end: acknowledged = stored once, refused = not stored, the rest explained."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from buffer.fs import TEMPORARY_SUFFIX
from buffer.quarantine import read_entry
from buffer.shard import list_shards
from schema.block import rows_of
from tests.simulation.clickhouse import ID_COLUMN, Token
from tests.simulation.machine import ROOT, entry_paths

if TYPE_CHECKING:
    from schema.streams import StreamKind
    from tests.simulation.clients import Request
    from tests.simulation.world import World


def audit(world: World) -> None:
    """Compares what clients were told with what is stored and what is set aside."""
    aside, damages = set_aside(world)
    for kind, table in world.server.tables.items():
        stored: dict[int, Counter[str]] = {}
        late: set[int] = set()
        # Without a column `batch`: at least once.
        is_once = table.has_batch
        for part in table.parts:
            shard = Token.parse(part.token).shard
            for row in part.rows:
                stored.setdefault(row, Counter())[shard] += 1
            if part.is_late or not is_once:
                late.update(part.rows)
        # Explained: a power cut of the server took them, and by its own words nothing else.
        rows_aside = aside.get(kind, set()) | world.server.lost_rows.get(kind, set())
        for request in world.requests:
            _audit_request(world, request, kind, stored, late, rows_aside)
        known = {row for request in world.requests for row in request.rows.get(kind, ())}
        for row in sorted((stored.keys() | rows_aside) - known):
            world.problems.append(f"{kind.name} row {row} was never sent")
        if is_once and not world.server.has_lost_power:
            _audit_view(world, kind, stored, late)
    _audit_reasons(world, aside, damages)


def _audit_request(
    world: World,
    request: Request,
    kind: StreamKind,
    stored: dict[int, Counter[str]],
    late: set[int],
    aside: set[int],
) -> None:
    rows = request.rows.get(kind, [])
    there = [row for row in rows if row in stored or row in aside]
    name = f"request {request.number} {[one.told.value for one in request.tries]} {kind.name}"
    digest = request.submission.digest
    if request.is_acknowledged and len(there) < len(rows):
        if (digest, int(kind)) in world.rot.lost_frames:
            world.rot.happened["rows_lost_to_rot"] = len(rows) - len(there)
        else:
            gone = sorted(set(rows) - set(there))
            world.problems.append(f"{name}: acknowledged, and rows {gone} are lost")
    elif there and not request.shards:
        world.problems.append(f"{name}: refused, and rows {there} are stored")
    elif 0 < len(there) < len(rows) and not any(d == digest for d, _ in world.rot.lost_frames):
        world.problems.append(f"{name}: stored by halves, {there} of {rows}")
    for row in there:
        for shard, count in stored.get(row, Counter()).items():
            if shard not in request.shards:
                world.problems.append(f"{name}: row {row} is in a shard that it was not sent to")
            if world.server.has_lost_power:
                continue  # it may have lost the token of what it kept
            if count > 1 and row not in late and world.scenario.repeats_are_remembered:
                world.problems.append(f"{name}: row {row} is stored {count} times by {shard[:8]}")
            tries = sum(one.shard == shard for one in request.tries)
            if count > tries and row not in late and not world.may_double:
                world.problems.append(f"{name}: row {row} stored {count} times, tried {tries}")


def _audit_view(
    world: World, kind: StreamKind, stored: dict[int, Counter[str]], late: set[int]
) -> None:
    """A view has no row more often than its table."""
    for row, count in Counter(row for row, _ in world.server.tables[kind].view_rows).items():
        if count > sum(stored.get(row, Counter()).values()) and row not in late:
            world.problems.append(f"{kind.name} row {row}: {count} times in the view")


def _audit_reasons(world: World, aside: dict[StreamKind, set[int]], damages: int) -> None:
    """What is set aside was refused by the table, or was hit by rot."""
    unexplained = sorted(set().union(*aside.values()) - world.server.refused_bad)
    if unexplained:
        world.problems.append(f"rows {unexplained} are in quarantine without a reason")
    if "rows_lost_to_rot" in world.rot.happened and not damages:
        world.problems.append("rows were lost to rot, and nothing says so")
    if damages and "rotten_bytes" not in world.rot.happened:
        world.problems.append(f"{damages} damaged ranges, and the disk was sound")


def set_aside(world: World) -> tuple[dict[StreamKind, set[int]], int]:
    """The rows in all quarantines, and the number of damaged ranges."""
    rows: dict[StreamKind, set[int]] = {}
    damages = 0
    entries = [read_entry(world.disk, path) for path in entry_paths(world.disk)]
    for entry in (*entries, *world.taken_out):
        damages += not entry.chunks
        for chunks in entry.chunks:
            column = ID_COLUMN[chunks.kind]
            ids = {int(float(str(row[column]))) for row in rows_of(chunks)}
            rows.setdefault(chunks.kind, set()).update(ids)
    return rows, damages


def audit_files(world: World) -> None:
    """Nothing is left half-made, and nothing open."""
    for directory in list_shards(world.disk, ROOT):
        names = world.disk.list_dir(directory)
        half = [name for name in names if name.endswith(TEMPORARY_SUFFIX)]
        if half and "checkpoint" in names and "unlink_eio" not in world.disk.injected:
            world.problems.append(f"half-made files are left: {half}")
    if left := world.disk.open_paths():
        world.problems.append(f"open after all have stopped: {left}")
