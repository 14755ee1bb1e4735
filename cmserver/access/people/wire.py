"""People and invitations on the wire."""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.access.model import PersonRole


class PersonOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A person of the team. `lastSeenAtEpoch` is when they last opened a page, known to the minute."""

    user_id: UUID
    name: str
    role: PersonRole
    is_operator: bool
    last_seen_at_epoch: int | None
    created_at_epoch: int


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
    role: PersonRole
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


class EndedKeyOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A key that ended with the person who had made it for another actor."""

    id: UUID
    name: str
    actor_id: str


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


class ResetOut(msgspec.Struct, frozen=True, kw_only=True):
    """A link for a new password, which is shown only now. `path` is the link without the server's address; it works once."""

    name: str
    path: str
    url: str
