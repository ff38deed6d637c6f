"""The durable position of each table: what is delivered, and what is under way.

One file of two slots, 4,096 bytes each, made in full at creation and overwritten in turn, so that
it can be written on a full disk and a torn write leaves the former state. A slot, little-endian:

=================  =====  =====================================================================
field              bytes
=================  =====  =====================================================================
magic              8      ``CHARONCP``
version            4      2; 1 is read and written anew at a start
table_count        4
sequence           8      the slot with the larger one counts
shard id           16
tables                    one after the other, 92 bytes each
zero                      up to 4,092
crc                4      of the 4,092 bytes above
=================  =====  =====================================================================

=================  =====  =====================================================================
table              bytes
=================  =====  =====================================================================
kind               1      the stream
flags              1      bit 0: a batch is pending; bit 1: it is being bisected; bit 2: its
                          token covers its number, as that of no batch of version 1 does
aside in a row     1      frames set aside since the table last took a row
zero               1
generation         4
delivered          8      LSN of the next frame to deliver
next_number        8      the block counter, below the shard's tag
first, last        16     LSNs of the pending batch
rows               8
number             8      the pending block's number, tag included
next_row           8      bisection: rows below are settled
try_end            8      bisection: the next try ends before this row
bad_end            8      bisection: a bad row is below this one; 0: not known
inserts            4
bad_rows, frames   2 x 4  rows, and frames they are from, that were set aside
=================  =====  =====================================================================
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from buffer.errors import Damaged, Unavailable, UnknownFormat
from buffer.fs import create_durably, write_all
from buffer.lsn import Lsn
from schema.ids import BlockNumber
from schema.streams import StreamKind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from buffer.disk import Disk
    from buffer.fs import Fd, FileSystem

SLOT_BYTES = 4_096
SLOT_COUNT = 2
FORMAT_VERSION = 2
"""A release that knows 1 alone knows neither the tokens nor the payloads of this one: it must not
open the shard."""
FILE_NAME = "checkpoint"

_MAGIC = b"CHARONCP"
_HEAD = struct.Struct("<8sIIQ16s")
_TABLE = struct.Struct("<BBBxIQQQQQQQQQIII")
_CRC = struct.Struct("<I")
_FLAG_PENDING = 1
_FLAG_BISECTION = 2
_FLAG_NUMBERED = 4
_KNOWN_VERSIONS = frozenset({1, FORMAT_VERSION})


@dataclass(frozen=True, slots=True)
class Bisection:
    """Where the search for a batch's bad rows stands; row indices count over the whole batch."""

    next_row: int
    try_end: int
    bad_end: int
    inserts: int
    bad_rows: int
    bad_frames: int


@dataclass(frozen=True, slots=True)
class Pending:
    """A batch whose bounds are fixed: it is sent as it is until it is taken.

    Attributes:
        is_numbered: its token covers its number. Not so where a former release has fixed it: the
            server may know the block by the token that it had there.
    """

    first: Lsn
    last: Lsn
    rows: int
    number: BlockNumber
    generation: int
    path: Bisection | None
    is_numbered: bool = True


@dataclass(frozen=True, slots=True)
class TableState:
    """One table's place in the log.

    Attributes:
        delivered: LSN of the next frame to deliver: below it all is done.
        next_number: counter of the next block, below the shard's tag.
        aside_in_a_row: frames with rows that the table refused, since it last took a row.
    """

    delivered: Lsn
    next_number: int
    pending: Pending | None
    aside_in_a_row: int = 0

    @property
    def end_lsn(self) -> Lsn:
        """Above every LSN that this state speaks of."""
        return Lsn(max(self.delivered, 0 if self.pending is None else self.pending.last + 1))


FIRST_STATE = TableState(delivered=Lsn(0), next_number=1, pending=None)


