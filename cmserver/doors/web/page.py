"""A page: one method of one path below `/ui`. It finds who is signed in, checks forms, and answers refusals as pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from difflib import get_close_matches
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from cmserver.access.people.accounts import Accounts
from cmserver.base.db import read_as
from cmserver.base.errors import CmserverError, Conflict, Forbidden, Invalid, NotFound, RateLimited, Unauthenticated
from cmserver.base.http.operation import Method, Operation, TextAnswer
from cmserver.base.http.wire import dependency, proxied_user, refusal
from cmserver.base.ids import request_id
from cmserver.base.logs import get_logger
from cmserver.doors.web import security
from cmserver.doors.web.navigation import visible_items
from cmserver.doors.web.visit import CSRF_FIELD, Visit, wire_status

log = get_logger(__name__)

PageHandler = Callable[[Visit], Awaitable[Response]]

_SHOWN_IN_FORM = (Invalid, Conflict, Forbidden, NotFound, RateLimited)


class Page(Operation):
    """A page, or the target of a form.

    `scope` is what the visitor needs in their team ("" for everybody who is signed in, None for anybody). `is_for_operators` takes
    an operator of the server, and `is_for_people` anybody with an account, in a team or not. A POST with `form_of` shows that page
    again, with the error and what was typed, when what was sent is refused.
    The handler's docstring begins with the line of the page in docs/reference/web.md.
    """

    def __init__(
        self,
        method: Method,
        path: str,
        handler: PageHandler,
        *,
        scope: str | None,
        is_for_operators: bool = False,
        is_for_people: bool = False,
        form_of: PageHandler | None = None,
    ) -> None:
        super().__init__(method, path, self._respond, scope, TextAnswer("text/html", "The page."))
        self.handler = handler
        self.is_for_operators = is_for_operators
        self.is_for_people = is_for_people
        self.form_of = form_of

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle as any route does, with names that cannot exist as a page, too."""
        try:
            await super().handle(scope, receive, send)
        except NotFound as error:
            response = error_page(Visit(Request(scope, receive), None), error)
            await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        visit = Visit(request, None)
        try:
            visit = await start_visit(request)
            return await self._answer(visit)
        except Unauthenticated as error:
            if visit.signed_in is None and self.method == "GET":
                target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                return visit.redirect("/ui/sign-in", next="" if target == "/ui" else target)
            return error_page(visit, error, is_kept=self.form_of is not None)
        except CmserverError as error:
            return error_page(visit, error)
        except Exception:
            log.exception("request.failed", method=self.method, path=self.path)
            return error_page(visit, CmserverError("Internal error."))

    async def _answer(self, visit: Visit) -> Response:
        if self.method != "GET":
            security.check_origin(visit.request)
            await visit.read_form()  # before the visitor is refused: what was typed is given back
        await self._admit(visit)
        try:
            if self.method != "GET":
                _check_token(visit)
            return await self.handler(visit)
        except _SHOWN_IN_FORM as error:
            if self.form_of is None:
                raise
            visit.error = error
            return await self.form_of(visit)

    async def _admit(self, visit: Visit) -> None:
        """Count the request, and refuse what the visitor may not do."""
        if visit.signed_in is not None and visit.signed_in.principal is not None:
            read_as(visit.signed_in.principal.user_id)
        if self.scope is None and not self.is_for_people:
            return
        if visit.signed_in is None:
            raise Unauthenticated("Sign in first.")
        if self.scope is None:
            return
        if self.is_for_operators:
            if not visit.is_operator:
                raise Forbidden("This page is for operators of the server.")
            return
        await visit.dependency(Accounts).admit(visit.signed_in, self.scope)


def _check_token(visit: Visit) -> None:
    """Forbidden when somebody is signed in, and the form does not carry the token of their session."""
    if visit.signed_in is not None:
        sent = visit.submitted.get(CSRF_FIELD, [""])[-1] or visit.request.headers.get("x-cmserver-token", "")
        security.check_token(sent, visit.signed_in.csrf_token)


async def start_visit(request: Request) -> Visit:
    """The visit of who is named by a trusted proxy, or else is signed in by the request's cookie.

    Where a proxy names somebody, a cookie of before says nothing, and its session ends.
    """
    accounts, token, name = dependency(request, Accounts), security.session_token(request), proxied_user(request)
    if not name:
        return Visit(request, None if token is None else await accounts.find(token))
    visit = Visit(request, await accounts.find_by_proxy(name, Visit(request, None).client))
    if token is not None:
        await accounts.end_session(token)
        visit.set_session(None)
    return visit


async def no_page(request: Request) -> Response:
    """What is not found below `/ui`, with the pages that may have been meant."""
    return error_page(await start_visit(request), NotFound("There is no page at this address."))


def error_page(visit: Visit, error: CmserverError, *, is_kept: bool = False) -> Response:
    """The refusal as a page, in the words and with the status of the API, and with what was typed.

    `is_kept` offers to send the form again, once the visitor is signed in: without a token, so that it is shown, and nothing done.
    """
    wire = refusal(error, request_id())
    visit.error = None
    status = wire_status(error)
    response = visit.render(
        "error.html",
        title=_TITLES.get(status, "Error"),
        status=status,
        refusal=error,
        status_code=status,
        request_id=request_id(),
        suggestions=_suggestions(visit) if isinstance(error, NotFound) else [],
        sign_in_path=f"/ui/sign-in?next={quote(visit.path)}",
        is_kept=is_kept and bool(visit.typed),
    )
    for name in ("retry-after", "connection"):
        if name in wire.headers:
            response.headers[name] = wire.headers[name]
    return response


_TITLES = {
    400: "Not valid",
    401: "Sign in",
    402: "Used up",
    403: "Not allowed",
    404: "Not found",
    405: "Not allowed",
    409: "Conflict",
    410: "Gone",
    413: "Too large",
    429: "Too many requests",
    500: "Internal error",
    503: "Not available",
}


def _suggestions(visit: Visit) -> list[tuple[str, str]]:
    """Pages whose address is alike: the page that the address begins with, and those that are spelled almost so."""
    principal = visit.signed_in.principal if visit.signed_in else None
    items = {item.path: item.label for item in visible_items(principal, is_operator=visit.is_operator)}
    names = {path.removeprefix("/ui/"): path for path in items}
    alike = [names[name] for name in get_close_matches(visit.path.lower().removeprefix("/ui/"), names, n=3, cutoff=0.6)]
    begins = [path for path in items if path != "/ui" and visit.path.lower().startswith(f"{path}/")]
    return [(path, items[path]) for path in dict.fromkeys([*begins, *alike])]


class NoPage(Route):
    """All addresses below `/ui` that are no page."""

    def __init__(self) -> None:
        super().__init__("/ui/{rest:path}", no_page, methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
