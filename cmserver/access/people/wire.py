"""People and invitations on the wire."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.access.model import Role
from cmserver.access.people.model import Member
from cmserver.access.wire import EndedKeyOut, RemovedMemberOut
from cmserver.base.structs import reshape


class PersonOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A member of the team who signs in: `userId` is their account's id. `lastSeenAtEpoch` is when they last opened a page, to the
    minute.
    """

    user_id: UUID
    name: str
    role: Role
    is_operator: bool
    last_seen_at_epoch: int | None
    created_at_epoch: int


def person_out(member: Member) -> PersonOut:
    """Of a member with an account."""
    return reshape(member, PersonOut, user_id=member.account_id)


class PeopleOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """By name, on one page."""

    users: list[PersonOut]
    next_cursor: str | None


class OnePersonOut(msgspec.Struct, frozen=True, kw_only=True):
    """One person of the team."""

    user: PersonOut


class AccountOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An account of the server."""

    id: UUID
    name: str
    is_operator: bool
    has_password: bool
    created_at_epoch: int


class AccountsOut(msgspec.Struct, frozen=True, kw_only=True):
    """By name, at most 1,000."""

    accounts: list[AccountOut]


class InvitationOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An invitation without its link."""

    id: UUID
    role: Role
    makes_operator: bool
    note: str
    invited_by: str
    expires_at_epoch: int
    expired: bool
    created_at_epoch: int


class InvitationsOut(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first, expired ones too, at most 200."""

    invitations: list[InvitationOut]


class NewInvitationOut(msgspec.Struct, frozen=True, kw_only=True):
    """A new invitation with its link, which is shown only now. `path` is the link without the server's address; it works once."""

    invitation: InvitationOut
    path: str
    url: str


class WithdrawnInvitationOut(msgspec.Struct, frozen=True, kw_only=True):
    """The invitation that is gone."""

    deleted: bool
    id: UUID


class RemovedPersonOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Who was removed from the team, and how many keys and open invitations that they had made ended with it.

    `otherKeys` are those of the keys that they had made for other actors: whoever used them needs new ones.
    `withdrawnInvitations` is how many of their invitations were still open.
    """

    deleted: bool
    user_id: UUID
    name: str
    revoked_keys: int
    other_keys: list[EndedKeyOut]
    withdrawn_invitations: int


def format_removed(name: str, removed: RemovedPersonOut | RemovedMemberOut) -> str:
    """For a terminal."""
    lines = [f"{name} is out of the team. Keys revoked: {removed.revoked_keys}."]
    if removed.withdrawn_invitations:
        lines.append(f"Invitations withdrawn: {removed.withdrawn_invitations}.")
    if removed.other_keys:
        lines.append("Made for others, who need new keys now:")
        lines += [f"  {key.actor_id}  {key.id}  {key.name}".rstrip() for key in removed.other_keys]
    return "\n".join(lines)


class ResetOut(msgspec.Struct, frozen=True, kw_only=True):
    """A link for a new password, which is shown only now. `path` is the link without the server's address; it works once."""

    name: str
    path: str
    url: str


class ErasedPrivateOut(msgspec.Struct, frozen=True, kw_only=True):
    """Whose private sessions are erased, if there were any."""

    name: str
