"""Who may do what: teams, projects, keys, and the principal that a key stands for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Literal, LiteralString, Self, TypeVar
from uuid import UUID

import msgspec
from msgspec import Meta

from cmserver.base.errors import Forbidden
from cmserver.base.text import Label, Text, matching

T = TypeVar("T", bound=msgspec.Struct)

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
"""The scopes of keys. `admin` allows everything in the key's team; `*` also teams and their limits, for the operator."""

OLDER_SCOPES = {
    "memories:read": frozenset({"observations:read", "jobs:read"}),
    "memories:write": frozenset({"events:write", "sessions:write", "observations:write", "jobs:write"}),
}
"""Scopes of claude-mem's server, and the scopes that they stand for."""


def expand_scopes(scopes: Iterable[str]) -> frozenset[str]:
    """The scopes with older ones replaced by those that they stand for."""
    return frozenset(plain_scope for scope in scopes for plain_scope in OLDER_SCOPES.get(scope, {scope}))


WordsFor = Literal["members", "owners", "nobody"]
"""Who of a team reads what others and their agents said; `nobody` is nobody but the person."""
_WORK = "how many files they changed, how checks ended, and commits"
READERS_OF_WORDS: dict[WordsFor, str] = {
    "members": "every member reads all",
    "owners": f"owners read all, and everybody else what they and their agents said; of others {_WORK}",
    "nobody": f"each reads what they and their agents said; of others {_WORK}",
}
"""What `WordsFor` means, as the end of a sentence about what people and their agents say."""
Role = Literal["owner", "member", "viewer"]
"""What a member is in a team."""

SCOPES_BY_ROLE: dict[Role, frozenset[str]] = {
    "viewer": frozenset({"observations:read", "jobs:read"}),
    "member": frozenset(SCOPES) - {"admin", "*"},
    "owner": frozenset({"admin"}),
}
"""What members who sign in may do in a team, and what is left to a member's keys when the role is lowered. A person who is also an
operator of the server has the scope `*` in their teams.
"""

PrincipalKind = Literal["key", "person", "guest", "steward", "operator"]
"""Who calls: a program with a key; somebody who is signed in; a caller on this machine without a key
(CMSERVER_TRUST_LOOPBACK); the steward; or whoever has the database, by a command or the server's own maintenance. Only the operator
has no limits."""

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


Consolidation = Literal["off", "suggest", "merge"]
"""What becomes of a generated observation that says what is there already; `off` compares nothing."""

MergeStrategy = Literal["latest_wins", "append", "smart_merge"]
"""How texts are merged: `smart_merge` keeps every fact and sentence of all, once."""

SkipRule = Annotated[Text, Meta(min_length=3, max_length=200)]
"""What is not worth an observation: `path:GLOB`, `command:BEGINNING`, or a sentence for the model."""

SKIP_RULE_PREFIXES = ("path:", "command:")
"""The prefixes of skip rules that are applied by code, not by the model."""
_COMMAND_CHAIN = re.compile(r"[;|&<>\n]")


def find_rule_error(rule: str) -> str | None:
    """The error in a rule that is applied by code; None for a valid one, and for a sentence for the model."""
    prefix = next((prefix for prefix in SKIP_RULE_PREFIXES if rule.startswith(prefix)), None)
    if prefix is None:
        return None
    pattern = rule.removeprefix(prefix).strip()
    if not pattern.strip("/."):
        return f"Write a pattern after {prefix}."
    if prefix == "path:" and pattern.startswith("!"):
        return "A path rule cannot have exceptions (`!`)."
    if prefix == "path:" and ".." in pattern.replace("\\", "/").split("/"):
        return "A path rule is relative to the project's folder and cannot contain `..`."
    if prefix == "command:" and _COMMAND_CHAIN.search(pattern):
        return "A command rule is the beginning of a single command, without `;`, `|`, `&`, `<` or `>`."
    return None


