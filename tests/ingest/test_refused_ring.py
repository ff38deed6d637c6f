"""The ring of refused lines: bounded for a tenant and in all, its losses counted."""

from ingest.refusals import LineError
from ingest.refused_ring import RefusedLine, RefusedRing
from schema.ids import RunId, TenantId


def lines(*numbers: int) -> list[RefusedLine]:
    return [
        RefusedLine(1, "metrics", RunId(7), "p", LineError(number, "time", "no"), b"x" * 100)
        for number in numbers
    ]


SIZE = lines(1)[0].size


def numbers(ring: RefusedRing, tenant: str) -> list[int]:
    return [line.error.line for line in ring.of(TenantId(tenant))]


def test_the_newest_stay_and_the_oldest_make_room() -> None:
    ring = RefusedRing(100 * SIZE, tenant_bytes_max=3 * SIZE)
    ring.add(TenantId("a"), lines(1, 2, 3, 4, 5))
    assert numbers(ring, "a") == [5, 4, 3]
    assert ring.statistics().overwritten == 2
    assert ring.statistics().bytes == 3 * SIZE


def test_many_tenants_share_the_bound_and_the_quiet_ones_make_room() -> None:
    ring = RefusedRing(4 * SIZE, tenant_bytes_max=2 * SIZE)
    for tenant in ("a", "b", "a", "c", "d"):
        ring.add(TenantId(tenant), lines(1))
    assert [numbers(ring, tenant) for tenant in "abcd"] == [[1, 1], [], [1], [1]]
    assert ring.statistics().lines == 4
    for number in range(1_000):
        ring.add(TenantId(f"t{number}"), lines(1))
    assert ring.statistics().bytes <= 4 * SIZE
    assert len(ring._rings) <= 4
