"""Signing in and out, links of invitations and of new passwords, and switching teams."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from cmserver.access.clean import clean_name
from cmserver.access.model import READERS_OF_WORDS, Principal
from cmserver.access.people import repository as people
from cmserver.access.people.accounts import Accounts
from cmserver.access.people.model import MAX_PASSWORD_CHARS, USER_NAME_MOST, Password, UserName
from cmserver.base.errors import Invalid, NotFound
from cmserver.base.http.wire import Authentication, base_path
from cmserver.base.text import Line
from cmserver.doors.web import security
from cmserver.doors.web.page import Page
from cmserver.doors.web.visit import Visit


class SignInForm(msgspec.Struct, frozen=True):
    name: UserName
    password: Annotated[str, Meta(max_length=MAX_PASSWORD_CHARS)]
    next: Line = "/ui"


class KeySignInForm(msgspec.Struct, frozen=True):
    key: Line
    next: Line = "/ui"


class NewAccountForm(msgspec.Struct, frozen=True):
    name: UserName
    password: Password


class NewPasswordForm(msgspec.Struct, frozen=True):
    password: Password


async def get_sign_in(visit: Visit) -> Response:
    """Sign in by name and password, or by an API key."""
    accounts = visit.dependency(Accounts)
    sent = visit.submitted.get("next") or visit.request.query_params.getlist("next")
    has_users = await accounts.run(people.any_user)
    return visit.render("sign_in.html", title="Sign in", next=security.safe_next(sent[-1] if sent else "/ui"), has_users=has_users)


async def post_sign_in(visit: Visit) -> Response:
    """Start a session of a person."""
    form = await visit.form(SignInForm)
    accounts, browser_token = visit.dependency(Accounts), security.browser_token(visit.request)
    token = await accounts.sign_in(form.name, form.password, visit.client, browser_token=browser_token)
    return await _start(visit, token, form.next, name=form.name)


async def post_sign_in_key(visit: Visit) -> Response:
    """Start a session of a key."""
    form = await visit.form(KeySignInForm)
    authenticate = visit.dependency(Authentication).authenticate
    principal = await authenticate(form.key.strip(), "", visit.client.address)
    assert isinstance(principal, Principal)
    token = await visit.dependency(Accounts).sign_in_with_key(principal, visit.client)
    return await _start(visit, token, form.next)


async def post_sign_out(visit: Visit) -> Response:
    """End the session."""
    if token := security.session_token(visit.request):
        await visit.dependency(Accounts).end_session(token)
    visit.set_session(None)
    return visit.redirect("/ui/sign-in", notice="You are signed out.")


async def get_join(visit: Visit) -> Response:
    """The link of an invitation: make an account, or join with the one that is signed in."""
    invitation = await visit.dependency(Accounts).find_invitation(visit.parameter("token"))
    return visit.render("join.html", title=f"Join {invitation.team_name}", invitation=invitation, readers_of_words=READERS_OF_WORDS)


async def post_join(visit: Visit) -> Response:
    """Make an account by an invitation, and sign in."""
    accounts = visit.dependency(Accounts)
    form = await visit.form(NewAccountForm)
    name = clean_name(form.name, at="$.name")
    if len(name) > USER_NAME_MOST:
        raise Invalid.at("$.name", "Choose a shorter name.")
    user = await accounts.accept_as_new(visit.parameter("token"), name, form.password)
    return await _start(visit, await accounts.start_session(visit.client, user_id=user.id), "/ui", name=user.name)


async def post_accept(visit: Visit) -> Response:
    """Join a team with the account that is signed in."""
    accounts = visit.dependency(Accounts)
    if visit.signed_in is None or visit.signed_in.user is None:
        raise Invalid("Sign in with your account first.")
    invitation = await accounts.accept(visit.parameter("token"), visit.signed_in.user)
    await accounts.switch_team(visit.signed_in, invitation.team_id)
    return visit.redirect("/ui", notice=f"You belong to {invitation.team_name} now.")


async def get_reset(visit: Visit) -> Response:
    """The link for a new password."""
    user = await visit.dependency(Accounts).find_reset(visit.parameter("token"))
    return visit.render("reset.html", title="New password", user=user)


async def post_reset(visit: Visit) -> Response:
    """Set a new password by a link, and sign in."""
    accounts = visit.dependency(Accounts)
    form = await visit.form(NewPasswordForm)
    user = await accounts.reset_password(visit.parameter("token"), form.password)
    return await _start(visit, await accounts.start_session(visit.client, user_id=user.id), "/ui", name=user.name)


async def get_switch(visit: Visit) -> Response:
    """Work in another team of yours. A link from another site only leads to the first page."""
    if not security.is_cross_site(visit.request):
        signed_in = visit.signed_in
        team = next((team for team in signed_in.teams if team.team_id == visit.id_parameter("team")), None) if signed_in else None
        if signed_in is None or team is None:
            raise NotFound("You do not belong to this team.")
        await visit.dependency(Accounts).switch_team(signed_in, team.team_id)
    return visit.redirect(security.safe_next(visit.request.query_params.get("next", "/ui")))


async def _start(visit: Visit, token: str, next_path: str, *, name: str = "") -> Response:
    """Answer with the cookie of the new session; a session that the browser had before ends.

    `name` is whose password was right: the browser is known from now on.
    """
    if former := security.session_token(visit.request):
        await visit.dependency(Accounts).end_session(former)
    visit.set_session(token)
    response = visit.redirect(security.safe_next(next_path))
    if name:
        security.set_browser_cookie(visit.request, response, visit.dependency(Accounts).new_browser_token(name))
    return response


async def get_root(request: Request) -> Response:
    """The address of the server leads to the pages."""
    return RedirectResponse(f"{base_path(request)}/ui", 303)


routes = [
    Route("/", get_root, methods=["GET"]),
    Page("GET", "/ui/sign-in", get_sign_in, scope=None),
    Page("POST", "/ui/sign-in", post_sign_in, scope=None, form_of=get_sign_in),
    Page("POST", "/ui/sign-in/key", post_sign_in_key, scope=None, form_of=get_sign_in),
    Page("POST", "/ui/sign-out", post_sign_out, scope=None),
    Page("GET", "/ui/join/{token}", get_join, scope=None),
    Page("POST", "/ui/join/{token}", post_join, scope=None, form_of=get_join),
    Page("POST", "/ui/join/{token}/accept", post_accept, scope=None, form_of=get_join),
    Page("GET", "/ui/reset/{token}", get_reset, scope=None),
    Page("POST", "/ui/reset/{token}", post_reset, scope=None, form_of=get_reset),
    Page("GET", "/ui/switch/{team}", get_switch, scope=None),
]
