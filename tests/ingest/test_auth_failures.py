"""Failed attempts by address: a burst, a rate, and a table that does not grow."""

from __future__ import annotations

from itertools import count as numbers

from ingest.auth_failures import ADDRESSES_MAX, WRONG_MAX, WRONG_SECONDS, FailureLimit

_numbers = numbers()


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def exhaust(limit: FailureLimit, address: str) -> int:
    count = 0
    while not limit.wait_seconds(address):
        fail(limit, address)
        count += 1
    return count


def fail(limit: FailureLimit, address: str) -> None:
    limit.count(address, f"key {next(_numbers)}")


def test_a_burst_is_allowed_and_then_so_many_a_minute():
    clock = Clock()
    limit = FailureLimit(30, monotonic=clock)
    assert exhaust(limit, "192.0.2.1") == 30
    assert limit.wait_seconds("192.0.2.1") == 2.0
    clock.seconds += 2.0
    assert exhaust(limit, "192.0.2.1") == 1
    clock.seconds += 60.0
    assert exhaust(limit, "192.0.2.1") == 30
    assert limit.wait_seconds("192.0.2.2") == 0


def test_all_addresses_of_one_ipv6_customer_count_together():
    limit = FailureLimit(3, monotonic=Clock())
    for host in range(1, 4):
        fail(limit, f"2001:db8::{host}")
    assert limit.wait_seconds("2001:db8::ffff:1") > 0
    assert limit.wait_seconds("2001:db8:0:1::1") == 0


def test_the_same_address_by_ipv4_and_in_its_ipv6_form_counts_together():
    limit = FailureLimit(1, monotonic=Clock())
    fail(limit, "::ffff:192.0.2.1")
    assert limit.wait_seconds("192.0.2.1") > 0


def test_the_table_is_bounded_and_forgets_who_has_not_failed_for_longest():
    limit = FailureLimit(1, monotonic=Clock())
    for number in range(ADDRESSES_MAX + 10):
        fail(limit, f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
        fail(limit, "192.0.2.1")
    assert len(limit) == ADDRESSES_MAX
    assert limit.wait_seconds("192.0.2.1") > 0
    assert limit.wait_seconds("10.0.0.0") == 0


def test_the_same_wrong_key_counts_once_until_it_is_forgotten():
    clock = Clock()
    limit = FailureLimit(2, monotonic=clock)
    for _ in range(100):
        limit.count("192.0.2.1", "wrong")
    assert limit.wait_seconds("192.0.2.1") == 0
    assert limit.is_repeat("wrong")
    clock.seconds += WRONG_SECONDS
    assert not limit.is_repeat("wrong")
    for number in range(WRONG_MAX + 1):
        limit.count("192.0.2.2", f"wrong {number}")
    assert not limit.is_repeat("wrong 0")
    assert limit.is_repeat("wrong 1")
