"""How a block is handed to an engine on the same machine: as memory, named in a header.

=========  ====================================================================================
header     ``X-Charon-Data: pid/descriptor/name``
body       empty; the statement is in the URL, as of any insert
memory     a memfd of that process, created under that name, sealed against every change
answer     as of any insert, with the same header: who answers without has not looked at it, and
           has inserted nothing; status 421 where the memory cannot be had, with nothing begun
=========  ====================================================================================

The name is random and never used twice. It is what makes sure of the data: a descriptor's number
may be another file's by the time that it is looked at, and other rows under a block's token would
be lost rows.
"""

from __future__ import annotations

import fcntl
import re
from dataclasses import dataclass

HEADER = "X-Charon-Data"
REFUSED_STATUS = 421
"""Misdirected Request: no other failure of an insert has it, so that a body may follow at once."""
TAKEN = "taken"
"""What the header says in an answer."""
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
"""What neither side can undo: the bytes that are read are those that were written."""

_PLACE = re.compile(r"([1-9]\d{0,9})/(\d{1,9})/(charon-[0-9a-f]{32})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a block is."""

    pid: int
    descriptor: int
    name: str

    @classmethod
    def parse(cls, text: str) -> Place | None:
        """What a header says; None where it is no place."""
        found = _PLACE.fullmatch(text)
        return None if found is None else cls(int(found[1]), int(found[2]), found[3])

    def __str__(self) -> str:
        return f"{self.pid}/{self.descriptor}/{self.name}"

    @property
    def path(self) -> str:
        """What its reader opens."""
        return f"/proc/{self.pid}/fd/{self.descriptor}"

    @property
    def target(self) -> str:
        """What such a path leads to, by the kernel's word."""
        return f"/memfd:{self.name} (deleted)"
