"""The profile: one's password, sessions and teams."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from cmserver.access import announce
from cmserver.access.keys import manage as manage_keys
from cmserver.access.people import manage as manage_people
from cmserver.access.people import repository as people
from cmserver.access.people.accounts import Accounts
from cmserver.access.people.model import Password, User
from cmserver.base.errors import Forbidden, NotFound
from cmserver.base.notifications import NotificationListener
from cmserver.base.text import Text
from cmserver.doors.web.page import Page
from cmserver.doors.web.visit import Visit


class BoundKeyForm(msgspec.Struct, frozen=True):
    key: Annotated[Text, Meta(min_length=1, max_length=300)]


class PasswordForm(msgspec.Struct, frozen=True):
    current: str
    password: Password


async def get_profile(visit: Visit) -> Response:
    """Your password, where you are signed in, and your teams."""
    user = _require_person(visit)
    sessions = await visit.dependency(Accounts).run(lambda conn: people.sessions_of(conn, user.id))
    return visit.render("profile.html", title="Profile", user=user, sessions=sessions)


async def post_password(visit: Visit) -> Response:
    """Change your password; you are signed out everywhere else."""
    user = _require_person(visit)
    form = await visit.form(PasswordForm)
    accounts = visit.dependency(Accounts)
    await accounts.change_password(user, form.current, form.password, visit.client)
    visit.set_session(await accounts.start_session(visit.client, user_id=user.id))
    return visit.redirect("/ui/profile", "Your password is changed. You are signed out everywhere else.")


async def post_end_session(visit: Visit) -> Response:
    """Sign out one of your other browsers."""
    user = _require_person(visit)
    session_id = visit.id_parameter("id")
    if session_id is None or not await visit.dependency(Accounts).run(
        lambda conn: people.end_session_of(conn, user.id, session_id)
    ):
        raise NotFound("This session has ended already.")
    return visit.redirect("/ui/profile", "The session has ended.")


async def post_key(visit: Visit) -> Response:
    """Bind a key of before to yourself, once: what is yours alone is read with it."""
    _require_person(visit)
    form = await visit.form(BoundKeyForm)
    principal = visit.principal
    bound = await visit.dependency(Accounts).run(lambda conn: manage_keys.bind(conn, principal, form.key.strip()))
    announce.drop_cached_here(visit.dependency(NotificationListener), principal.team_id)
    return visit.redirect("/ui/profile", f"The key {bound.name or bound.id} is yours.")


async def post_leave(visit: Visit) -> Response:
    """Leave the current team; the keys and invitations that you made in it end."""
    user = _require_person(visit)
    principal = visit.principal
    left = await visit.dependency(Accounts).run(lambda conn: manage_people.remove_member(conn, principal, str(user.id)))
    return visit.redirect("/ui/profile", f"You left {principal.team_name}. Keys revoked: {len(left.keys)}.")


def _require_person(visit: Visit) -> User:
    if visit.signed_in is None or visit.signed_in.user is None:
        raise Forbidden("A key has no profile. Sign in with an account.")
    return visit.signed_in.user


routes = [
    Page("GET", "/ui/profile", get_profile, scope=None, is_for_people=True),
    Page("POST", "/ui/profile/password", post_password, scope=None, is_for_people=True, form_of=get_profile),
    Page("POST", "/ui/profile/sessions/{id}/end", post_end_session, scope=None, is_for_people=True, form_of=get_profile),
    Page("POST", "/ui/profile/key", post_key, scope=None, is_for_people=True, form_of=get_profile),
    Page("POST", "/ui/profile/leave", post_leave, scope=None, is_for_people=True, form_of=get_profile),
]
