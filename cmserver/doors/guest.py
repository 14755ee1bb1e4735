"""Who sends a request to a path of another system: the owner of its key, or a guest on this machine.

The hooks of claude-mem send no key in worker mode. Where the operator has named a team (CMSERVER_TRUST_LOOPBACK), a program on this
machine may do for it what such hooks do. That a request comes from this machine is not enough: a proxy here hands on what others
ask, and a browser here what any web page wants.
"""

from __future__ import annotations

import re
from ipaddress import ip_address

from starlette.requests import Request

from cmserver.access.loopback import LoopbackAccess
from cmserver.access.model import Principal
from cmserver.base.errors import Unauthenticated
from cmserver.base.http.wire import caller, dependency, required_scope
from cmserver.base.logs import get_logger

log = get_logger(__name__)

_HERE = re.compile(r"(?:localhost|127(?:\.[0-9]{1,3}){3}|\[::1\])(?::[0-9]{1,5})?", re.IGNORECASE)
_HANDED_ON = frozenset(
    {
        "forwarded",
        "via",
        "client-ip",
        "true-client-ip",
        "fastly-client-ip",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-originating-ip",
        "x-proxyuser-ip",
        "x-real-ip",
        "x-remote-addr",
        "x-remote-ip",
        "cdn-loop",
        "x-scheme",
        "x-host",
    }
)
_HANDED_ON_BEGINNINGS = (
    "x-forwarded",
    "x-forward-",
    "x-original-",
    "x-envoy-",
    "x-amzn-",
    "x-azure-",
    "x-appengine-",
    "x-arr-",
    "x-cloud-",
    "x-nginx-",
    "x-rewrite-",
    "x-vercel-",
    "fly-",
    "cf-",
    "tailscale-",
    "ngrok-",
)
_OWN_NAMES = frozenset({"authorization", "x-api-key"})
_BY_PERSON = frozenset({"none", "same-origin"})


async def admit_caller(request: Request, *, more_scopes: frozenset[str] = frozenset()) -> Principal:
    """The principal of the key; without a key a guest with the scope, if this server has guests. Refuses as `caller` does.

    `more_scopes` are those that guests have on this path besides their usual ones.
    """
    guests = dependency(request, LoopbackAccess)
    if guests.is_enabled and not _OWN_NAMES.intersection(request.headers):
        why_not = _why_no_guest(request)
        if why_not is None:
            return await guests.admit(required_scope(request), more_scopes=more_scopes)
        log.info("access.denied", reason=why_not)
    try:
        return await caller(request, Principal)
    except Unauthenticated as error:
        if _OWN_NAMES.intersection(request.headers):
            raise
        raise Unauthenticated(
            f"{error} Callers on the server's own machine need none where CMSERVER_TRUST_LOOPBACK names a team."
        ) from error


def _why_no_guest(request: Request) -> str | None:
    """What says that the request may not be of a program on this machine; None when nothing does."""
    headers = request.headers
    if request.client is None or not _is_loopback(request.client.host):
        return "guest_from_elsewhere"
    hosts = headers.getlist("host")
    if len(hosts) != 1 or not _HERE.fullmatch(hosts[0]):
        return "guest_asks_for_other_host"
    names = {name.lower().replace("_", "-") for name in headers}
    # In HTTP/1.0 nginx asks where nobody has told it more: under the address that it was told, and without a word of who asks it.
    is_old = request.scope["http_version"] == "1.0"
    if is_old or names & _HANDED_ON or any(name.startswith(_HANDED_ON_BEGINNINGS) for name in names):
        return "guest_through_proxy"
    if not names.isdisjoint({"origin", "referer"}) or not _BY_PERSON.issuperset(headers.getlist("sec-fetch-site")):
        return "guest_is_web_page"
    # Older browsers say nothing of themselves. A page can make them post texts and forms without asking, but no JSON.
    is_json = headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"
    if request.method == "POST" and not is_json and not _is_empty(request):
        return "guest_is_web_page"
    return None


def _is_empty(request: Request) -> bool:
    """Whether nothing is sent and no type of it is named, as by no form of a web page."""
    headers = request.headers
    has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
    return "content-type" not in headers and not has_body


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
