"""The last refused lines of each tenant, so that somebody can look what their program sends.

They were told to the client in the answer of the very request, so this is a convenience and no
promise: a ring in the worker's memory, bounded for a tenant and in all, whose oldest entries make
room and are counted. Filled after the answer is made, from what decoding has in hand anyway: the
first 20 refusals of a request, with the start of each line.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ingest.refusals import LineError
    from schema.ids import RunId, TenantId

BYTES_MAX = 64 * 2**20
"""Of all workers' rings together."""
TENANT_BYTES_MAX = 2**20
LINE_BYTES_KEPT = 1_024
"""Of a refused line: enough to see what it is."""
_ENTRY_BYTES = 400
"""What an entry takes besides its texts, rounded up."""


@dataclass(frozen=True, slots=True)
class RefusedLine:
    """One refusal, with the start of its line as it came."""

    received_at_ms: int
    stream: str
    run_id: RunId
    project: str
    error: LineError
    text: bytes

    @property
    def size(self) -> int:
        """Estimated bytes of memory."""
        texts = 4 * (len(self.project) + len(self.error.field) + len(self.error.error))
        return _ENTRY_BYTES + texts + len(self.text)


@dataclass(frozen=True, slots=True)
class RingStatistics:
    """What is kept now, and what has made room since the worker started."""

    lines: int = 0
    bytes: int = 0
    overwritten: int = 0


@dataclass(slots=True)
class _Ring:
    lines: deque[RefusedLine] = field(default_factory=deque)
    bytes: int = 0


class RefusedRing:
    """The rings of one worker.

    Args:
        bytes_max: of all tenants; the tenant that was refused something for longest makes room.
        tenant_bytes_max: of one tenant.
    """

    def __init__(self, bytes_max: int, tenant_bytes_max: int = TENANT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._tenant_bytes_max = min(tenant_bytes_max, bytes_max)
        self._rings: OrderedDict[TenantId, _Ring] = OrderedDict()
        self._bytes = 0
        self._lines = 0
        self._overwritten = 0

    def add(self, tenant: TenantId, lines: list[RefusedLine]) -> None:
        """Keep these; the oldest make room."""
        ring = self._rings.setdefault(tenant, _Ring())
        self._rings.move_to_end(tenant)
        for line in lines:
            ring.lines.append(line)
            ring.bytes += line.size
            self._bytes += line.size
            self._lines += 1
            while ring.bytes > self._tenant_bytes_max:
                self._drop(ring)
        while self._bytes > self._bytes_max:
            oldest, other = next(iter(self._rings.items()))
            self._drop(other)
            if not other.lines:
                del self._rings[oldest]

    def of(self, tenant: TenantId) -> Iterator[RefusedLine]:
        """The tenant's, newest first."""
        ring = self._rings.get(tenant)
        return iter(()) if ring is None else reversed(ring.lines)

    def statistics(self) -> RingStatistics:
        """A snapshot, over all tenants."""
        return RingStatistics(self._lines, self._bytes, self._overwritten)

    def _drop(self, ring: _Ring) -> None:
        size = ring.lines.popleft().size
        ring.bytes -= size
        self._bytes -= size
        self._lines -= 1
        self._overwritten += 1
