"""Who may do what: teams, projects, keys, and the principal that a key stands for."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from cmserver.base.errors import Forbidden
from cmserver.base.text import Label, Text, matching

SCOPES = (
    "events:write",
    "sessions:write",
    "observations:read",
    "observations:write",
    "jobs:read",
    "jobs:write",
    "keys:write",
    "admin",
    "*",
)
"""What a key may be allowed. `admin` allows everything in the key's team; `*` also what is the operator's: teams, their limits."""

OLDER_SCOPES = {
    "memories:read": frozenset({"observations:read", "jobs:read"}),
    "memories:write": frozenset({"events:write", "sessions:write", "observations:write", "jobs:write"}),
}
"""Scope words of claude-mem's server, accepted as the sets they mean."""


def meaning(scopes: Iterable[str]) -> frozenset[str]:
    """The scopes that the words stand for, older ones taken apart."""
    return frozenset(meant for scope in scopes for meant in OLDER_SCOPES.get(scope, {scope}))


Role = Literal["owner", "member"]

SEARCH_LANGUAGES = (
    *("simple", "arabic", "armenian", "basque", "catalan", "danish", "dutch", "english", "finnish", "french", "german", "greek"),
    *("hindi", "hungarian", "indonesian", "irish", "italian", "lithuanian", "nepali", "norwegian", "portuguese", "romanian"),
    *("russian", "serbian", "spanish", "swedish", "tamil", "turkish", "yiddish"),
)
"""What PostgreSQL has stems for, from version 14 on; `simple` has none, and finds words as they are written."""
SearchLanguage = Annotated[
    str,
    matching(f"^({'|'.join(SEARCH_LANGUAGES)})$", f"Not one of the languages of search ({', '.join(SEARCH_LANGUAGES)})"),
]


SkipRule = Annotated[Text, Meta(min_length=3, max_length=200)]
"""What is not worth an observation: `path:GLOB`, `command:BEGINNING`, or a sentence for the model."""

LAWS = ("path:", "command:")
"""How the skip rules begin that are law."""


class GenerationPolicy(msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """When observations are made of a project's events, of which never, and how they are worded. Set for a team or a project.

    What a project does not say, its team says; what neither says, the settings. The lists add up. Stored as it is sent.
    """

    mode: Literal["per_event", "burst", "at_end"] | None = None
    """Each event by itself and at once; together with the rest of its burst; or only when its session has ended."""
    debounce_seconds: Annotated[float, Meta(ge=0, le=3600)] | None = None
    """How long a burst is waited for; CMSERVER_GENERATION_DEBOUNCE_SECONDS where nothing is said."""
    skip_event_types: Annotated[list[Label], Meta(max_length=100)] = []
    skip_tools: Annotated[list[Label], Meta(max_length=100)] = []
    verbosity: Literal["minimal", "normal", "verbose"] | None = None
    """How much is recorded: only what changes how one works on; what one would tell a colleague; or whatever may be of use."""
    language: Annotated[Text, Meta(min_length=2, max_length=40)] | None = None
    """What observations are worded in, as people call it, or a code; CMSERVER_LANGUAGE where nothing is said."""
    skip_rules: Annotated[list[SkipRule], Meta(max_length=50)] = []
    """`path:GLOB` and `command:BEGINNING` are law: such an event is never shown to a model. Any other is a sentence for it."""


class Team(msgspec.Struct, frozen=True, kw_only=True):
    """People who share what their agents remember. Teams never see each other. Made by bootstrap or an operator.

    An archived team's keys open nothing; only the operator brings it back.
    """

    id: UUID
    name: str
    metadata: dict[str, object]
    policy: GenerationPolicy
    requests_per_minute: int | None
    """For all keys of the team together, as the next one; None is no limit."""
    events_per_month: int | None
    archived_at: datetime | None
    created_at: datetime
    updated_at: datetime


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who belongs to a team, by the name that stands as actor in their keys. A team always keeps an owner."""

    team_id: UUID
    user_id: str
    role: Role
    metadata: dict[str, object]
    created_at: datetime
    updated_at: datetime


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """One code base of a team, named by a canonical id (`github.com/user/repo`, a name, or a path). Made when first named.

    An archived one is found by its id only, and keeps its names.
    """

    id: UUID
    team_id: UUID
    canonical_id: str
    name: str
    aliases: list[str]
    metadata: dict[str, object]
    policy: GenerationPolicy
    team_policy: GenerationPolicy
    search_language: str
    archived_at: datetime | None
    created_at: datetime
    updated_at: datetime


class TakenName(msgspec.Struct, frozen=True, kw_only=True):
    """A canonical id or an alias that a project has."""

    name: str
    project_id: UUID
    archived: bool


class StoredKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is stored, with its team: never its text, only the SHA-256 of its secret."""

    id: UUID
    key_hash: str
    team_id: UUID
    team_name: str
    project_id: UUID | None
    actor_id: str
    scopes: list[str]
    revoked_at: datetime | None
    expires_at: datetime | None
    expired: bool
    """By the database's clock."""
    team_archived_at: datetime | None
    counts_as: UUID
    """The key whose limits and usage it goes on with: its own id, but for what a rotation has made."""
    requests_per_minute: int | None
    events_per_month: int | None
    team_requests_per_minute: int | None
    team_events_per_month: int | None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a key, and all keys of its team together, may do; None is no limit."""

    requests_per_minute: int | None = None
    events_per_month: int | None = None
    team_requests_per_minute: int | None = None
    team_events_per_month: int | None = None


NO_LIMITS = Limits()


class MintedKey(msgspec.Struct, frozen=True, kw_only=True):
    """A new key with its text, which is shown once."""

    id: UUID
    text: str


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Whoever is asking: a key's team, its project when it is bound to one, and what it may do."""

    team_id: UUID
    project_id: UUID | None
    key_id: UUID | None
    """None for an operator, who asks without a key (`--operator`)."""
    actor_id: str
    scopes: frozenset[str]
    team_name: str = ""
    limits: Limits = NO_LIMITS
    counts_as: UUID | None = None
    """The key under which it is counted, where that is not its own (see StoredKey)."""

    def sees(self, project_id: UUID | None) -> bool:
        """Whether what belongs to the project, or to the whole team without one, is within the key's reach."""
        return self.project_id in (None, project_id)

    def may(self, scope: str) -> bool:
        if scope == "*":  # the one thing that `admin` is not
            return scope in self.scopes
        return bool(self.scopes & {scope, "*", "admin"})

    def require(self, scope: str) -> None:
        """Forbidden, in a sentence that says what to ask for, when the key lacks the scope."""
        if not self.may(scope):
            raise Forbidden(f"This key does not have the scope {scope}. Ask an owner of the team for a key that has it.")
