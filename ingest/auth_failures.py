"""How many keys an address may try that do not exist, so that none can be guessed at speed.

An address has a bucket of tokens, filled at so many a minute; a key that turns out not to exist
takes one, and with none left no key is looked up for it. Keys that are known already are checked
before this is asked: they work from any address. The same wrong key again takes nothing: it is no
guess but a client set up wrongly, and others behind the same address must not suffer for it.
Counted in each worker by itself.
"""

from __future__ import annotations

import ipaddress
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ADDRESSES_MAX = 10_000
"""About 250 B each. Past it the address that has not failed for longest is forgotten."""
WRONG_MAX = 10_000
"""Wrong keys that are remembered, by what they would be stored under."""
WRONG_SECONDS = 600.0
IPV6_PREFIX = 64
"""One customer's: whoever has it can send from any address in it."""


class FailureLimit:
    """Buckets by address.

    Args:
        per_minute: keys an address may try in vain in a minute, and in one burst.
        monotonic: seconds.
    """

    def __init__(self, per_minute: int, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._burst = float(per_minute)
        self._seconds_each = 60.0 / per_minute
        self._monotonic = monotonic
        self._left: dict[str, tuple[float, float]] = {}
        """Tokens left, and when that was; the one that failed last is last."""
        self._wrong: dict[str, float] = {}
        """When each was tried first, oldest first."""

    def __len__(self) -> int:
        """Addresses that are remembered."""
        return len(self._left)

    def wait_seconds(self, address: str) -> float:
        """How long the address has to wait until it may try again; 0: it may now."""
        if not self._left:
            return 0.0
        return max(0.0, (1.0 - self._tokens(_owner(address))) * self._seconds_each)

    def is_repeat(self, lookup: str) -> bool:
        """Whether that key was found wrong a while ago, and counted then."""
        at = self._wrong.get(lookup)
        return at is not None and self._monotonic() - at < WRONG_SECONDS

    def count(self, address: str, lookup: str) -> None:
        """A key that does not exist."""
        if self.is_repeat(lookup):
            return
        self._wrong.pop(lookup, None)
        self._wrong[lookup] = self._monotonic()
        if len(self._wrong) > WRONG_MAX:
            del self._wrong[next(iter(self._wrong))]
        owner = _owner(address)
        tokens = self._tokens(owner) - 1.0
        self._left.pop(owner, None)
        self._left[owner] = (max(0.0, tokens), self._monotonic())
        if len(self._left) > ADDRESSES_MAX:
            del self._left[next(iter(self._left))]

    def _tokens(self, owner: str) -> float:
        found = self._left.get(owner)
        if found is None:
            return self._burst
        tokens, at = found
        return min(self._burst, tokens + (self._monotonic() - at) / self._seconds_each)


def _owner(address: str) -> str:
    """Whom an address belongs to."""
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(parsed), IPV6_PREFIX), strict=False).network_address)
