"""The team: its members, invitations and limits, and its name in the server."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import Response

from cmserver.access import announce, teams
from cmserver.access.limits import repository as limits
from cmserver.access.model import READERS_OF_WORDS, Role, WordsFor
from cmserver.access.people import manage as manage_people
from cmserver.access.people import repository as people
from cmserver.access.people.accounts import Accounts
from cmserver.access.people.links import warn_of_link
from cmserver.access.people.model import Invitation
from cmserver.base import lookalikes
from cmserver.base.errors import NotFound
from cmserver.base.notifications import NotificationListener
from cmserver.base.text import Text
from cmserver.doors.web.page import Page
from cmserver.doors.web.retention_form import RetentionForm, usual_values
from cmserver.doors.web.visit import Visit
from cmserver.redaction.redact import redact


class InvitationForm(msgspec.Struct, frozen=True):
    once: str
    role: Role = "member"
    note: Annotated[Text, Meta(max_length=100)] = ""
    operator: bool = False


class RulesForm(msgspec.Struct, frozen=True):
    approves_rules: bool = False


class WordsForm(msgspec.Struct, frozen=True):
    words: WordsFor


class RoleForm(msgspec.Struct, frozen=True):
    role: Role


async def get_team(visit: Visit) -> Response:
    """The members of the team, open invitations, and its limits."""
    principal = visit.principal
    teams.require_team_key(principal)
    accounts = visit.dependency(Accounts)
    members = await accounts.run(lambda conn: people.members(conn, principal.team_id))
    invitations: list[Invitation] = []
    if visit.may("admin"):
        invitations = await accounts.run(lambda conn: people.invitations(conn, principal.team_id))
    async with visit.tenant() as conn:
        team = await teams.require_team(conn, principal, str(principal.team_id))
        usage = await limits.used(conn, principal.team_id, api_key_id=None)
    return visit.render(
        "team.html",
        title="Team",
        team=team,
        usual_retention=usual_values(team.retention),
        members=members,
        invitations=invitations,
        usage=usage,
        readers_of_words=READERS_OF_WORDS,
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
    link = f"{visit.server_url}/ui/join/{new.token}"
    return visit.render(
        "invited.html",
        title="Invitation",
        status=201,
        invitation=new.invitation,
        link=link,
        link_warning=warn_of_link(link, "cmserver users invite"),
        readers_of_words=READERS_OF_WORDS,
    )


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


async def post_rules(visit: Visit) -> Response:
    """Say whether rules that a model or an agent's tool writes count only after a person's yes."""
    form = await visit.form(RulesForm)
    principal = visit.principal
    changes = teams.TeamChange(approves_rules=form.approves_rules)
    await visit.db.in_tenant(visit.team_id, lambda conn: teams.change(conn, principal, str(principal.team_id), changes))
    announce.drop_cached_here(visit.dependency(NotificationListener), visit.team_id)
    done = "They count after a person's yes from now on." if form.approves_rules else "Every rule counts at once from now on."
    return visit.redirect("/ui/team", done)


async def post_words(visit: Visit) -> Response:
    """Say who reads what others of the team and their agents said."""
    form = await visit.form(WordsForm)
    principal = visit.principal
    changes = teams.TeamChange(words=form.words)
    await visit.db.in_tenant(visit.team_id, lambda conn: teams.change(conn, principal, str(principal.team_id), changes))
    announce.drop_cached_here(visit.dependency(NotificationListener), visit.team_id)
    return visit.redirect("/ui/team", f"From now on {READERS_OF_WORDS[form.words]}.")


async def post_role(visit: Visit) -> Response:
    """Change a member's role."""
    principal = visit.principal
    form = await visit.form(RoleForm)
    reference = visit.parameter("user")
    changed = await visit.dependency(Accounts).run(lambda conn: manage_people.set_role(conn, principal, reference, form.role))
    less = f" Keys of theirs that may less: {changed.narrowed_keys}." if changed.narrowed_keys else ""
    ended = f" Invitations withdrawn: {changed.invitations}." if changed.invitations else ""
    return visit.redirect("/ui/team", f"{changed.member.name} is {changed.member.role} now.{less}{ended}")


async def post_remove(visit: Visit) -> Response:
    """Remove a member from the team, and end their keys, and the keys and invitations that they made in it."""
    principal = visit.principal
    reference = visit.parameter("user")
    removed = await visit.dependency(Accounts).run(lambda conn: manage_people.remove_member(conn, principal, reference))
    ended = f"Keys revoked: {len(removed.keys)}. Invitations withdrawn: {removed.invitations}."
    others = ", ".join(f"{key.actor_id} ({key.name or key.id})" for key in removed.other_keys)
    new = f" These keys were others': {others}." if others else ""
    return visit.redirect("/ui/team", f"{removed.member.name} is out of the team. {ended}{new}")


routes = [
    Page("GET", "/ui/team", get_team, scope=""),
    Page("POST", "/ui/team/retention", post_retention, scope="admin", form_of=get_team),
    Page("POST", "/ui/team/words", post_words, scope="admin", form_of=get_team),
    Page("POST", "/ui/team/rules", post_rules, scope="admin", form_of=get_team),
    Page("POST", "/ui/team/invitations", post_invitation, scope="admin", form_of=get_team),
    Page("POST", "/ui/team/invitations/{id}/withdraw", post_withdraw, scope="admin", form_of=get_team),
    Page("POST", "/ui/team/people/{user:path}/role", post_role, scope="admin", form_of=get_team),
    Page("POST", "/ui/team/people/{user:path}/remove", post_remove, scope="admin", form_of=get_team),
]
