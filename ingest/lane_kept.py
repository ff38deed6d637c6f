"""What clients have sent ahead of their turn, counted over all connections of a worker.

Each connection keeps some while a request of it is served. Ten thousand that each send ahead, and
wait for a disk or do not read their answers, would together hold gigabytes.
"""

from __future__ import annotations

KEPT_BYTES_MAX = 64 * 2**10
"""Of one connection; above it nothing more is read of the client."""
ALL_KEPT_BYTES_MAX = 64 * 2**20
"""Of all connections together."""
MODEST_BYTES_MAX = 4 * 2**10
"""So much is kept for anyone: a few requests ahead are never the ones to go."""


class KeptAhead:
    """The bytes that all lanes of one worker keep."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0

    def change(self, before: int, after: int) -> bool:
        """A connection keeps `after` bytes instead of `before`; whether it may."""
        self.bytes += after - before
        return self.bytes <= ALL_KEPT_BYTES_MAX or after <= MODEST_BYTES_MAX
