"""Members of teams, the accounts of those who sign in, their sessions, and invitations."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta

from cmserver.access.keys.model import Key
from cmserver.access.model import Principal, Role, WordsFor
from cmserver.base.text import Text

IDLE_DAYS = 14
"""A session ends after this many days without a request."""
MAX_SESSIONS = 50
"""Of one person or key; those that were used only once go first, as a client without cookies leaves them behind a proxy."""
INVITATION_DAYS = 7
RESET_DAYS = 1
MIN_PASSWORD_CHARS, MAX_PASSWORD_CHARS = 10, 1_000

USER_NAME_MOST = 100
UserName = Annotated[Text, Meta(min_length=1, max_length=USER_NAME_MOST)]
Password = Annotated[str, Meta(min_length=MIN_PASSWORD_CHARS, max_length=MAX_PASSWORD_CHARS)]


class User(msgspec.Struct, frozen=True, kw_only=True):
    """An account. Its name is unique without regard to case; without a password only a link signs it in."""

    id: UUID
    name: str
    is_operator: bool
    """Whether the person may run the server as a whole."""
    has_password: bool
    created_at: datetime


class StoredPassword(msgspec.Struct, frozen=True, kw_only=True):
    """An account with the hash of its password."""

    id: UUID
    name: str
    password_hash: str | None


class UserTeam(msgspec.Struct, frozen=True, kw_only=True):
    """One of a person's teams, and what they are in it; never an archived team."""

    team_id: UUID
    team_name: str
    role: Role
    requests_per_minute: int | None
    """This and the next are the team's limits."""
    events_per_month: int | None
    names: dict[str, str]
    """As a principal's."""
    private_of: UUID | None = None
    """Of a private place of theirs: the team in which it is."""
    private_to: UUID | None = None


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who belongs to a team. Only one with an account signs in; others work with keys on which their name stands.

    Made by an invitation that somebody accepts, or by an owner, by name. A team always keeps an owner.
    """

    team_id: UUID
    user_id: str
    """The name that stands as actor in their keys; their account has the same, but for letter case."""
    account_id: UUID | None
    name: str
    """Of the account, else as `user_id`."""
    role: Role
    metadata: dict[str, object]
    is_operator: bool
    last_seen_at: datetime | None
    """When they last opened a page, to the minute."""
    created_at: datetime
    updated_at: datetime

    @property
    def names(self) -> set[str]:
        """The actors whose keys are the member's."""
        return {self.user_id, self.name}


class RemovedMember(msgspec.Struct, frozen=True, kw_only=True):
    """Who is out of the team, and what of theirs ended with it: their keys, and keys and invitations that they had made."""

    member: Member
    keys: list[Key]
    invitations: int

    @property
    def other_keys(self) -> list[Key]:
        """The keys that they had made for other actors: whoever used them needs new ones."""
        return [key for key in self.keys if key.actor_id not in self.member.names]


class MemberChange(msgspec.Struct, frozen=True, kw_only=True):
    """A member who is new or has another role; how many of their keys may less, and how many of their invitations ended."""

    member: Member
    is_new: bool = False
    narrowed_keys: int = 0
    invitations: int = 0


class Invitation(msgspec.Struct, frozen=True, kw_only=True):
    """A link that makes somebody a member of a team, once."""

    id: UUID
    team_id: UUID
    team_name: str
    words: WordsFor
    role: Role
    makes_operator: bool
    note: str
    invited_by: str
    expires_at: datetime
    expired: bool
    used_at: datetime | None
    created_at: datetime


class WithdrawnInvitation(msgspec.Struct, frozen=True, kw_only=True):
    """An invitation whose link makes nobody a member any more."""

    id: UUID
    team_id: UUID


class NewInvitation(msgspec.Struct, frozen=True, kw_only=True):
    """An invitation with the token of its link, which is shown only once."""

    invitation: Invitation
    token: str


class WebSession(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who is signed in, in one browser: a person, or whoever sent a key."""

    id: UUID
    user_id: UUID | None
    api_key_id: UUID | None
    current_team_id: UUID | None
    address: str
    browser: str
    created_at: datetime
    last_seen_at: datetime


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """The address and the browser of a request."""

    address: str
    browser: str = ""


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """A session with who is signed in and what they may do."""

    session: WebSession
    user: User | None
    """None for a key."""
    teams: list[UserTeam]
    """Of a person, by name; empty for a key."""
    principal: Principal | None
    """In the current team; None for a person without a team."""
    csrf_token: str

    @property
    def is_operator(self) -> bool:
        return self.user is not None and self.user.is_operator

    @property
    def name(self) -> str:
        """What the signed-in person, or the key's actor, is called."""
        return self.user.name if self.user else self.principal.actor_id if self.principal else ""


FORMER_MEMBER = "a former member"


class PersonalMemory(msgspec.Struct, frozen=True, kw_only=True):
    """All that is a person's alone in a team, to take along. `personal` is what is remembered for them; `sessions` are their
    private sessions, each with its turns; `observations` are what was drawn of those.
    """

    personal: list[dict[str, object]]
    sessions: list[dict[str, object]]
    observations: list[dict[str, object]]

    def of_project(self, canonical_id: str) -> PersonalMemory:
        """Without what the person's private sessions in other projects say."""
        rows = {
            name: [row for row in getattr(self, name) if row["project"] == canonical_id] for name in ("sessions", "observations")
        }
        return msgspec.structs.replace(self, **rows)


class LeftMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What a person had for themselves in a team that they have left: they may take it along until it expires."""

    id: UUID
    team_id: UUID
    team_name: str
    names: list[str]
    """Under which they worked there."""
    created_at: datetime
    expires_at: datetime
