"""Sending a block again that the server confirmed and does not have.

A request is a file in the shard's directory ``resend``, named by the block, made by
`charon reconcile --resend` and worked off by the worker that holds the shard: it alone reads the
log without a race. The block goes under its own number, so that it can be told whether it is there,
and under a new generation of its token, because the server may know the former one. The file goes
when the block is stored, or when it cannot be sent any more; a kill in between finds the file
again, asks for the block, and goes on.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import structlog

from buffer.batch import RowSpan, names_of, query_id_of
from buffer.checkpoint import Pending
from buffer.cursor import reread
from buffer.fs import TEMPORARY_SUFFIX, create_durably
from buffer.journal import Delivered
from buffer.lsn import Lsn
from buffer.sink import SinkError
from schema.chcodes import ErrorClass
from schema.ids import BlockNumber
from schema.streams import STREAMS, StreamKind

if TYPE_CHECKING:
    from pathlib import Path

    from buffer.frames import Frames
    from buffer.fs import FileSystem
    from buffer.surroundings import ShardParts, Surroundings

_log = structlog.get_logger()

SUFFIX = ".json"
REQUESTS_MAX = 10_000
"""In one shard; more are left for the next look."""

_HOPELESS = frozenset({ErrorClass.ROWS, ErrorClass.OURS})


@dataclass(frozen=True, slots=True)
class ResendRequest:
    """One block to be sent again.

    Attributes:
        delivered: the block as the journal has it, with the generation to send it under.
        stored_rows: how many of its rows were there when it was asked for; more are success.
        is_tried: it may have been sent under this generation.
    """

    delivered: Delivered
    stored_rows: int
    is_tried: bool = False


def ask(fs: FileSystem, directory: Path, delivered: Delivered, stored_rows: int) -> bool:
    """Makes a request in a shard's directory ``resend``; false when it is there already. Blocking.

    Raises:
        OSError: it could not be made.

    Durability: it survives a power cut once this returns.
    """
    path = _path(directory, delivered)
    if fs.exists(path):
        return False
    fs.make_dir(directory)
    fs.fsync_dir(directory.parent)
    request = ResendRequest(replace(delivered, generation=delivered.generation + 1), stored_rows)
    _write(fs, path, request)
    return True


def requests_of(fs: FileSystem, directory: Path) -> list[ResendRequest]:
    """The requests that are waiting; what is no request of ours is left where it is. Blocking."""
    found = (_read(fs, directory / name) for name in sorted(fs.list_dir(directory))[:REQUESTS_MAX])
    return [request for request in found if request is not None]


class Resender:
    """Works off the requests of one shard. Used by one task."""

    def __init__(
        self, parts: ShardParts, around: Surroundings, fs: FileSystem, directory: Path
    ) -> None:
        """``directory`` is the shard's ``resend``."""
        self._parts = parts
        self._around = around
        self._fs = fs
        self._directory = directory

    async def work_off(self) -> list[ResendRequest]:
        """Tries every request once; returns those that have to wait for the next time."""
        try:
            requests = await self._parts.disk.run(requests_of, self._fs, self._directory)
        except OSError as error:
            _log.warning("resend_unreadable", reason=str(error))
            return []
        waiting = []
        for request in requests:
            try:
                await self.work(request)
            except (SinkError, OSError) as error:
                delivered = request.delivered
                table = STREAMS[delivered.kind].table
                self._around.metrics.count("reconcile_failures", table=table)
                _log.warning("resend_waits", number=delivered.number, reason=str(error))
                waiting.append(request)
        return waiting

    async def work(self, request: ResendRequest) -> None:
        """Sends one block, unless it has come to be there.

        Raises:
            SinkError: not now; the request stays.
            OSError: the disk failed; the request stays.

        Cancellation: an insert under way is looked up at the next try.
        """
        delivered = request.delivered
        layout = await self._around.sink.layout(delivered.kind)
        if not layout.has_batch:
            await self._drop(request, "the table has no column batch")
            return
        if await self._is_there(request):
            await self._done(request)
            return
        frames = await self._frames(delivered)
        if frames is None:
            await self._drop(request, "its log is not kept any more")
            return
        if request.is_tried and not await self._around.sink.is_replicated(delivered.kind):
            delivered = replace(delivered, generation=delivered.generation + 1)
        request = replace(request, delivered=delivered, is_tried=True)
        await self._parts.disk.run(_write, self._fs, self._path(delivered), request)
        span = RowSpan(delivered.first_row, delivered.end_row)
        built = await self._around.builder.build(layout, frames, delivered.number, span)
        if built.block is None:
            await self._drop(request, "the table takes none of its rows")
            return
        table, shard = STREAMS[delivered.kind].table, self._parts.shard
        names = names_of(shard, table, _pending(delivered), frames, span, built.left_out)
        try:
            await self._around.sink.insert(
                layout, built.block, token=names.token, query_id=names.query_id
            )
        except SinkError as error:
            if error.error_class in _HOPELESS:
                await self._drop(request, error.message)
                return
            raise
        await self._done(request)

    async def _is_there(self, request: ResendRequest) -> bool:
        delivered, sink = request.delivered, self._around.sink
        table = STREAMS[delivered.kind].table
        layout = await sink.layout(delivered.kind)
        await sink.settle(query_id_of(self._parts.shard, table, _pending(delivered)))
        stored = await sink.stored_rows(layout, [delivered.number], since_s=None)
        return stored.get(delivered.number, 0) > request.stored_rows

    async def _frames(self, delivered: Delivered) -> Frames | None:
        """All frames of the batch; None when some are gone."""
        if delivered.number >> 32 != self._parts.tag:
            return None
        pending = _pending(delivered)
        frames, _ = await reread(self._parts.log, delivered.kind, pending, self._parts.disk)
        return frames if frames.rows == delivered.batch_rows else None

    async def _done(self, request: ResendRequest) -> None:
        delivered = request.delivered
        table = STREAMS[delivered.kind].table
        if self._parts.journal is not None:
            now_ns = self._around.clock.wall_ns()
            record = replace(delivered, delivered_at_ns=now_ns, is_again=True)
            await self._parts.disk.run(self._parts.journal.note, record)
        self._around.metrics.count("resent_batches", table=table)
        _log.info("batch_resent", table=table, number=delivered.number, rows=delivered.rows)
        await self._parts.disk.run(self._fs.unlink, self._path(delivered))

    async def _drop(self, request: ResendRequest, reason: str) -> None:
        delivered = request.delivered
        table = STREAMS[delivered.kind].table
        _log.error("batch_not_resent", table=table, number=delivered.number, reason=reason)
        await self._parts.disk.run(self._fs.unlink, self._path(delivered))

    def _path(self, delivered: Delivered) -> Path:
        return _path(self._directory, delivered)


