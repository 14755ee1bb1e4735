"""What keeps the pages safe: headers, the cookie of a session, and the checks of every form."""

from __future__ import annotations

import hmac
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.people.model import IDLE_DAYS
from cmserver.base.errors import Forbidden
from cmserver.base.http.wire import base_path, is_https

COOKIE = "cmserver_session"
BROWSER_COOKIE = "cmserver_browser"
"""Tells the browser in which somebody has signed in by a password from those of strangers; it lets nobody in."""
_BROWSER_DAYS = 365

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    # Not no-referrer, as elsewhere: with it, browsers send `Origin: null` with forms, and some send no Sec-Fetch-Site over http.
    "Referrer-Policy": "same-origin",
}
"""Headers of every page, besides those of every answer (base.http.frame)."""

_FORGED = "This form was not sent from a page of this server. Open the page again, and send it from there."
_STALE = "This form is from before you signed in, so nothing was changed. Look at it, and send it again."


def check_origin(request: Request) -> None:
    """Forbidden for a form from a page of another site, as far as the browser says where it comes from."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        if site not in ("same-origin", "none"):
            raise Forbidden(_FORGED)
        return
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower():
        raise Forbidden(_FORGED)


def check_token(sent: str, expected: str) -> None:
    """Forbidden when the form does not carry the token of the session."""
    if not hmac.compare_digest(sent.encode(errors="replace"), expected.encode()):
        raise Forbidden(_STALE)


def is_cross_site(request: Request) -> bool:
    """Whether another site led here."""
    return request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none")


def session_token(request: Request) -> str | None:
    """The token in the session's cookie."""
    return request.cookies.get(COOKIE) or None


def browser_token(request: Request) -> str:
    """The token by which the browser is known; empty without one."""
    return request.cookies.get(BROWSER_COOKIE, "")


def set_browser_cookie(request: Request, response: Response, token: str) -> None:
    response.set_cookie(
        BROWSER_COOKIE,
        token,
        max_age=_BROWSER_DAYS * 86_400,
        path=f"{cookie_path(request)}/sign-in",
        secure=is_https(request),
        httponly=True,
        samesite="lax",
    )


def set_session_cookie(request: Request, response: Response, token: str) -> None:
    """Set the cookie; remove it for an empty token. Secure where the browser speaks https, also to a proxy before this server."""
    place, is_secure = cookie_path(request), is_https(request)
    if token:
        response.set_cookie(COOKIE, token, max_age=IDLE_DAYS * 86_400, path=place, secure=is_secure, httponly=True, samesite="lax")
    else:
        response.delete_cookie(COOKIE, path=place, secure=is_secure, httponly=True, samesite="lax")


def cookie_path(request: Request) -> str:
    """The path of the pages as the browser sees it."""
    return f"{base_path(request)}/ui"


def safe_next(path: str) -> str:
    """The page to open after signing in: one of ours, else the first."""
    is_page = (path == "/ui" or path.startswith(("/ui/", "/ui?"))) and path.isprintable() and "\\" not in path
    return path if is_page else "/ui"
