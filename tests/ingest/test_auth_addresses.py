"""Where a request comes from, seen past trusted proxies alone."""

from __future__ import annotations

import pytest

from ingest.auth_addresses import ClientAddresses


@pytest.mark.parametrize(
    ("trusted", "peer", "forwarded", "client"),
    [
        ([], "10.0.0.1", ["203.0.113.9"], "10.0.0.1"),
        (["10.0.0.0/8"], "192.0.2.1", ["203.0.113.9"], "192.0.2.1"),
        (["10.0.0.0/8"], "10.0.0.1", [], "10.0.0.1"),
        (["10.0.0.0/8"], "10.0.0.1", ["203.0.113.9"], "203.0.113.9"),
        (["10.0.0.0/8"], "10.0.0.1", ["198.51.100.7, 203.0.113.9"], "203.0.113.9"),
        (["10.0.0.0/8"], "10.0.0.1", ["198.51.100.7", "203.0.113.9"], "203.0.113.9"),
        (["10.0.0.0/8"], "10.0.0.1", ["203.0.113.9, 10.0.0.2 "], "203.0.113.9"),
        (["10.0.0.0/8"], "10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        (["10.0.0.0/8"], "10.0.0.1", ["203.0.113.9, nonsense"], "10.0.0.1"),
        (["10.0.0.0/8"], "10.0.0.1", ["203.0.113.9, nonsense, 10.0.0.2"], "10.0.0.2"),
        (["10.0.0.1"], "10.0.0.1", ["203.0.113.9:4711"], "203.0.113.9"),
        (["::1"], "::1", ["[2001:db8::7]:4711"], "2001:db8::7"),
        (["10.0.0.0/8"], "::ffff:10.0.0.1", ["203.0.113.9"], "203.0.113.9"),
        (["10.0.0.0/8"], "", ["203.0.113.9"], ""),
    ],
)
def test_the_rightmost_address_that_is_no_trusted_proxy_is_the_clients(
    trusted, peer, forwarded, client
):
    assert ClientAddresses(trusted).of(peer, forwarded) == client


def test_a_long_list_of_hops_is_read_from_its_end_alone():
    hops = ",".join(["10.0.0.2"] * 100_000)
    assert ClientAddresses(["10.0.0.0/8"]).of("10.0.0.1", [f"203.0.113.9,{hops}"]) == "10.0.0.2"


def test_what_is_no_network_is_refused_by_name():
    with pytest.raises(ValueError, match="'proxy' is no address"):
        ClientAddresses(["proxy"])