class GenerationPolicy(msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """When observations are made of a project's events, of which never, and how they are worded. Set for a team or a project.

    What a project does not say, its team says; what neither says, the settings. The lists add up. Stored as it is sent.

    `mode` is when they are made: of each event by itself and at once, of each burst together, or only when the session has ended.
    """

    mode: Literal["per_event", "burst", "at_end"] | None = None
    debounce_seconds: Annotated[float, Meta(ge=0, le=3600)] | None = None
    skip_event_types: Annotated[list[Label], Meta(max_length=100)] = []
    skip_tools: Annotated[list[Label], Meta(max_length=100)] = []
    verbosity: Literal["minimal", "normal", "verbose"] | None = None
    language: Annotated[Text, Meta(min_length=2, max_length=40)] | None = None
    skip_rules: Annotated[list[SkipRule], Meta(max_length=50)] = []


Days = Annotated[int, Meta(ge=0, le=36_500)]
"""How long something is kept; 0 is for good."""
Share = Annotated[float, Meta(ge=0, le=1)]


class RetentionPolicy(msgspec.Struct, rename="camel", frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """How long what is kept, in days; 0 is for good. Set for a team or a project. Stored as it is sent.

    What a project does not say, its team says; what neither says, the settings. `defaultTtlSeconds`, `promoteImportance` and
    `mergeStrategy` are for memories of Contextify's clients.
    """

    observations_days: Days | None = None
    min_importance: Share | None = None
    promote_accesses: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    events_days: Days | None = None
    job_log_days: Days | None = None
    receipts_days: Days | None = None
    audit_days: Days | None = None
    default_ttl_seconds: Annotated[int, Meta(ge=1, le=3_155_760_000)] | None = None
    extend_factor: Annotated[float, Meta(ge=0, le=100)] | None = None
    promote_importance: Share | None = None
    cleanup_seconds: Annotated[int, Meta(ge=1, le=31_536_000)] | None = None
    suggest_above: Share | None = None
    auto_merge_above: Share | None = None
    merge_strategy: MergeStrategy | None = None


class ProjectRetention(msgspec.Struct, frozen=True, kw_only=True):
    """What a project says, and where it says nothing its team."""

    retention: RetentionPolicy


class Team(msgspec.Struct, frozen=True, kw_only=True):
    """People who share what their agents remember. Teams never see each other. Made by bootstrap or an operator.

    An archived team's keys open nothing; only the operator brings it back.
    """

    id: UUID
    name: str
    metadata: dict[str, object]
    policy: GenerationPolicy
    retention: RetentionPolicy
    approves_rules: bool
    """Whether a rule that a model or an agent's tool writes counts only after a person's yes."""
    untold_share: int
    """How many of a hundred new sessions are told nothing, to be compared with the others; 0 compares none."""
    words: WordsFor
    requests_per_minute: int | None
    """This and the next are for all keys of the team together; None is no limit."""
    events_per_month: int | None
    archived_at: datetime | None
    created_at: datetime
    updated_at: datetime


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """One code base of a team, named by a canonical id (`github.com/user/repo`, a name, or a path). Made when first named.

    An archived one is found by its id only, and keeps its names. One that was joined to another is archived, and its names mean
    the other.
    """

    id: UUID
    key_id: UUID
    """Of the project by whose name it was found: sessions and events keep their identity by it, whatever is joined or separated."""
    team_id: UUID
    canonical_id: str
    name: str
    aliases: list[str]
    metadata: dict[str, object]
    policy: GenerationPolicy
    team_policy: GenerationPolicy
    retention: RetentionPolicy
    search_language: str
    consolidation: Consolidation
    merge_with_model: bool
    """Whether a model words what people merge."""
    isolated: bool
    """Nothing of it is found from elsewhere, and it sees nothing that other projects share."""
    joined_to: UUID | None
    stays_apart: bool
    """It was separated again, so it is not joined by itself."""
    archived_at: datetime | None
    created_at: datetime
    updated_at: datetime


FOUND_ELSEWHERE: LiteralString = "project_id NOT IN (SELECT id FROM projects WHERE isolated)"
"""Of a row that a list of the whole team may show."""

IN_REACH: LiteralString = f"((%(project_id)s::uuid IS NULL AND {FOUND_ELSEWHERE}) OR project_id = %(project_id)s::uuid)"
"""Of a row that a list of the project shows, or without one a list of the team."""
IN_REACH_O: LiteralString = IN_REACH.replace("project_id NOT", "o.project_id NOT").replace("OR project_id", "OR o.project_id")
"""The same where the table is called `o`."""


FORMER_NAMES: LiteralString = """
    coalesce((SELECT jsonb_object_agg(n.former, n.name)
                FROM (SELECT f.former_actor AS former, min(f.actor_id) AS name
                        FROM api_keys f
                       WHERE f.team_id = t.id AND f.former_actor IS NOT NULL
                         AND NOT EXISTS (SELECT FROM api_keys o WHERE o.team_id = f.team_id AND o.actor_id = f.former_actor)
                         AND NOT EXISTS (SELECT FROM team_members m JOIN users u ON u.id = m.account_id
                                          WHERE m.team_id = f.team_id AND m.account_id <> f.user_id
                                            AND lower(f.former_actor) IN (lower(m.user_id), lower(u.name)))
                       GROUP BY f.former_actor HAVING count(*) = count(f.user_id) AND count(DISTINCT f.user_id) = 1) n), '{}')
"""
"""The `names` of a principal of the team `t`: what was the name of one person's keys alone, before they bound them."""


class Namesake(msgspec.Struct, frozen=True, kw_only=True):
    """A project, as far as it tells it from others of its short name."""

    id: UUID
    name: str
    canonical_id: str


def tell_apart(project: Namesake, others: Iterable[Namesake]) -> str:
    """Its short name; where others have that, too, with what stands before it in its canonical id, as far as that is needed:
    `orders (acme)`.
    """
    same = [other for other in others if other.name == project.name and other.id != project.id]
    parts, taken = _folders(project), [_folders(other) for other in same]
    if not same or not parts:
        return project.name
    length = next((n for n in range(1, len(parts)) if all(other[-n:] != parts[-n:] for other in taken)), len(parts))
    return f"{project.name} ({'/'.join(parts[-length:])})"


def _folders(project: Namesake) -> list[str]:
    parts = [part for part in project.canonical_id.split("/") if part]
    return parts[:-1] if parts and parts[-1] == project.name else parts


class TakenName(msgspec.Struct, frozen=True, kw_only=True):
    """A canonical id or alias of a project."""

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
    user_id: UUID | None
    private_id: UUID | None
    private_to: UUID | None
    names: dict[str, str]
    scopes: list[str]
    revoked_at: datetime | None
    expires_at: datetime | None
    expired: bool
    """Whether the key has expired, by the database's clock."""
    team_archived_at: datetime | None
    counts_as: UUID
    """The key whose usage it continues: for a rotated key the first one, else its own id."""
    requests_per_minute: int | None
    events_per_month: int | None
    team_requests_per_minute: int | None
    team_events_per_month: int | None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a key, and of all keys of its team together; None means no limit."""

    requests_per_minute: int | None = None
    events_per_month: int | None = None
    team_requests_per_minute: int | None = None
    team_events_per_month: int | None = None


NO_LIMITS = Limits()


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """The caller: what kind, in which team, in which project when bound to one, and with which scopes."""

    kind: PrincipalKind
    team_id: UUID
    project_id: UUID | None
    key_id: UUID | None
    """Of a key; None for all other kinds."""
    names: dict[str, str] = {}
    """What members of the team are called by whom their keys acted under another name before: accounts' names by those."""
    user_id: UUID | None = None
    """The person who is signed in, or whose key it is."""
    actor_id: str
    scopes: frozenset[str]
    team_name: str = ""
    limits: Limits = NO_LIMITS
    counts_as: UUID | None = None
    """What its usage is counted for, if not the key itself: the first of rotated keys, a person in this team, or all guests."""
    private_id: UUID | None = None
    """The person's private place in the team, if they have one: it is a team of theirs alone."""
    private_to: UUID | None = None
    """Whose that place is, as it says itself."""
    by_tool: bool = False
    """Whether a model of theirs asks, by a tool of MCP."""
    home: Principal | None = None
    """Of somebody in their private place: who they are in their team."""

    @classmethod
    def of_server(cls, team_id: UUID, *, actor_id: str = "system", team_name: str = "") -> Self:
        """The server, or who runs it, in the whole team."""
        return cls(
            kind="operator",
            team_id=team_id,
            team_name=team_name,
            project_id=None,
            key_id=None,
            actor_id=actor_id,
            scopes=frozenset({"*"}),
        )

    @property
    def usage_id(self) -> UUID | None:
        """What requests and events are counted for: a key, a person, or all guests. None for the operator only."""
        if self.kind == "operator":
            return None
        usage_id = self.counts_as or self.key_id
        if usage_id is None:
            raise ValueError(f"A principal of kind {self.kind} must be counted: set key_id or counts_as")
        return usage_id

    @property
    def at_home(self) -> Principal:
        """The caller in their team, wherever they are."""
        return self.home or self

    @property
    def is_person(self) -> bool:
        """Whether a person asks: signed in, on the server's machine, or with a key of their own, and not by a model's tool."""
        return not self.by_tool and (self.kind in {"person", "operator"} or self.user_id is not None)

    def sees(self, project_id: UUID | None) -> bool:
        """Whether the key may see the project; None stands for what belongs to the whole team."""
        return self.project_id in (None, project_id)

    def name_of(self, actor: str | None) -> str | None:
        """The name to show for who stands on a row: of a key that was bound to an account since, that account's."""
        return actor if actor is None else self.names.get(actor, actor)

    def named(self, rows: Iterable[T]) -> list[T]:
        """The rows, of which each has the name to show in `actor_id`."""
        rows = list(rows)
        if not self.names:
            return rows
        actors = [getattr(row, "actor_id", None) for row in rows]
        return [
            row if actor not in self.names else msgspec.structs.replace(row, actor_id=self.names[actor])
            for row, actor in zip(rows, actors, strict=True)
        ]

    @property
    def own_names(self) -> list[str]:
        """The caller's name, and what their keys were called before."""
        return [self.actor_id, *(former for former, name in self.names.items() if name == self.actor_id)]

    def may(self, scope: str) -> bool:
        if scope == "*":  # the one thing that `admin` is not
            return scope in self.scopes
        return bool(self.scopes & {scope, "*", "admin"})

    def require(self, scope: str) -> None:
        """Raise Forbidden when the key lacks the scope."""
        if not self.may(scope):
            raise Forbidden(
                f"You may not do this: it needs the scope {scope}. Ask an owner of the team for another role."
                if self.kind == "person"
                else f"This key does not have the scope {scope}. Ask an owner of the team for a key that has it."
            )
