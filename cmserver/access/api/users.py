"""People over HTTP: who belongs to the team, invitations, and links for a new password."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.api.inputs import forget
from cmserver.access.model import PersonRole, Principal
from cmserver.access.people import manage as manage_people
from cmserver.access.people import repository as people
from cmserver.access.people import wire as people_wire
from cmserver.access.people.accounts import Accounts
from cmserver.access.people.model import TeamPerson
from cmserver.access.teams import require_team_key
from cmserver.base import lookalikes
from cmserver.base.errors import Invalid
from cmserver.base.http.operation import delete, get, patch, post
from cmserver.base.http.wire import answer, caller, dependency, path_id, read
from cmserver.base.sql import Conn
from cmserver.base.structs import reshape
from cmserver.base.text import Text
from cmserver.redaction.redact import redact

_MAX_ACCOUNTS = 1000


class InvitationIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """POST of an invitation. `note` is whom it is for; `operator` is whether it makes an operator of the server (scope `*`)."""

    role: PersonRole = "member"
    note: Annotated[Text, Meta(max_length=100)] = ""
    operator: bool = False


class PersonChangeIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """PATCH of a person: what is not sent stays. `operator` is whether they administer the whole server; it takes the scope `*`."""

    role: PersonRole | UnsetType = UNSET
    operator: bool | UnsetType = UNSET


async def get_users(request: Request) -> Response:
    """The people of the team, by name."""
    principal = await caller(request, Principal)
    require_team_key(principal)
    persons = await dependency(request, Accounts).run(lambda conn: people.people_of(conn, principal.team_id))
    return answer(people_wire.PeopleOut(users=[reshape(person, people_wire.PersonOut) for person in persons], next_cursor=None))


async def get_accounts(request: Request) -> Response:
    """The accounts of the whole server, by name, for its operator."""
    require_team_key(await caller(request, Principal))
    users = await dependency(request, Accounts).run(lambda conn: people.users(conn, limit=_MAX_ACCOUNTS))
    return answer(people_wire.AccountsOut(accounts=[reshape(user, people_wire.AccountOut) for user in users]))


async def get_invitations(request: Request) -> Response:
    """Invitations into the team that nobody has used, newest first; never their links."""
    principal = await caller(request, Principal)
    require_team_key(principal)
    rows = await dependency(request, Accounts).run(lambda conn: people.invitations(conn, principal.team_id))
    return answer(people_wire.InvitationsOut(invitations=[reshape(row, people_wire.InvitationOut) for row in rows]))


async def post_invitation(request: Request) -> Response:
    """Make a link that makes somebody a member of the team, once, within a week. The link is shown only now."""
    principal = await caller(request, Principal)
    require_team_key(principal)
    body = await read(request, InvitationIn)
    note = lookalikes.clean_name(redact(body.note)[0])
    new = await dependency(request, Accounts).run(
        lambda conn: manage_people.invite(conn, principal, body.role, note=note, makes_operator=body.operator)
    )
    path = f"/ui/join/{new.token}"
    out = people_wire.NewInvitationOut(
        invitation=reshape(new.invitation, people_wire.InvitationOut), path=path, url=_url(request, path)
    )
    return answer(out, 201)


async def delete_invitation(request: Request) -> Response:
    """Withdraw an invitation: its link makes nobody a member."""
    principal = await caller(request, Principal)
    require_team_key(principal)
    invitation_id = path_id(request, "Invitation not found. It may have been used.", "invitation")
    await dependency(request, Accounts).run(lambda conn: manage_people.uninvite(conn, principal, invitation_id))
    return answer(people_wire.WithdrawnInvitationOut(deleted=True, id=invitation_id))


async def patch_user(request: Request) -> Response:
    """Change what a person is in the team, or whether they are an operator of the server."""
    principal = await caller(request, Principal)
    require_team_key(principal)
    body = await read(request, PersonChangeIn)
    reference = _read_reference(request)

    async def change(conn: Conn) -> TeamPerson:
        person = await manage_people.require_person(conn, principal.team_id, reference)
        if body.role is not UNSET:
            person = (await manage_people.set_role(conn, principal, reference, body.role)).person
        if body.operator is not UNSET:
            await manage_people.set_operator(conn, principal, person.name, is_operator=body.operator)
        return await manage_people.require_person(conn, principal.team_id, str(person.user_id))

    person = await dependency(request, Accounts).run(change)
    return answer(people_wire.OnePersonOut(user=reshape(person, people_wire.PersonOut)))


async def delete_user(request: Request) -> Response:
    """Take a person out of the team, and end the keys and invitations that they made in it. Their account stays."""
    principal = await caller(request, Principal)
    require_team_key(principal)
    reference = _read_reference(request)
    removed = await dependency(request, Accounts).run(lambda conn: manage_people.remove_person(conn, principal, reference))
    forget(request, principal)
    return answer(
        people_wire.RemovedPersonOut(
            deleted=True,
            user_id=removed.person.user_id,
            name=removed.person.name,
            revoked_keys=len(removed.keys),
            other_keys=[reshape(key, people_wire.EndedKeyOut) for key in removed.other_keys],
            withdrawn_invitations=removed.invitations,
        )
    )


async def post_reset(request: Request) -> Response:
    """Make a link for a new password, for one day. It signs the person in; for the operator, since accounts are not a team's."""
    principal = await caller(request, Principal)
    require_team_key(principal)
    reference = _read_reference(request)
    user, token = await dependency(request, Accounts).run(lambda conn: manage_people.reset(conn, principal, reference))
    path = f"/ui/reset/{token}"
    return answer(people_wire.ResetOut(name=user.name, path=path, url=_url(request, path)), 201)


def _read_reference(request: Request) -> str:
    reference = str(request.path_params["user"])
    if not reference.strip() or len(reference) > 100:
        raise Invalid.at("$.user", "A person is named by their name or id.")
    return reference.strip()


def _url(request: Request, path: str) -> str:
    return f"{str(request.base_url).rstrip('/')}{path}"


routes = [
    get("/v1/users", get_users, "", people_wire.PeopleOut),
    get("/v1/users/accounts", get_accounts, "*", people_wire.AccountsOut),
    get("/v1/users/invitations", get_invitations, "admin", people_wire.InvitationsOut),
    post("/v1/users/invitations", post_invitation, "admin", people_wire.NewInvitationOut, status=201, body=InvitationIn),
    delete("/v1/users/invitations/{invitation}", delete_invitation, "admin", people_wire.WithdrawnInvitationOut),
    post("/v1/users/{user:path}/reset", post_reset, "*", people_wire.ResetOut, status=201),
    patch("/v1/users/{user:path}", patch_user, "admin", people_wire.OnePersonOut, body=PersonChangeIn),
    delete("/v1/users/{user:path}", delete_user, "admin", people_wire.RemovedPersonOut),
]
