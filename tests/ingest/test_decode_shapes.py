"""The cache of encoded names: kept at second sight, bounded in entries and bytes."""

from __future__ import annotations

from ingest.decode_shapes import SEEN_ONCE_MAX, ShapeCache
from schema.names import name_shape


def test_a_shape_is_kept_at_the_second_sight():
    cache = ShapeCache()
    first = cache.shape(("a/b", "c"))
    assert cache.find(("a/b", "c")) is None
    second = cache.shape(("a/b", "c"))
    assert cache.find(("a/b", "c")) is second is cache.shape(("a/b", "c"))
    plain = name_shape(("a/b", "c"))
    assert {(shape.names, shape.count) for shape in (first, second, plain)} == {(plain.names, 2)}


def test_the_oldest_entry_makes_room():
    cache = ShapeCache(entries_max=3)
    for name in "abcd":
        for _ in range(2):
            cache.shape((name,))
    assert len(cache) == 3
    assert [cache.find((name,)) is not None for name in "abcd"] == [False, True, True, True]


def test_bytes_are_bounded_and_fall_with_what_is_dropped():
    cache = ShapeCache(bytes_max=20_000)
    for number in range(200):
        for _ in range(2):
            cache.shape(tuple(f"name_{number}_{i}" for i in range(10)))
    assert 0 < cache.byte_count <= 20_000
    assert 0 < len(cache) < 200


def test_a_shape_too_large_for_its_share_is_not_kept():
    cache = ShapeCache()
    wide = tuple("x" * 1_000 + str(i) for i in range(2_000))
    for _ in range(3):
        assert cache.shape(wide).count == 2_000
    assert (len(cache), cache.byte_count) == (0, 0)


def test_hashes_of_keys_seen_once_are_bounded():
    cache = ShapeCache()
    for number in range(3 * SEEN_ONCE_MAX):
        cache.shape((str(number),))
    assert len(cache._seen_once) <= SEEN_ONCE_MAX
    assert len(cache) == 0
