"""Which address a request came from, seen past the proxies that are trusted.

`X-Forwarded-For` is believed only from a trusted proxy, and only from its right end: each proxy
adds the address that it took the request from, and whatever stands left of the first address that
is not trusted was written by whoever that is.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HOPS_MAX = 16

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class ClientAddresses:
    """Finds the client's address.

    Args:
        trusted_proxies: networks or single addresses, like `10.0.0.0/8` or `::1`.

    Raises:
        ValueError: one is neither.
    """

    def __init__(self, trusted_proxies: Iterable[str] = ()) -> None:
        self._trusted: list[Network] = [network_of(text) for text in trusted_proxies]

    def of(self, peer: str, forwarded: Sequence[str] = ()) -> str:
        """The address of the client.

        Args:
            peer: where the connection comes from; empty where that is no address.
            forwarded: the values of `X-Forwarded-For`, in order.
        """
        if not self._trusted or not forwarded or not self._is_trusted(_parsed(peer)):
            return peer
        last = peer
        hops = [hop for value in forwarded for hop in value.split(",")]
        for hop in reversed(hops[-HOPS_MAX:]):
            address = _parsed(hop.strip())
            if address is None:
                return last
            last = str(address)
            if not self._is_trusted(address):
                return last
        return last

    def _is_trusted(self, address: Address | None) -> bool:
        return address is not None and any(
            address.version == network.version and address in network for network in self._trusted
        )


def network_of(text: str) -> Network:
    """A network, or a single address as one.

    Raises:
        ValueError: it is neither; the message says so.
    """
    try:
        return ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        raise ValueError(
            f"{text!r} is no address and no network like 10.0.0.0/8 or fd00::/8"
        ) from None


def _parsed(text: str) -> Address | None:
    """An address, without the port that some proxies add."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