class Checkpoint:
    """The file and its states. Used from one event loop; the writing is done on a disk's thread."""

    def __init__(
        self,
        fs: FileSystem,
        fd: Fd,
        disk: Disk,
        shard_id: bytes,
        sequence: int,
        states: Mapping[StreamKind, TableState],
    ) -> None:
        self._fs = fs
        self._fd = fd
        self._disk = disk
        self._shard_id = shard_id
        self._sequence = sequence
        self._stored = dict(states)
        self._wanted = dict(states)
        self._waiting: list[asyncio.Future[None]] = []
        self._writing: list[asyncio.Future[None]] = []
        self._is_closed = False

    @classmethod
    def create(cls, fs: FileSystem, directory: Path, disk: Disk, shard_id: bytes) -> Checkpoint:
        """Makes the file with nothing delivered. Blocking.

        Raises:
            OSError: it could not be made.

        Durability: the file survives a power cut once this returns.
        """
        states = dict.fromkeys(StreamKind, FIRST_STATE)
        slots = [_encode(states, sequence, shard_id) for sequence in (2, 1)]
        fd = create_durably(fs, directory / FILE_NAME, slots)
        return cls(fs, fd, disk, shard_id, 2, states)

    @classmethod
    def open(cls, fs: FileSystem, directory: Path, disk: Disk, shard_id: bytes) -> Checkpoint:
        """Reads the newer whole slot, and makes sure that it is on disk. Blocking.

        Raises:
            Damaged: neither slot is, or they are another shard's: what was delivered is not known.
            UnknownFormat: made by another release.
            OSError: it could not be read, or not be made durable.
        """
        path = directory / FILE_NAME
        fd = fs.open_write(path)
        try:
            data = fs.pread(fd, SLOT_COUNT * SLOT_BYTES, 0)
            sequence, states = _newest(data, shard_id, path)
            checkpoint = cls(fs, fd, disk, shard_id, sequence, states)
            # What was read may come from memory alone, after a write whose sync failed. It is
            # written where it was found: until it is durable, the other slot is all there is.
            slots = _slots(data)
            checkpoint._write(slots[sequence % SLOT_COUNT], sequence)
            if not all(map(_is_whole, slots)):
                checkpoint._mend()
            if any(_version(slot) != FORMAT_VERSION for slot in slots):
                checkpoint._renew()
        except BaseException:
            fs.close(fd)
            raise
        return checkpoint

    @staticmethod
    def look(fs: FileSystem, directory: Path, shard_id: bytes) -> Mapping[StreamKind, TableState]:
        """The states of a shard that somebody else may hold: reads alone. Blocking.

        Raises:
            Damaged, UnknownFormat, OSError: as for `open`.
        """
        path = directory / FILE_NAME
        fd = fs.open_read(path)
        try:
            return _newest(fs.pread(fd, SLOT_COUNT * SLOT_BYTES, 0), shard_id, path)[1]
        finally:
            fs.close(fd)

    def state(self, kind: StreamKind) -> TableState:
        """The state as it is on disk."""
        return self._stored[kind]

    @property
    def delivered(self) -> Lsn:
        """The least of all tables' positions: below it the log is not needed for delivery."""
        return min(state.delivered for state in self._stored.values())

    @property
    def end_lsn(self) -> Lsn:
        """Above every LSN that any table's state speaks of."""
        return max(state.end_lsn for state in self._stored.values())

    async def store(self, kind: StreamKind, state: TableState) -> None:
        """Replaces one table's state; stores that wait at the same time share one write.

        Raises:
            Unavailable: it could not be written. The former state or this one is on disk: store the
                same one again.

        Durability: the state survives a power cut once this returns.
        Cancellation: the state may be stored or not.
        """
        if self._is_closed:
            raise Unavailable("the checkpoint is closed")
        self._wanted[kind] = state
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._write_next()
        await future

    async def close(self) -> None:
        """Closes the file after the writes that are under way."""
        self._is_closed = True
        await self._disk.run(self._fs.close, self._fd)

    def _mend(self) -> None:
        """Makes the other slot whole again, and gives no block number that it may have given.

        It was torn, and then nobody acted on it; or it has rotted, and a block may have been sent
        under the next number, which must not answer for another one.
        """
        states = {
            kind: replace(state, next_number=state.next_number + 1)
            for kind, state in self._stored.items()
        }
        self._write(_encode(states, self._sequence + 1, self._shard_id), self._sequence + 1)
        self._sequence += 1
        self._stored, self._wanted = states, dict(states)

    def _renew(self) -> None:
        """Writes both slots in this release's version: a former one must find none of its own."""
        for _ in range(SLOT_COUNT):
            sequence = self._sequence + 1
            self._write(_encode(self._stored, sequence, self._shard_id), sequence)
            self._sequence = sequence

    def _write_next(self) -> None:
        if self._writing or not self._waiting:
            return
        self._writing, self._waiting = self._waiting, []
        states = dict(self._wanted)
        # The sequence moves on success alone, so a slot whose write failed is the one written
        # again: the other holds the last state that is known to be durable.
        sequence = self._sequence + 1
        slot = _encode(states, sequence, self._shard_id)
        work = self._disk.submit(self._write, slot, sequence)
        work.add_done_callback(lambda done: self._written(done, states, sequence))

    def _write(self, slot: bytes, sequence: int) -> None:
        write_all(self._fs, self._fd, [slot], sequence % SLOT_COUNT * SLOT_BYTES)
        self._fs.fdatasync(self._fd)

    def _written(
        self, work: asyncio.Future[None], states: dict[StreamKind, TableState], sequence: int
    ) -> None:
        group, self._writing = self._writing, []
        error = asyncio.CancelledError() if work.cancelled() else work.exception()
        if error is None:
            self._sequence = sequence
            self._stored = states
        for future in group:
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                failure = Unavailable(f"the checkpoint could not be written: {error}")
                failure.__cause__ = error
                future.set_exception(failure)
        self._write_next()


