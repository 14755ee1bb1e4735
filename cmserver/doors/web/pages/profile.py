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
from cmserver.access.people.model import FORMER_MEMBER, Password, RemovedMember, User
from cmserver.base.errors import Forbidden, NotFound
from cmserver.base.notifications import NotificationListener
from cmserver.base.sql import Conn
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
    left = await visit.dependency(Accounts).run(lambda conn: people.left_memories(conn, user.id))
    return visit.render("profile.html", title="Profile", user=user, sessions=sessions, left=left, former=FORMER_MEMBER)


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


class LeaveForm(msgspec.Struct, frozen=True):
    """Under which name what the person gave the team stays."""

    as_former: bool = False


async def post_leave(visit: Visit) -> Response:
    """Leave the current team; the keys and invitations that you made in it end, and what is yours alone is kept for you."""
    user = _require_person(visit)
    principal = visit.principal.at_home
    form = await visit.form(LeaveForm)

    async def leave(conn: Conn) -> RemovedMember:
        removed = await manage_people.remove_member(conn, principal, str(user.id))
        if form.as_former:
            newest = next(one for one in await people.left_memories(conn, user.id) if one.team_id == principal.team_id)
            await manage_people.become_former(conn, user.id, newest.id)
        return removed

    left = await visit.dependency(Accounts).run(leave)
    return visit.redirect("/ui/profile", f"You left {principal.team_name}. Keys revoked: {len(left.keys)}.")


async def get_left(visit: Visit) -> Response:
    """Download what was yours alone in a team that you have left."""
    user, left_id = _require_person(visit), visit.id_parameter("id")
    content = None
    if left_id is not None:
        content = await visit.dependency(Accounts).run(lambda conn: people.left_content(conn, user.id, left_id))
    if content is None:
        raise NotFound(manage_people.NO_LEFT)
    return visit.download(msgspec.json.encode(content), name="cmserver-mine.json", media_type="application/json")


async def post_left_deletion(visit: Visit) -> Response:
    """Delete for ever what was yours alone in a team that you have left."""
    user, left_id = _require_person(visit), visit.id_parameter("id")
    if left_id is None or not await visit.dependency(Accounts).run(lambda conn: people.delete_left(conn, user.id, left_id)):
        raise NotFound(manage_people.NO_LEFT)
    return visit.redirect("/ui/profile", "It is deleted for ever.")


async def post_left_former(visit: Visit) -> Response:
    """Let what you gave a team that you have left stand as a former member's."""
    user, left_id = _require_person(visit), visit.id_parameter("id")
    if left_id is None:
        raise NotFound(manage_people.NO_LEFT)
    team = await visit.dependency(Accounts).run(lambda conn: manage_people.become_former(conn, user.id, left_id))
    return visit.redirect("/ui/profile", f"What you gave {team} is {FORMER_MEMBER}'s now.")


def _require_person(visit: Visit) -> User:
    if visit.signed_in is None or visit.signed_in.user is None:
        raise Forbidden("A key has no profile. Sign in with an account.")
    return visit.signed_in.user


routes = [
    Page("GET", "/ui/profile", get_profile, scope=None, is_for_people=True),
    Page("POST", "/ui/profile/password", post_password, scope=None, is_for_people=True, form_of=get_profile),
    Page("POST", "/ui/profile/sessions/{id}/end", post_end_session, scope=None, is_for_people=True, form_of=get_profile),
    Page("POST", "/ui/profile/key", post_key, scope=None, is_for_people=True, form_of=get_profile),
    Page("GET", "/ui/profile/left/{id}", get_left, scope=None, is_for_people=True),
    Page("POST", "/ui/profile/left/{id}/delete", post_left_deletion, scope=None, is_for_people=True, form_of=get_profile),
    Page("POST", "/ui/profile/left/{id}/former", post_left_former, scope=None, is_for_people=True, form_of=get_profile),
    Page("POST", "/ui/profile/leave", post_leave, scope=None, is_for_people=True, form_of=get_profile),
]
