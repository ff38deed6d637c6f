"""What is known of a key, and where it is asked for."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from catalog.scopes import ALL_SCOPES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

KEY_PREFIX = "mlps_"
LEGACY_PREFIX = "mlpi_"
"""Keys of an older kind, stored as they are."""


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """What is known of a key, without the key.

    Attributes:
        tenant: its organisation's id.
        scopes: what it may do, those included by others spelt out.
        last_used_at_ms: of a minute or two ago at best: it is written in batches.
        rotated_from: id of the key that this one replaces.
        lookup: what it is stored under. No repr shows it: that of a legacy key is the key itself.
    """

    id: str
    tenant: str
    name: str
    expires_at_ms: int | None
    revoked_at_ms: int | None
    prefix: str = ""
    created_at_ms: int = 0
    scopes: frozenset[str] = ALL_SCOPES
    last_used_at_ms: int | None = field(default=None, compare=False)
    rotated_from: str | None = None
    lookup: str = field(default="", repr=False)

    def is_expired(self, now_ms: int) -> bool:
        """Whether its time is over. Said before a revocation is, as the reference does."""
        return self.expires_at_ms is not None and self.expires_at_ms < now_ms

    @property
    def is_revoked(self) -> bool:
        """Whether somebody took it back; there is no way back from that."""
        return self.revoked_at_ms is not None


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key just made, with the secret that is never seen again."""

    record: KeyRecord
    secret: str

    def __repr__(self) -> str:
        """Without the secret: a repr ends up in logs."""
        return f"NewKey(record={self.record!r}, secret=…)"


class KeyStore(Protocol):
    """Where an authenticator looks keys up: this catalogue, or another product's table of keys.

    Whatever a method raises means that the store cannot be asked now.
    """

    async def find(self, lookup: str) -> KeyRecord | None:
        """The key stored under that lookup value, expired or revoked or not."""
        ...

    async def find_many(self, lookups: Collection[str]) -> Mapping[str, KeyRecord]:
        """Those of many that are there, by lookup value, in one query."""
        ...

    async def recent(self, keys_max: int) -> Sequence[KeyRecord]:
        """The keys that are likely to be used next; none that is revoked."""
        ...

    async def note_used(self, used_at_ms: Mapping[str, int]) -> None:
        """Keep when keys, by id, were used last; an earlier time than is kept changes nothing."""
        ...


def lookup_of(key: str) -> str:
    """What a key is stored under: lower-case hex SHA-256 of its UTF-8, or a legacy key itself."""
    if key.startswith(LEGACY_PREFIX):
        return key
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
