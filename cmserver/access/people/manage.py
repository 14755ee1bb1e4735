"""Invites people into a team, changes what they are in it, and removes them. An owner always stays."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from cmserver.access import announce, audit
from cmserver.access.keys import manage as manage_keys
from cmserver.access.model import SCOPES_BY_ROLE, PersonRole, Principal
from cmserver.access.people import repository
from cmserver.access.people.model import NewInvitation, RemovedPerson, RoleChange, TeamPerson, User
from cmserver.access.people.passwords import hash_token, new_token
from cmserver.base.errors import Conflict, Forbidden, NotFound
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn

NO_SUCH = "Person not found."
NO_INVITATION = "Invitation not found. It may have been used."


async def invite(
    conn: Conn,
    principal: Principal,
    role: PersonRole,
    *,
    note: str = "",
    makes_operator: bool = False,
    invitation_id: UUID | None = None,
) -> NewInvitation:
    """A link that makes somebody a member of the caller's team. Conflict when there is an invitation with that `invitation_id`."""
    if makes_operator:
        _require_operator(principal)
    token = new_token()
    invitation = await repository.insert_invitation(
        conn,
        invitation_id or new_id(),
        principal.team_id,
        role=role,
        makes_operator=makes_operator,
        token_hash=hash_token(token),
        note=note,
        invited_by=principal.actor_id,
        made_by=principal.user_id or await manage_keys.find_maker(conn, principal),
    )
    await audit.record(conn, principal, "person.invited", "invitation", invitation.id, role=role, operator=makes_operator)
    return NewInvitation(invitation=invitation, token=token)


async def uninvite(conn: Conn, principal: Principal, invitation_id: UUID) -> None:
    """Make the link of an invitation useless."""
    if not await repository.delete_invitation(conn, principal.team_id, invitation_id):
        raise NotFound(NO_INVITATION)
    await audit.record(conn, principal, "person.uninvited", "invitation", invitation_id)


async def require_person(conn: Conn, team_id: UUID, reference: str) -> TeamPerson:
    """The person of the team with that id or name; NotFound for any other."""
    for person in await repository.people_of(conn, team_id):
        if reference == str(person.user_id) or reference.lower() == person.name.lower():
            return person
    raise NotFound(NO_SUCH)


async def set_role(conn: Conn, principal: Principal, reference: str, role: PersonRole) -> RoleChange:
    """Change what a person is in the team; Conflict for its last owner.

    The keys that they made in it may no more than they may themselves, and the invitations of who is no owner end.
    """
    await repository.lock_memberships(conn, principal.team_id)
    person = await require_person(conn, principal.team_id, reference)
    if role != "owner":
        await _leave_an_owner(conn, principal.team_id, person)
    await repository.put_membership(conn, principal.team_id, person.user_id, role)
    allowed = {principal.team_id: _scopes(role, is_operator=person.is_operator)}
    narrowed = await manage_keys.narrow_all_of_maker(conn, principal, person.user_id, allowed, team_id=principal.team_id)
    invitations = 0 if role == "owner" else await _withdraw_all(conn, principal, person.user_id, principal.team_id)
    details: dict[str, Any] = {"role": role, "name": person.name, "narrowed_keys": narrowed, "invitations": invitations}
    await audit.record(conn, principal, "person.role_changed", "user", person.user_id, **details)
    changed = await require_person(conn, principal.team_id, str(person.user_id))
    return RoleChange(person=changed, narrowed_keys=narrowed, invitations=invitations)


async def remove_person(conn: Conn, principal: Principal, reference: str) -> RemovedPerson:
    """Remove a person from the team. The keys that they made in it, also for other actors, and their invitations end.

    Everybody may leave a team; only an owner removes others. Conflict for its last owner. The account stays.
    """
    await repository.lock_memberships(conn, principal.team_id)
    person = await require_person(conn, principal.team_id, reference)
    if person.user_id != principal.user_id:
        principal.require("admin")
    await _leave_an_owner(conn, principal.team_id, person)
    keys = await manage_keys.revoke_all_of_maker(conn, principal, person.user_id)
    invitations = await _withdraw_all(conn, principal, person.user_id, principal.team_id)
    await repository.remove_membership(conn, principal.team_id, person.user_id)
    details: dict[str, Any] = {"name": person.name, "revoked_keys": len(keys), "invitations": invitations}
    await audit.record(conn, principal, "person.removed", "user", person.user_id, **details)
    await announce.drop_cached(conn, principal.team_id)
    return RemovedPerson(person=person, keys=keys, invitations=invitations)


async def require_user(conn: Conn, principal: Principal, name: str) -> User:
    """The account with that name, for an operator."""
    _require_operator(principal)
    user = await repository.user_named(conn, name)
    if user is None:
        raise NotFound("There is no account of that name.")
    return user


async def reset(conn: Conn, principal: Principal, name: str) -> tuple[User, str]:
    """The token of a link for a new password. For operators only: a person has one account in all teams."""
    user = await require_user(conn, principal, name)
    token = new_token()
    await repository.set_reset(conn, user.id, hash_token(token))
    await audit.record(conn, principal, "person.reset", "user", user.id, name=user.name)
    return user, token


async def set_operator(conn: Conn, principal: Principal, name: str, *, is_operator: bool) -> User:
    """Make a person an operator of the server, or no more, as the keys that they made are not either. Only operators do that."""
    user = await require_user(conn, principal, name)
    changed = await repository.set_operator(conn, user.id, is_operator=is_operator)
    if not is_operator:
        allowed = {team.team_id: _scopes(team.role) for team in await repository.teams_of(conn, user.id)}
        await manage_keys.narrow_all_of_maker(conn, principal, user.id, allowed)
        await _withdraw_all(conn, principal, user.id, None)
    await audit.record(conn, principal, "person.operator_changed", "user", user.id, name=user.name, operator=is_operator)
    return changed


def _scopes(role: PersonRole, *, is_operator: bool = False) -> frozenset[str]:
    return SCOPES_BY_ROLE[role] | ({"*"} if is_operator else set[str]())


async def _withdraw_all(conn: Conn, principal: Principal, user_id: UUID, team_id: UUID | None) -> int:
    """End the invitations that a person made in the team, or for None those of any team that make an operator."""
    withdrawn = await repository.withdraw_of_maker(conn, user_id, team_id)
    for invitation in withdrawn:
        acting = msgspec.structs.replace(principal, team_id=invitation.team_id)
        await audit.record(conn, acting, "person.uninvited", "invitation", invitation.id)
    return len(withdrawn)


def _require_operator(principal: Principal) -> None:
    if not principal.may("*"):
        raise Forbidden("Only an operator of this server may do this, or a key with the scope *.")


async def _leave_an_owner(conn: Conn, team_id: UUID, person: TeamPerson) -> None:
    if person.role == "owner" and not await repository.other_owners(conn, team_id, person.user_id):
        raise Conflict(f"{person.name} is the last owner of the team. Make another person an owner first.")
