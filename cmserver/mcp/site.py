"""By which names this server may be asked, and by whose web pages.

A page that a browser on this machine shows could ask a server here under the page's own name, once its name leads here (DNS
rebinding). Names are compared without their ports, and an address is no name that somebody else could turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

from cmserver.base.errors import Forbidden, Misdirected
from cmserver.base.settings import Settings

_ANY = "*"


class Site:
    """What an operator allows."""

    def __init__(self, settings: Settings) -> None:
        self._hosts = _listed(settings.allowed_hosts)
        self._origins = {one.rstrip("/") for one in _listed(settings.allowed_origins)}

    def check(self, hosts: Sequence[str], origins: Sequence[str]) -> None:
        """Misdirected for a name that is not this server's, Forbidden for a page that may not ask it."""
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            raise Misdirected("This server is not known by that name. Its operator can list it in CMSERVER_ALLOWED_HOSTS.")
        if any(not self._may_ask(origin) for origin in origins):
            raise Forbidden(
                "Web pages of that origin may not ask this server. Its operator can list it in CMSERVER_ALLOWED_ORIGINS."
            )

    def _is_ours(self, host: str) -> bool:
        name = _name(f"//{host}")
        return name is not None and (_is_here(name) or bool({_ANY, name, host.lower()} & self._hosts))

    def _may_ask(self, origin: str) -> bool:
        name = _name(origin)
        return bool({_ANY, origin.lower()} & self._origins) or (name is not None and _is_loopback(name))


def _listed(said: str) -> set[str]:
    return {one.strip().lower() for one in said.split(",") if one.strip()}


def _name(url: str) -> str | None:
    """In lower case, without port; None where there is none."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    is_plain = not (parts.path or parts.query or parts.fragment or "@" in parts.netloc)
    return parts.hostname if is_plain else None


def _is_here(name: str) -> bool:
    """Whether nobody else can make the name lead here: an address, or a name of this machine."""
    return _is_loopback(name) or _address(name) is not None


def _is_loopback(name: str) -> bool:
    address = _address(name)
    return name == "localhost" or name.endswith(".localhost") or (address is not None and address.is_loopback)


def _address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(name)
    except ValueError:
        return None
