"""Which host names a client may use for this server, and which web pages may call it.

Without this check a web page could reach a server on the user's machine by pointing its own name here (DNS rebinding). Names are
compared without ports; IP addresses cannot be rebound.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from cmserver.base.errors import Forbidden, Misdirected
from cmserver.base.settings import Settings
from cmserver.base.text import split_commas

_ANY = "*"


class AllowedHosts:
    """The hosts and origins that the operator allows."""

    def __init__(self, settings: Settings) -> None:
        self._hosts = {name.rstrip("/") for name in split_commas(settings.allowed_hosts.lower())}
        """Names, and origins, which have a scheme."""

    def check(self, hosts: Sequence[str], origins: Sequence[str]) -> None:
        """Misdirected for a host that is not allowed, Forbidden for an origin that is not."""
        if len(hosts) != 1 or not self._is_allowed_host(hosts[0]):
            raise Misdirected("This server is not known by that name. Its operator can list it in CMSERVER_ALLOWED_HOSTS.")
        if any(not self._is_allowed_origin(origin) for origin in origins):
            raise Forbidden("Web pages of that origin may not ask this server. Its operator can list it in CMSERVER_ALLOWED_HOSTS.")

    def _is_allowed_host(self, host: str) -> bool:
        name = _host_name(f"//{host}")
        if name is None:
            return False
        return _is_loopback(name) or _address(name) is not None or bool({_ANY, name, host.lower()} & self._hosts)

    def _is_allowed_origin(self, origin: str) -> bool:
        name = _host_name(origin)
        return origin.lower() in self._hosts or (name is not None and _is_loopback(name))


def _host_name(url: str) -> str | None:
    """The host of an origin in lower case, without port; None when it has more than scheme, host and port."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    is_plain = not (parts.path or parts.query or parts.fragment or "@" in parts.netloc)
    return parts.hostname if is_plain else None


def _is_loopback(name: str) -> bool:
    address = _address(name)
    return name == "localhost" or name.endswith(".localhost") or (address is not None and address.is_loopback)


def _address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(name)
    except ValueError:
        return None
