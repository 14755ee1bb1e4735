"""Finds the client's address behind trusted proxies (CMSERVER_TRUSTED_PROXIES)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Networks = Sequence[IPv4Network | IPv6Network]

_FOR = re.compile(r'(?:^|[;,])\s*for\s*=\s*("[^"]*"|[^;,\s]*)', re.IGNORECASE)
_MAX_HOPS = 50
"""Proxies in a chain."""


def parse_networks(text: str) -> Networks:
    """Addresses and networks (10.0.0.0/8), separated by commas. ValueError names the part that is neither."""
    networks: list[IPv4Network | IPv6Network] = []
    for part in filter(None, map(str.strip, text.split(","))):
        try:
            networks.append(ip_network(part, strict=False))
        except ValueError as error:
            raise ValueError(f"{part!r} is not an address or network such as 10.0.0.7 or 10.0.0.0/8") from error
    return networks


def find_client(peer: str, x_forwarded_for: Sequence[str], forwarded: Sequence[str], proxies: Networks) -> str:
    """The nearest address that is not a trusted proxy; empty for a Unix socket.

    A client can forge a header that its proxy does not write: where the two headers differ, neither counts.
    """
    address = _parsed(peer)
    if address is None or not _is_in(address, proxies):
        return str(address or "")
    plain = [part for line in x_forwarded_for for part in line.split(",")]
    structured: list[str] = [hop for line in forwarded for hop in _FOR.findall(line)]
    claimed = {_nearest(address, hops, proxies) for hops in (plain, structured) if hops}
    return str(claimed.pop() if len(claimed) == 1 else address)


def is_proxy(peer: str, proxies: Networks) -> bool:
    """Whether the other end of the connection is a trusted proxy."""
    address = _parsed(peer)
    return address is not None and _is_in(address, proxies)


def network_of(address: str) -> str:
    """What counts as one client: an IPv4 address, or the /64 network of an IPv6 address."""
    parsed = _parsed(address)
    return str(ip_network((parsed, 64), strict=False)) if isinstance(parsed, IPv6Address) else address


def _nearest(address: Address, hops: Sequence[str], proxies: Networks) -> Address:
    """The address nearest to the server, going through the hops from the last one, that is no trusted proxy."""
    for hop in reversed(hops[-_MAX_HOPS:]):
        before = _parsed(hop.strip().strip('"'))
        if before is None:  # `unknown`, or an obfuscated name
            return address
        address = before
        if not _is_in(address, proxies):
            break
    return address


def _parsed(text: str) -> Address | None:
    """An address, also with a port (`10.0.0.7:80`, `[::1]:80`). IPv4 within IPv6 is IPv4."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def _is_in(address: Address, networks: Networks) -> bool:
    return any(address in network for network in networks)
