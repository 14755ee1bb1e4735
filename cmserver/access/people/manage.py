"""Adds, invites and removes members of a team, and changes their roles. An owner always stays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec

from cmserver.access import announce, audit
from cmserver.access import repository as access
from cmserver.access.keys import manage as manage_keys
from cmserver.access.keys.model import Key
from cmserver.access.model import SCOPES_BY_ROLE, Principal, Role
from cmserver.access.people import repository
from cmserver.access.people.model import FORMER_MEMBER, Member, MemberChange, NewInvitation, RemovedMember, User
from cmserver.access.people.passwords import hash_token, new_token
from cmserver.base.errors import Conflict, Forbidden, NotFound
from cmserver.base.ids import new_id
from cmserver.base.sql import Conn

NO_SUCH = "Member not found."
NO_LEFT = "Nothing is kept for you here any more."
ROLES = tuple(SCOPES_BY_ROLE)
"""From the least to the most."""
NO_INVITATION = "Invitation not found. It may have been used."


async def invite(
    conn: Conn,
    principal: Principal,
    role: Role,
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


async def lock_member(conn: Conn, team_id: UUID, reference: str) -> Member:
    """The member of the team with that name, or that id of an account, locked; NotFound for any other."""
    member = await repository.lock_member(conn, team_id, reference)
    if member is None:
        raise NotFound(NO_SUCH)
    return member


async def lock_person(conn: Conn, team_id: UUID, reference: str) -> Member:
    """The member of the team with that name, or that id of an account, locked; NotFound for one without an account, too."""
    member = await lock_member(conn, team_id, reference)
    if member.account_id is None:
        raise NotFound(NO_SUCH)
    return member


async def put_member(
    conn: Conn, principal: Principal, reference: str, role: Role, metadata: Mapping[str, object] | None = None
) -> MemberChange:
    """Add a member without an account by name, or change a member's role, as `set_role` does. None keeps the metadata."""
    await access.lock_team(conn, principal.team_id)
    if await repository.lock_member(conn, principal.team_id, reference) is not None:
        return await set_role(conn, principal, reference, role, metadata)
    await repository.insert_member(conn, principal.team_id, reference, role, metadata=metadata)
    member = await lock_member(conn, principal.team_id, reference)
    await audit.record(conn, principal, "member.set", "team_member", member.user_id, role=role)
    return MemberChange(member=member, is_new=True)


async def set_role(
    conn: Conn, principal: Principal, reference: str, role: Role, metadata: Mapping[str, object] | None = None
) -> MemberChange:
    """Change a member's role; Conflict for the last owner. None keeps the metadata.

    With a lower role their keys may no more than the role allows: those on which their name stands (Forbidden when one of them
    reaches further than the caller's), and those that they made. The invitations of who is no owner end.
    """
    await access.lock_team(conn, principal.team_id)
    member = await lock_member(conn, principal.team_id, reference)
    if role != "owner":
        await _leave_an_owner(conn, member)
    kept = member.metadata if metadata is None else metadata
    await repository.update_member(conn, member.team_id, member.user_id, role, kept)
    allowed = _scopes(role, is_operator=member.is_operator)
    narrowed = invitations = 0
    if member.account_id is not None:
        narrowed = await manage_keys.narrow_all_of_maker(
            conn, principal, member.account_id, {member.team_id: allowed}, team_id=member.team_id
        )
        invitations = 0 if role == "owner" else await _withdraw_all(conn, principal, member.account_id, member.team_id)
    if ROLES.index(role) < ROLES.index(member.role):
        for name in sorted(member.names):
            narrowed += await manage_keys.narrow_all_of(conn, principal, name, allowed, but_made_by=member.account_id)
    details: dict[str, Any] = {"role": role, "narrowed_keys": narrowed, "invitations": invitations}
    await audit.record(conn, principal, "member.set", "team_member", member.user_id, **details)
    changed = await lock_member(conn, member.team_id, member.user_id)
    return MemberChange(member=changed, narrowed_keys=narrowed, invitations=invitations)


async def remove_member(conn: Conn, principal: Principal, reference: str) -> RemovedMember:
    """Remove a member from the team. The keys and invitations that they made in it end, and the keys on which their name stands.

    Everybody may leave a team, which ends only what they made; only an owner removes others. Conflict for the last owner,
    Forbidden when a key on which the name stands reaches further than the caller's. The account stays. What was the person's
    alone is gone from the team; it is kept for them for 30 days, and nobody else reads it.
    """
    await access.lock_team(conn, principal.team_id)
    member = await lock_member(conn, principal.team_id, reference)
    is_leaving = principal.user_id is not None and member.account_id == principal.user_id
    if not is_leaving:
        principal.require("admin")
    await _leave_an_owner(conn, member)
    keys: list[Key] = []
    invitations = 0
    if member.account_id is not None:
        keys += await manage_keys.revoke_all_of_maker(conn, principal, member.account_id)
        invitations = await _withdraw_all(conn, principal, member.account_id, member.team_id)
    if not is_leaving:  # or who takes the name of a program's key could end it
        for name in sorted(member.names):
            keys += await manage_keys.revoke_all_of(conn, principal, name)
    await repository.remove_member(conn, member.team_id, member.user_id)
    details: dict[str, Any] = {"revoked_keys": len(keys), "invitations": invitations}
    await audit.record(conn, principal, "member.removed", "team_member", member.user_id, **details)
    await announce.drop_cached(conn, member.team_id)
    return RemovedMember(member=member, keys=keys, invitations=invitations)


async def erase_private(conn: Conn, principal: Principal, reference: str) -> Member:
    """Erase the private sessions of a member, of which an owner reads nothing; nothing tells whether there were any."""
    member = await lock_person(conn, principal.team_id, reference)
    assert member.account_id is not None
    await access.delete_private_place(conn, principal.team_id, member.account_id)
    await audit.record(conn, principal, "private.deleted", "user", member.account_id)
    await announce.drop_cached(conn, principal.team_id)
    return member


async def become_former(conn: Conn, user_id: UUID, left_id: UUID) -> str:
    """Let what the person gave a team that they have left stand as a former member's; returns its name. It cannot be undone."""
    left = next((one for one in await repository.left_memories(conn, user_id) if one.id == left_id), None)
    if left is None:
        raise NotFound(NO_LEFT)
    await repository.rename_actor(conn, left.team_id, left.names, FORMER_MEMBER)
    return left.team_name


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


def _scopes(role: Role, *, is_operator: bool = False) -> frozenset[str]:
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


async def _leave_an_owner(conn: Conn, member: Member) -> None:
    """Conflict when the member is the last owner, or of those who sign in the last one."""
    if member.role != "owner":
        return
    signs_in = member.account_id is not None
    if not await repository.other_owners(conn, member.team_id, member.user_id, who_signs_in=signs_in):
        of_whom = "owner of the team who signs in" if signs_in else "owner of the team"
        raise Conflict(f"{member.name} is the last {of_whom}. Make another member an owner first.")
