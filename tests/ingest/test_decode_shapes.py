"""The cache of encoded names: kept at second sight, bounded in entries and bytes."""

from __future__ import annotations

from ingest.decode_shapes import LEFT_OUT_MAX, SEEN_ONCE_MAX, ShapeCache
from schema.names import name_shape


def test_a_shape_is_kept_at_the_second_sight():
    cache = ShapeCache()
    first = cache.shape(("a/b", "c"))
    assert cache.find(("a/b", "c")) is None
    second = cache.shape(("a/b", "c"))
    assert cache.find(("a/b", "c")) is second is cache.shape(("a/b", "c"))
    plain = name_shape(("a/b", "c"))
    assert {(shape.names, shape.count) for shape in (first, second, plain)} == {(plain.names, 2)}


def test_what_is_known_stays_while_the_cache_is_full_until_many_were_left_out():
    cache = ShapeCache(entries_max=3)
    for name in "abcd":
        for _ in range(2):
            cache.shape((name,))
    assert [cache.find((name,)) is not None for name in "abcd"] == [True, True, True, False]
    for number in range(LEFT_OUT_MAX - 2):
        for _ in range(2):
            cache.shape((f"n{number}",))
    assert cache.find(("a",)) is not None
    for _ in range(2):
        cache.shape(("last",))
    assert (len(cache), cache.find(("last",)) is not None, cache.find(("a",))) == (1, True, None)
    for _ in range(2):
        cache.shape(("a",))
    assert cache.find(("a",)) is not None


def test_key_sets_that_come_round_in_turn_are_known_as_far_as_there_is_room():
    sets = [tuple(f"run{run}/weight{name}" for name in range(50)) for run in range(100)]
    cache = ShapeCache(bytes_max=300_000)
    for _ in range(3):
        for names in sets:
            cache.shape(names)
    found = sum(cache.find(names) is not None for names in sets)
    assert found == len(cache) > 50
    assert 290_000 < cache.byte_count <= 300_000


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