def _encode(states: Mapping[StreamKind, TableState], sequence: int, shard_id: bytes) -> bytes:
    pieces = [_HEAD.pack(_MAGIC, FORMAT_VERSION, len(states), sequence, shard_id)]
    pieces += [_encode_table(kind, states[kind]) for kind in sorted(states)]
    body = b"".join(pieces).ljust(SLOT_BYTES - 4, b"\0")
    return body + _CRC.pack(zlib.crc32(body))


def _encode_table(kind: StreamKind, state: TableState) -> bytes:
    pending, path = state.pending, state.pending.path if state.pending else None
    flags = (_FLAG_PENDING if pending else 0) | (_FLAG_BISECTION if path else 0)
    if pending and pending.is_numbered:
        flags |= _FLAG_NUMBERED
    return _TABLE.pack(
        kind,
        flags,
        min(state.aside_in_a_row, 255),
        pending.generation if pending else 0,
        state.delivered,
        state.next_number,
        *((pending.first, pending.last, pending.rows, pending.number) if pending else (0,) * 4),
        *((path.next_row, path.try_end, path.bad_end) if path else (0,) * 3),
        *((path.inserts, path.bad_rows, path.bad_frames) if path else (0,) * 3),
    )


def _newest(data: bytes, shard_id: bytes, path: Path) -> tuple[int, dict[StreamKind, TableState]]:
    slots = _slots(data)
    whole = [slot for slot in slots if _is_whole(slot)]
    unknown = {_version(slot) for slot in slots if slot.startswith(_MAGIC)} - _KNOWN_VERSIONS
    if unknown and (not whole or any(map(_is_sealed, set(slots) - set(whole)))):
        raise UnknownFormat(
            f"{path}: checkpoint of format version {max(unknown)}; "
            f"this release knows {FORMAT_VERSION}"
        )
    if not whole:
        raise Damaged(
            f"{path}: neither of the two slots is whole ({len(data)} bytes), so what was delivered "
            "is not known; restore the file, or move the shard's directory away"
        )
    heads = [_HEAD.unpack_from(slot) for slot in whole]
    newest, slot = max(zip(heads, whole, strict=True), key=lambda pair: int(pair[0][3]))
    _, _, count, sequence, owner = newest
    if owner != shard_id:
        raise Damaged(f"{path}: belongs to shard {owner.hex()}, not {shard_id.hex()}")
    states = dict.fromkeys(StreamKind, FIRST_STATE)
    for index in range(count):
        kind, state = _decode_table(slot, _HEAD.size + index * _TABLE.size)
        states[kind] = state
    return sequence, states


def _slots(data: bytes) -> list[bytes]:
    return [data[at : at + SLOT_BYTES] for at in range(0, SLOT_COUNT * SLOT_BYTES, SLOT_BYTES)]


def _version(slot: bytes) -> int:
    return int.from_bytes(slot[8:12], "little")


def _is_whole(slot: bytes) -> bool:
    return (
        len(slot) == SLOT_BYTES
        and slot.startswith(_MAGIC)
        and _version(slot) in _KNOWN_VERSIONS
        and _is_sealed(slot)
    )


def _is_sealed(slot: bytes) -> bool:
    """Whether it is as somebody wrote it, of whatever version."""
    if len(slot) != SLOT_BYTES:
        return False
    return bool(zlib.crc32(slot[:-4]) == _CRC.unpack_from(slot, SLOT_BYTES - 4)[0])


def _decode_table(slot: bytes, at: int) -> tuple[StreamKind, TableState]:
    kind, flags, aside, generation, delivered, next_number, *rest = _TABLE.unpack_from(slot, at)
    first, last, rows, number = rest[:4]
    path = Bisection(*rest[4:]) if flags & _FLAG_BISECTION else None
    pending = (
        Pending(
            *(Lsn(first), Lsn(last), rows, BlockNumber(number), generation, path),
            is_numbered=bool(flags & _FLAG_NUMBERED),
        )
        if flags & _FLAG_PENDING
        else None
    )
    return StreamKind(kind), TableState(Lsn(delivered), next_number, pending, aside)
