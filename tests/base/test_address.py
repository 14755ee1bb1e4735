"""From which address a request comes."""

from __future__ import annotations

import re

import pytest

from cmserver.base.http.address import find_client, network_of, parse_networks
from tests.table import try_rows

PROXIES = parse_networks("10.0.0.0/8, ::1, 2001:db8:ffff::/48")


@try_rows(
    ("peer", "x_forwarded_for", "forwarded", "found"),
    [
        ("203.0.113.7", [], [], "203.0.113.7"),
        ("203.0.113.7", ["198.51.100.1"], ["for=198.51.100.1"], "203.0.113.7"),
        ("10.0.0.1", [], [], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1"], [], "198.51.100.1"),
        ("10.0.0.1", ["1.1.1.1, 198.51.100.1"], [], "198.51.100.1"),
        ("10.0.0.1", ["1.1.1.1, 198.51.100.1, 10.0.0.9"], [], "198.51.100.1"),
        ("10.0.0.1", ["1.1.1.1", "198.51.100.1 , 10.0.0.9"], [], "198.51.100.1"),
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], [], "10.0.0.3"),
        ("10.0.0.1", ["198.51.100.1:4711"], [], "198.51.100.1"),
        ("10.0.0.1", ["[2001:db8::5]:4711"], [], "2001:db8::5"),
        ("10.0.0.1", ["1.1.1.1, unknown"], [], "10.0.0.1"),
        ("10.0.0.1", ["1.1.1.1, nonsense, 10.0.0.9"], [], "10.0.0.9"),
        ("10.0.0.1", ["1.1.1.1, "], [], "10.0.0.1"),
        ("::ffff:10.0.0.1", ["::ffff:198.51.100.1"], [], "198.51.100.1"),
        ("::1", [], ['for="[2001:db8::5]:4711";proto=https;by=10.0.0.1'], "2001:db8::5"),
        ("::1", [], ["for=1.1.1.1, For=198.51.100.1;proto=http", "proto=http;for=10.0.0.9"], "198.51.100.1"),
        ("::1", [], ["for=_hidden"], "::1"),
        ("::1", ["198.51.100.1"], ["for=198.51.100.1"], "198.51.100.1"),
        ("::1", ["198.51.100.1"], ["for=1.1.1.1"], "::1"),
        ("::1", ["x" * 60_000], ["for=" * 15_000], "::1"),
        ("", ["198.51.100.1"], [], ""),
        ("testclient", ["198.51.100.1"], [], ""),
    ],
)
def test_only_trusted_proxies_say_who_asks(peer: str, x_forwarded_for: list[str], forwarded: list[str], found: str):
    assert find_client(peer, x_forwarded_for, forwarded, PROXIES) == found


def test_without_trusted_proxies_the_peer_asks():
    assert find_client("127.0.0.1", ["198.51.100.1"], ["for=198.51.100.1"], parse_networks("")) == "127.0.0.1"


def test_an_ipv6_client_is_its_network():
    assert network_of("2001:db8:1:2:3:4:5:6") == network_of("2001:db8:1:2::") == "2001:db8:1:2::/64"
    assert network_of("2001:db8:1:3::") == "2001:db8:1:3::/64"
    assert network_of("198.51.100.1") == "198.51.100.1"
    assert network_of("") == ""


@pytest.mark.parametrize("text", ["10.0.0.0/33", "proxy.example", "10.0.0.1 10.0.0.2", "10.0.0"])
def test_what_is_no_network_is_named(text: str):
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        parse_networks(f"10.0.0.1, {text}")
