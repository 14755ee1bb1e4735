"""The team: its people, invitations and limits, and its name in the server."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from cmserver.access import announce, teams
from cmserver.access import repository as access
from cmserver.access.limits import repository as limits
from cmserver.access.model import PersonRole
from cmserver.access.people import manage as manage_people
from cmserver.access.people import repository as people
from cmserver.access.people.accounts import Accounts
from cmserver.access.people.model import Invitation
from cmserver.base import lookalikes
from cmserver.base.errors import NotFound
from cmserver.base.notifications import NotificationListener
from cmserver.base.text import Text
from cmserver.redaction.redact import redact
from cmserver.web.page import Page
from cmserver.web.retention_form import RetentionForm
from cmserver.web.visit import Visit

_MAX_MEMBERS = 200


class InvitationForm(msgspec.Struct, frozen=True):
    once: str
    role: PersonRole = "member"
    note: Annotated[Text, Meta(max_length=100)] = ""
    operator: bool = False


class RoleForm(msgspec.Struct, frozen=True):
    role: PersonRole


async def get_team(visit: Visit) -> Response:
    """The people of the team, open invitations, and its limits."""
    principal = visit.principal
    teams.require_team_key(principal)
    accounts = visit.dependency(Accounts)
    persons = await accounts.run(lambda conn: people.people_of(conn, principal.team_id))
    invitations: list[Invitation] = []
    if visit.may("admin"):
        invitations = await accounts.run(lambda conn: people.invitations(conn, principal.team_id))
    async with visit.tenant() as conn:
        team = await teams.require_team(conn, principal, str(principal.team_id))
        members = await access.members(conn, principal.team_id, before=None, after=None, limit=_MAX_MEMBERS)
        usage = await limits.used(conn, principal.team_id, api_key_id=None)
    names = {person.name for person in persons}
    return visit.render(
        "team.html",
        title="Team",
        team=team,
        people=persons,
        invitations=invitations,
        members=[member for member in members if member.user_id not in names],
        usage=usage,
    )


async def post_invitation(visit: Visit) -> Response:
    """Make an invitation; its link shows once."""
    principal = visit.principal
    teams.require_team_key(principal)
    form = await visit.form(InvitationForm)
    note = lookalikes.clean_name(redact(form.note)[0])
    new = await visit.dependency(Accounts).run(
        lambda conn: manage_people.invite(
            conn, principal, form.role, note=note, makes_operator=form.operator, invitation_id=visit.form_id(form.once)
        )
    )
    link = f"{str(visit.request.base_url).rstrip('/')}/ui/join/{new.token}"
    return visit.render("invited.html", title="Invitation", status=201, invitation=new.invitation, link=link)


async def post_withdraw(visit: Visit) -> Response:
    """Withdraw an invitation."""
    principal = visit.principal
    invitation_id = visit.id_parameter("id")
    if invitation_id is None:
        raise NotFound("Invitation not found. It may have been used.")
    await visit.dependency(Accounts).run(lambda conn: manage_people.uninvite(conn, principal, invitation_id))
    return visit.redirect("/ui/team", "The invitation is withdrawn.")


async def post_retention(visit: Visit) -> Response:
    """Set how long what of the team is kept, and what is merged."""
    form = await visit.form(RetentionForm)
    principal = visit.principal
    changes = teams.TeamChange(retention=form.policy)
    await visit.db.in_tenant(visit.team_id, lambda conn: teams.change(conn, principal, str(principal.team_id), changes))
    announce.drop_cached_here(visit.dependency(NotificationListener), visit.team_id)
    return visit.redirect("/ui/team", "Retention is saved.")


async def post_role(visit: Visit) -> Response:
    """Change what a person is in the team."""
    principal = visit.principal
    form = await visit.form(RoleForm)
    reference = visit.parameter("user")
    changed = await visit.dependency(Accounts).run(lambda conn: manage_people.set_role(conn, principal, reference, form.role))
    less = f" Keys of theirs that may less: {changed.narrowed_keys}." if changed.narrowed_keys else ""
    ended = f" Invitations withdrawn: {changed.invitations}." if changed.invitations else ""
    return visit.redirect("/ui/team", f"{changed.person.name} is {changed.person.role} now.{less}{ended}")


async def post_remove(visit: Visit) -> Response:
    """Take a person out of the team, and end the keys and invitations that they made in it."""
    principal = visit.principal
    reference = visit.parameter("user")
    removed = await visit.dependency(Accounts).run(lambda conn: manage_people.remove_person(conn, principal, reference))
    ended = f"Keys revoked: {len(removed.keys)}. Invitations withdrawn: {removed.invitations}."
    others = ", ".join(f"{key.actor_id} ({key.name or key.id})" for key in removed.other_keys)
    new = f" These keys were others': {others}." if others else ""
    return visit.redirect("/ui/team", f"{removed.person.name} is out of the team. {ended}{new}")


routes = [
    Page("GET", "/ui/team", get_team, scope=""),
    Page("POST", "/ui/team/retention", post_retention, scope="admin", form_of=get_team),
    Page("POST", "/ui/team/invitations", post_invitation, scope="admin", form_of=get_team),
    Page("POST", "/ui/team/invitations/{id}/withdraw", post_withdraw, scope="admin", form_of=get_team),
    Page("POST", "/ui/team/people/{user}/role", post_role, scope="admin", form_of=get_team),
    Page("POST", "/ui/team/people/{user}/remove", post_remove, scope="admin", form_of=get_team),
]
