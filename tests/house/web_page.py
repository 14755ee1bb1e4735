"""The reference of the web interface: every page and form, and who may open it. tests/doors/web/test_page_walk.py tries it."""

from __future__ import annotations

import inspect
from typing import Literal

from cmserver.access.model import SCOPES_BY_ROLE, Role
from cmserver.doors.web.page import Page
from cmserver.doors.web.routes import PAGES

Outcome = Literal["yes", "no", "sign in"]
ROLES: tuple[Role, ...] = ("viewer", "member", "owner")


def page_routes() -> list[Page]:
    """Every page and form."""
    return [route for route in PAGES if isinstance(route, Page)]


def outcome_signed_out(page: Page) -> Outcome:
    return "yes" if page.scope is None and not page.is_for_people else "sign in"


def outcome_of(page: Page, role: Role, *, is_operator: bool = False) -> Outcome:
    """Whether a person with that role may open it."""
    if page.is_for_operators:
        return "yes" if is_operator else "no"
    scopes = SCOPES_BY_ROLE[role]
    return "yes" if not page.scope or scopes & {page.scope, "admin"} else "no"


def web_page() -> str:
    """docs/reference/web.md."""
    rows = "\n".join(map(_row, sorted(page_routes(), key=lambda page: (page.path, page.method))))
    return _PAGE.format(rows=rows)


def _row(page: Page) -> str:
    description = (inspect.getdoc(page.handler) or "").partition("\n\n")[0].replace("\n", " ")
    needs = f"`{page.scope}`" if page.scope else ""
    return f"| `{page.method} {page.path}` | {_who(page)} | {needs} | {description} |"


def _who(page: Page) -> str:
    """The least of those who may open it."""
    if outcome_signed_out(page) == "yes":
        return "anybody"
    return next((role for role in ROLES if outcome_of(page, role) == "yes"), "operator")


_PAGE = """\
# Pages of the web interface

<!-- Generated from cmserver/doors/web/routes.py. -->

[How to use it](../howto/use-the-web-interface.md). Whatever a page shows or does, the [HTTP API](http.md) and the
[commands](cli.md) can, too. Everybody sees their own teams only: what belongs to another team is `Not found`.

A page may be opened by who stands there and by the roles above: a viewer, a member, an owner of the team. An operator of the server
opens what stands there for operators. Who is not signed in is led to the sign-in. A key may do what its
scopes say.

| address | who | scope | what it is |
|---|---|---|---|
{rows}

Every answer below `/ui` has the policy `default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';
img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'`. Every form needs the token of the session,
and is refused when the browser says that it comes from another site. Forms are `application/x-www-form-urlencoded`; a refused
one is answered by its page with the status of the API.
"""
