"""How often an address may fail to name a valid key, so that keys cannot be guessed at speed.

An address has a bucket of tokens, filled at so many a minute; a failed attempt takes one, and with
none left no key is looked up for it. Keys that are known already are checked before this is asked:
they work from any address. Counted in each worker by itself.
"""

from __future__ import annotations

import ipaddress
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

ADDRESSES_MAX = 10_000
"""About 250 B each. Past it the address that has not failed for longest is forgotten."""
IPV6_PREFIX = 64
"""One customer's: whoever has it can send from any address in it."""


class FailureLimit:
    """Buckets by address.

    Args:
        per_minute: failed attempts an address may make in a minute, and in one burst.
        monotonic: seconds.
    """

    def __init__(self, per_minute: int, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._burst = float(per_minute)
        self._seconds_each = 60.0 / per_minute
        self._monotonic = monotonic
        self._left: dict[str, tuple[float, float]] = {}
        """Tokens left, and when that was; the one that failed last is last."""

    def __len__(self) -> int:
        """Addresses that are remembered."""
        return len(self._left)

    def wait_seconds(self, address: str) -> float:
        """How long the address has to wait until it may try again; 0: it may now."""
        if not self._left:
            return 0.0
        return max(0.0, (1.0 - self._tokens(_owner(address))) * self._seconds_each)

    def count(self, address: str) -> None:
        """A failed attempt."""
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
