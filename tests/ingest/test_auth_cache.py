"""The cache of known keys: bounded, and never older than what it has been told."""

from __future__ import annotations

from catalog.key_records import KeyRecord
from ingest.auth_cache import KeyCache


def record(number: int) -> KeyRecord:
    return KeyRecord(f"id-{number}", "org", "name", None, None, lookup=f"lookup-{number}")


def test_past_the_bound_those_not_used_for_longest_go_with_their_headers():
    cache = KeyCache(keys_max=100)
    for number in range(100):
        cache.link(f"header {number}", cache.add(f"lookup-{number}", record(number), number))
    cache.by_header["header 0"].used_at = 1_000.0
    cache.add("lookup-100", record(100), 100.0)
    assert len(cache) == 96
    assert cache.get("lookup-0") is not None
    assert [cache.get(f"lookup-{number}") for number in range(1, 6)] == [None] * 5
    assert "header 5" not in cache.by_header
    assert "header 6" in cache.by_header


def test_a_header_of_a_forgotten_record_is_not_taken():
    cache = KeyCache()
    known = cache.add("lookup-1", record(1), 1.0)
    cache.renew("lookup-1", None, 2.0)
    cache.link("header", known)
    assert not cache.by_header


def test_a_long_header_is_not_kept():
    cache = KeyCache()
    cache.link("Bearer " + " " * 10_000, cache.add("lookup-1", record(1), 1.0))
    assert not cache.by_header


def test_what_a_legacy_key_is_stored_under_is_in_no_repr():
    cache = KeyCache()
    secret = "mlpi_0123456789abcdef"
    known = cache.add(secret, KeyRecord("id", "org", "name", None, None, lookup=secret), 1.0)
    cache.link(f"Bearer {secret}", known)
    assert secret not in repr(known)
