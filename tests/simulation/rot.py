"""The disk rots: bytes that were synced come back as others.

Struck are bytes below the last group of a segment, which its header vouches for: beyond it rot
cannot be told from a torn tail. What a byte belongs to is found out before it is changed, so that
the audit knows which requests may be missing, and that nothing else may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from buffer.checkpoint import FILE_NAME, SLOT_BYTES, _is_whole, _slots
from buffer.records import FrameRecord, GroupRecord
from buffer.segment import HEADER_BLOCK_BYTES, SegmentHeader, first_lsn_of, parse_header
from tests.simulation.regions import records_of

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

    from tests.simulation.disk import MachineDisk


class Rot:
    """Changes bytes of segments, one at a time."""

    def __init__(self, disk: MachineDisk, random: Random) -> None:
        self._disk = disk
        self._random = random
        self.lost_frames: set[tuple[bytes, int]] = set()
        """Digest and stream of each frame that was hit."""
        self.happened: dict[str, int] = {}
        self.has_hit_checkpoint = False
        """A batch may be sent again under other bounds: identity makes one row of its rows."""

    def strike(self) -> str | None:
        """One flipped byte somewhere; says which, None where there is nothing to hit."""
        if self._random.random() < 0.2:
            return self._strike_checkpoint()
        places = [
            (path, record)
            for path in self._disk.paths()
            if first_lsn_of(path.name) is not None
            for record in self._records(path)
        ]
        if not places:
            return None
        path, (start, end, frame) = self._random.choice(places)
        offset = self._random.randrange(start, end)
        self._disk.flip(path, offset, 1 << self._random.randrange(8))
        if frame is not None:
            self.lost_frames.add(frame)
        self.happened["rotten_bytes"] = self.happened.get("rotten_bytes", 0) + 1
        return f"rot: {path.name} byte {offset}, {'a frame' if frame else 'a header'}"

    def _strike_checkpoint(self) -> str | None:
        """One slot of a checkpoint whose other one is whole."""
        sound = [
            path
            for path in self._disk.paths()
            if path.name == FILE_NAME and all(map(_is_whole, _slots(self._disk.content(path))))
        ]
        if not sound:
            return None
        path = self._random.choice(sound)
        offset = self._random.randrange(2 * SLOT_BYTES)
        self._disk.flip(path, offset, 1 << self._random.randrange(8))
        self.has_hit_checkpoint = True
        self.happened["rotten_slots"] = self.happened.get("rotten_slots", 0) + 1
        return f"rot: {path} byte {offset}"

    def _records(self, path: Path) -> list[tuple[int, int, tuple[bytes, int] | None]]:
        """Records below what is known to be synced: beginning, end, and the frame if it is one.

        Groups behind that, the last one and those that shared its sync, may as well be torn.
        """
        data = self._disk.content(path)
        header = parse_header(data[:HEADER_BLOCK_BYTES])
        if not isinstance(header, SegmentHeader):
            return []
        records = records_of(data, header)
        found: list[tuple[int, int, tuple[bytes, int] | None]] = []
        synced = 0
        while (record := records.next()) is not None:
            if isinstance(record, GroupRecord):
                synced = max(synced, record.header.synced_bytes)
                found.append((record.offset, records.offset, None))
            elif isinstance(record, FrameRecord):
                key = record.header.digest, record.header.kind
                found.append((record.offset, records.offset, key))
            else:
                return []  # struck before
        return [one for one in found if one[1] <= synced]
