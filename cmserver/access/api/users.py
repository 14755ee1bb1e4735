"""People: who belongs to the team, invitations, and links for a new password."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cmserver.access import verb
from cmserver.access.model import Role
from cmserver.access.people import manage as manage_people
from cmserver.access.people import repository as people
from cmserver.access.people import wire as people_wire
from cmserver.access.people.accounts import Accounts
from cmserver.access.people.links import warn_of_link
from cmserver.access.people.model import Member, RemovedMember
from cmserver.access.verb import VerbCall, command, option
from cmserver.base import lookalikes
from cmserver.base.columns import Columns, format_time
from cmserver.base.errors import Invalid
from cmserver.base.ids import require_id
from cmserver.base.sql import Conn
from cmserver.base.structs import reshape
from cmserver.base.text import Text
from cmserver.redaction.redact import redact

_MAX_ACCOUNTS = 1000
_NO_OPERATOR = "Operator only: --operator, or a key with the scope *."


class InvitationIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """POST of an invitation. `note` is whom it is for; `operator` is whether it makes an operator of the server (scope `*`)."""

    role: Role = "member"
    note: Annotated[Text, Meta(max_length=100)] = ""
    operator: bool = False


class PersonChangeIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """PATCH of a person: what is not sent stays. `operator` is whether they administer the whole server; it takes the scope `*`."""

    user: str
    role: Role | UnsetType = UNSET
    operator: bool | UnsetType = UNSET


@verb.get("/v1/users", "", whole_team=True)
async def get_users(call: VerbCall) -> people_wire.PeopleOut:
    """The people of the team, by name."""
    members = await call.dependency(Accounts).run(lambda conn: people.members(conn, call.principal.team_id))
    return people_wire.PeopleOut(users=[people_wire.person_out(one) for one in members if one.account_id], next_cursor=None)


@verb.get("/v1/users/accounts", "*", whole_team=True)
async def get_accounts(call: VerbCall) -> people_wire.AccountsOut:
    """The accounts of the whole server, by name, for its operator."""
    users = await call.dependency(Accounts).run(lambda conn: people.users(conn, limit=_MAX_ACCOUNTS))
    return people_wire.AccountsOut(accounts=[reshape(user, people_wire.AccountOut) for user in users])


_INVITATIONS = Columns(
    people_wire.InvitationOut,
    "id, role, operator, note, by=invited_by, expires",
    operator=lambda invitation: "yes" if invitation.makes_operator else "",
    expires=lambda invitation: "expired" if invitation.expired else format_time(invitation.expires_at_epoch),
)


@command("users invitations", _INVITATIONS.page("invitations", "There is no open invitation.", shrink=("note", "by")))
@verb.get("/v1/users/invitations", "admin", whole_team=True)
async def get_invitations(call: VerbCall) -> people_wire.InvitationsOut:
    """List the invitations that nobody has used.

    Newest first; never their links.
    """
    rows = await call.dependency(Accounts).run(lambda conn: people.invitations(conn, call.principal.team_id))
    return people_wire.InvitationsOut(invitations=[reshape(row, people_wire.InvitationOut) for row in rows])


@command(
    "users invite",
    lambda result, _: result.url,
    warns=lambda result: warn_of_link(result.url, "cmserver users invite"),
    text="Print a link that makes somebody a member of the team. It works once, within a week.",
)
@option("--role", "What they will be in the team.")
@option("--note", "Whom it is for, to tell invitations apart.")
@option("--server-operator", "They run the server, too. Operator only.", field="operator")
@verb.post("/v1/users/invitations", "admin", status=201, whole_team=True)
async def post_invitation(call: VerbCall, given: InvitationIn) -> people_wire.NewInvitationOut:
    """Make a link that makes somebody a member of the team, once, within a week. The link is shown only now."""
    note = lookalikes.clean_name(redact(given.note)[0])
    new = await call.dependency(Accounts).run(
        lambda conn: manage_people.invite(conn, call.principal, given.role, note=note, makes_operator=given.operator)
    )
    path = f"/ui/join/{new.token}"
    invitation = reshape(new.invitation, people_wire.InvitationOut)
    return people_wire.NewInvitationOut(invitation=invitation, path=path, url=f"{call.base_url}{path}")


@command("users withdraw", lambda result, _: f"The link of {result.id} works no more.")
@verb.delete("/v1/users/invitations/{invitation}", "admin", whole_team=True)
async def delete_invitation(call: VerbCall, given: str) -> people_wire.WithdrawnInvitationOut:
    """Withdraw an invitation, by its id.

    Its link makes nobody a member.
    """
    invitation_id = require_id(given, manage_people.NO_INVITATION)
    await call.dependency(Accounts).run(lambda conn: manage_people.uninvite(conn, call.principal, invitation_id))
    return people_wire.WithdrawnInvitationOut(deleted=True, id=invitation_id)


@command(
    "users operator",
    lambda result, _: f"{result.user.name} is {'an' if result.user.is_operator else 'no'} operator of this server.",
    text=f"Make a person of the team an operator of the server. {_NO_OPERATOR}",
)
@option("NAME", field="user")
@option("--off", "They run the server no more.", field="operator", default=True, on=False)
@command(
    "users role",
    lambda result, _: f"{result.user.name} is {result.user.role}.",
    text="Change what a person is in the team: owner, member or viewer.",
)
@option("NAME", field="user")
@option("ROLE")
@verb.patch("/v1/users/{user:path}", "admin", whole_team=True)
async def patch_user(call: VerbCall, given: PersonChangeIn) -> people_wire.OnePersonOut:
    """Change what a person is in the team, or whether they are an operator of the server."""
    principal, reference = call.principal, _clean_reference(given.user)

    async def change(conn: Conn) -> Member:
        person = await manage_people.lock_person(conn, principal.team_id, reference)
        if given.role is not UNSET:
            await manage_people.set_role(conn, principal, str(person.account_id), given.role)
        if given.operator is not UNSET:
            await manage_people.set_operator(conn, principal, person.name, is_operator=given.operator)
        return await manage_people.lock_person(conn, principal.team_id, str(person.account_id))

    return people_wire.OnePersonOut(user=people_wire.person_out(await call.dependency(Accounts).run(change)))


@command(
    "users erase-private",
    lambda result, _: f"What {result.name} kept in private sessions is erased, if there was anything.",
    text="Erase the private sessions of a person for ever. Nobody but they reads them, and nothing tells whether there were any.",
    confirm=lambda typed: f"Erase all private sessions of {typed['name']}, for ever?",
)
@option("NAME", field="user")
@verb.delete("/v1/users/{user:path}/private", "admin", whole_team=True)
async def delete_private(call: VerbCall, given: str) -> people_wire.ErasedPrivateOut:
    """Erase the private sessions of a person of the team. The answer is the same whether there were any."""
    reference = _clean_reference(given)
    erased = await call.dependency(Accounts).run(lambda conn: manage_people.erase_private(conn, call.principal, reference))
    call.drop_cached()
    return people_wire.ErasedPrivateOut(name=erased.name)


@command(
    "users remove",
    lambda result, _: people_wire.format_removed(result.name, result),
    confirm=lambda typed: f"Take {typed['name']} out of the team, and end the keys and invitations that they made?",
)
@option("NAME", field="user")
@verb.delete("/v1/users/{user:path}", "admin", whole_team=True)
async def delete_user(call: VerbCall, given: str) -> people_wire.RemovedPersonOut:
    """Take a person out of the team, and end the keys and invitations that they made in it.

    Their account stays.
    """
    reference = _clean_reference(given)

    async def remove(conn: Conn) -> RemovedMember:
        person = await manage_people.lock_person(conn, call.principal.team_id, reference)
        return await manage_people.remove_member(conn, call.principal, str(person.account_id))

    removed = await call.dependency(Accounts).run(remove)
    call.drop_cached()
    person = people_wire.person_out(removed.member)
    return people_wire.RemovedPersonOut(
        deleted=True,
        user_id=person.user_id,
        name=person.name,
        revoked_keys=len(removed.keys),
        other_keys=[reshape(key, people_wire.EndedKeyOut) for key in removed.other_keys],
        withdrawn_invitations=removed.invitations,
    )


@command(
    "users reset",
    lambda result, _: result.url,
    warns=lambda result: warn_of_link(result.url, "cmserver users reset NAME"),
    text=f"Print a link for a new password. It works once, within a day. {_NO_OPERATOR}",
)
@option("NAME", field="user")
@verb.post("/v1/users/{user:path}/reset", "*", status=201, whole_team=True)
async def post_reset(call: VerbCall, given: str) -> people_wire.ResetOut:
    """Make a link for a new password, for one day. It signs the person in; for the operator, since accounts are not a team's."""
    reference = _clean_reference(given)
    user, token = await call.dependency(Accounts).run(lambda conn: manage_people.reset(conn, call.principal, reference))
    path = f"/ui/reset/{token}"
    return people_wire.ResetOut(name=user.name, path=path, url=f"{call.base_url}{path}")


def _clean_reference(reference: str) -> str:
    if not reference.strip() or len(reference) > 100:
        raise Invalid.at("$.user", "A person is named by their name or id.")
    return reference.strip()


routes = [
    get_users,
    get_accounts,
    get_invitations,
    post_invitation,
    delete_invitation,
    post_reset,  # before those of a person alone, whose name may end in the same way
    delete_private,
    patch_user,
    delete_user,
]