def _pending(delivered: Delivered) -> Pending:
    return Pending(
        first=delivered.first,
        last=delivered.last,
        rows=delivered.batch_rows,
        number=delivered.number,
        generation=delivered.generation,
        path=None,
    )


def _path(directory: Path, delivered: Delivered) -> Path:
    table = STREAMS[delivered.kind].table
    return directory / f"{table}-{delivered.number:016x}{SUFFIX}"


def _write(fs: FileSystem, path: Path, request: ResendRequest) -> None:
    fs.close(create_durably(fs, path, [json.dumps(asdict(request)).encode()]))


def _read(fs: FileSystem, path: Path) -> ResendRequest | None:
    if path.name.endswith(TEMPORARY_SUFFIX) or not path.name.endswith(SUFFIX):
        return None
    try:
        fd = fs.open_read(path)
    except FileNotFoundError:
        return None
    try:
        values: dict[str, Any] = json.loads(fs.pread(fd, fs.size(fd), 0))
        one = values["delivered"]
        one |= {
            "kind": StreamKind(one["kind"]),
            "number": BlockNumber(one["number"]),
            "first": Lsn(one["first"]),
            "last": Lsn(one["last"]),
        }
        return ResendRequest(Delivered(**one), int(values["stored_rows"]), bool(values["is_tried"]))
    except (ValueError, TypeError, KeyError):
        return None
    finally:
        fs.close(fd)
