"""Links that are sent to people, and whether anybody can open them."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit


def warn_of_link(url: str, command: str) -> str | None:
    """What is wrong with a link that only this machine can open, and what to do; None for any other.

    `command` is the one that makes such a link.
    """
    host = urlsplit(url).hostname or ""
    try:
        address = ip_address(host)
        is_here = address.is_loopback or address.is_unspecified
    except ValueError:
        is_here = host == "localhost" or host.endswith(".localhost")
    if not is_here:
        return None
    return (
        f"The link names {host}, which other machines cannot open. Let the server listen for them (CMSERVER_HOST=0.0.0.0, or a "
        "proxy before it). Then make a new link by the name or address by which they reach it: open these pages by it and make the "
        f"link there, or run `{command} --url ADDRESS`."
    )
