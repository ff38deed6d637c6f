"""Known keys: records by what keys are stored under, and by the headers they came in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from catalog.key_records import KeyRecord

KEYS_MAX = 20_000
"""About 1 kB each. Past it those that have not been used for longest go."""
EVICTED_PART = 20
"""A twentieth goes at a time: finding the oldest takes a look at all."""
SPELLINGS_MAX = 3
"""Headers that one key is known by: clients may write spaces in it as they like."""
HEADER_LENGTH_MAX = 640


@dataclass(slots=True, eq=False)
class Known:
    """A cached record; times are monotonic seconds.

    Attributes:
        checked_at: when the store was asked for the record as it is here.
    """

    lookup: str = field(repr=False)
    record: KeyRecord
    checked_at: float
    used_at: float
    headers: list[str] = field(default_factory=list, repr=False)


class KeyCache:
    """At most `KEYS_MAX` records.

    Attributes:
        by_header: for reading alone.
    """

    def __init__(self, keys_max: int = KEYS_MAX) -> None:
        self._keys_max = keys_max
        self._by_lookup: dict[str, Known] = {}
        self.by_header: dict[str, Known] = {}

    def __len__(self) -> int:
        """Records."""
        return len(self._by_lookup)

    def get(self, lookup: str) -> Known | None:
        """The record of a key."""
        return self._by_lookup.get(lookup)

    def all(self) -> Collection[Known]:
        """Every record."""
        return self._by_lookup.values()

    def add(self, lookup: str, record: KeyRecord, asked_at: float) -> Known:
        """A record that the store has just given; or the newer one that is there."""
        found = self._by_lookup.get(lookup)
        if found is not None:
            self.renew(lookup, record, asked_at)
            return found
        if len(self._by_lookup) >= self._keys_max:
            self._evict()
        known = self._by_lookup[lookup] = Known(lookup, record, asked_at, asked_at)
        return known

    def renew(self, lookup: str, record: KeyRecord | None, asked_at: float) -> None:
        """What the store says of a cached key; None: it has it no longer.

        An answer to a question that was asked before one that has been answered already says
        nothing new.
        """
        known = self._by_lookup.get(lookup)
        if known is None or asked_at < known.checked_at:
            return
        if record is None:
            self._forget(known)
        else:
            known.record = record
            known.checked_at = asked_at

    def link(self, header: str, known: Known) -> None:
        """Know it by that header's value from now on."""
        if header in known.headers or len(header) > HEADER_LENGTH_MAX:
            return
        if self._by_lookup.get(known.lookup) is not known:
            return  # forgotten meanwhile
        if len(known.headers) >= SPELLINGS_MAX:
            del self.by_header[known.headers.pop(0)]
        known.headers.append(header)
        self.by_header[header] = known

    def _evict(self) -> None:
        oldest = sorted(self._by_lookup.values(), key=lambda known: known.used_at)
        for known in oldest[: max(1, self._keys_max // EVICTED_PART)]:
            self._forget(known)

    def _forget(self, known: Known) -> None:
        del self._by_lookup[known.lookup]
        for header in known.headers:
            del self.by_header[header]
