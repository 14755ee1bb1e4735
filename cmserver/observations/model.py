"""Observations, their sources, and what people write and correct."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, LiteralString
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from cmserver.base.ids import EpochMs
from cmserver.models.providers.model import KINDS, ObservationType

Kind = Literal["observation", "summary", "manual"]
Scope = Literal["project", "team"]
WrittenScope = Literal["project", "team", "user"]
"""Whose an observation shall be; that of a user is no row of the team's, but a personal observation."""
ObservationState = Literal["open", "done", "dropped"]
ListedState = Literal["open", "done", "dropped", "expired"]
"""What a list can be narrowed to; what is expired is not shown elsewhere, until it is purged."""
INSTRUCTION_IMPORTANCE = 0.9
"""The importance of what a user laid down for good."""
MIN_INSTRUCTION_IMPORTANCE = 0.85
"""A decision that is more important than this is shown as laid down by a user."""
TYPES: frozenset[str] = frozenset(KINDS)

CURRENT_ON = "currentOn"
"""The mark, in an observation's metadata, of the matter on which it is the current word; one of a project has it."""

BY_USER = "byUser"
"""The mark, in an observation's metadata, that a user laid it down or decided it."""

TYPE_FAMILIES: tuple[frozenset[str], ...] = tuple(
    frozenset(name for name, kind in KINDS.items() if kind.family == family)
    for family in dict.fromkeys(kind.family for kind in KINDS.values())
)

LISTS = ("facts", "concepts", "files_read", "files_modified")
"""The fields that are lists of texts."""

TITLE_MOST = 200
TEXT_MOST = 20_000
ITEM_MOST = 2_000
ITEMS_MOST = 50
"""Bounds of what is stored, in characters; a search vector of PostgreSQL holds at most 1 MB."""


PROMOTE_IMPORTANCE = 0.8
"""An observation that expires becomes permanent when a correction raises its importance to this."""


class StaleMark(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Why what an observation says of a file does not hold any more: what became of the file, and by which event.

    `reason` is whether the file is gone or has another path, or what is named in it was removed or has another value. `path` is the
    file that has changed since; `name` is what of the file: a new path, a name in it, or the value that it had. `markedAtEpoch` is
    when that was noticed.
    """

    reason: Literal["deleted", "moved", "removed", "changed"]
    path: str
    name: str = ""
    event_id: UUID | None = None
    marked_at_epoch: EpochMs


class ObservationTexts(msgspec.Struct, frozen=True, kw_only=True):
    """What is said, and about what. Most of it may be missing."""

    server_session_id: UUID | None = None
    scope: Scope = "project"
    title: str | None = None
    subtitle: str | None = None
    narrative: str | None = None
    facts: list[str] | None = None
    concepts: list[str] | None = None
    files_read: list[str] | None = None
    files_modified: list[str] | None = None
    metadata: dict[str, object] = {}
    importance: float = 0.5
    """0 to 1."""
    agent: str | None = None
    """Who wrote it by hand, in the caller's words."""
    caller_type: str | None = None
    """The type that the caller gave, where it is none of ours."""
    ttl_seconds: int | None = None


class ObservationFields(ObservationTexts, frozen=True, kw_only=True):
    """What an observation has when it is written, and in the table."""

    id: UUID
    kind: Kind
    type: str
    origin: str
    summary: dict[str, str | None] | None = None
    prompt_number: int | None = None
    actor_id: str | None = None
    """Whose key it came by; of a new one, None for that of its session."""
    quote: str | None = None
    """The sentence of the user or the agent that it rests on, word by word."""
    quote_event_id: UUID | None = None
    anchors: list[str] | None = None
    """Files, functions, tests and commands by which it is found."""
    state: ObservationState | None = None
    """Of something to be done; None for everything else."""
    content: str
    created_by_job_id: UUID | None = None


class ObservationFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which observations a list has; None is any. Without a project it has what a list of the team shows.

    `state` is a ListedState. `platform` is part of the name of the agent whose session it was.
    """

    project_id: UUID | None = None
    session_id: UUID | None = None
    kind: str | None = None
    without_summaries: bool = False
    without_history: bool = False
    type: str | None = None
    scope: str | None = None
    state: str | None = None
    platform: str | None = None


class Observation(ObservationFields, frozen=True, kw_only=True):
    """One thing worth remembering of a session, made by generation or by hand. Most fields may be missing.

    People may correct its labels. One of scope `team` is recalled in every project of its team.
    """

    number: int
    project_id: UUID
    team_id: UUID
    turn_number: int | None = None
    """The number of the turn that it was made of."""
    closed_by: int | None = None
    """The number of the observation or of the turn with which it was done."""
    closed_at: datetime | None = None
    stale: StaleMark | None = None
    """None while nothing is known against what it says."""
    read_tokens: int | None
    discovery_tokens: int | None
    access_count: int
    """How often its text was read; see observations.accesses."""
    last_accessed_at: datetime | None
    expires_at: datetime | None
    """From then on it is not shown; None is never."""
    version: int
    """1, and one more with each change."""
    superseded_by: UUID | None
    """The observation that it was merged into, which is shown in its place."""
    superseded_at: datetime | None
    merged_from: list[UUID]
    created_at: datetime
    updated_at: datetime

    @property
    def cost(self) -> int:
        """Tokens that the whole text takes."""
        return estimate_tokens(self.content) if self.read_tokens is None else self.read_tokens


OBSERVATION_COLUMNS: LiteralString = (
    "id, number, project_id, team_id, server_session_id, scope, kind, type, origin, title, subtitle, narrative, facts, concepts,"
    " files_read, files_modified, summary, prompt_number, turn_number, actor_id, importance, quote, quote_event_id, anchors, state,"
    " closed_by, closed_at,"
    " stale, content, read_tokens, discovery_tokens, metadata, created_by_job_id,"
    " access_count, last_accessed_at, agent, caller_type, ttl_seconds, expires_at, version, superseded_by, superseded_at,"
    " merged_from, created_at, updated_at"
)


class StateByTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an observation, and the number of the turn that closed it."""

    number: int
    state: ObservationState
    closed_by: int | None


class RecordedFailure(StateByTurn, frozen=True, kw_only=True):
    """What is or was open, with its turn. `may_change` tells that neither a person nor its own session has closed it."""

    server_session_id: UUID
    turn_number: int
    asked_at: datetime
    metadata: dict[str, object]
    may_change: bool


LIVE: LiteralString = "superseded_at IS NULL AND (expires_at IS NULL OR expires_at > now())"
LIVE_O: LiteralString = "o.superseded_at IS NULL AND (o.expires_at IS NULL OR o.expires_at > now())"
"""What is shown: neither merged into another nor past its time. The view `observations_in_team` says the same."""

# The counter's row is locked until its numbers are committed: below the last number there are none to come.
TEAMS_BEHIND: LiteralString = """
    SELECT c.team_id FROM observation_counters c
      LEFT JOIN read_positions p ON p.team_id = c.team_id AND p.name = %(reader)s
     WHERE c.last_number > coalesce(p.read_to, 0)"""
"""Selects the teams with observations behind the read position of that name."""

LABEL: LiteralString = "coalesce(o.caller_type, CASE WHEN o.kind = 'summary' THEN 'summary' ELSE o.type END)"
"""What the writer calls the observation: his own type, else ours, or `summary`."""
MEMORY_CONDITIONS: LiteralString = """(%(labels)s::text[] IS NULL
        OR coalesce(o.caller_type, CASE WHEN o.kind = 'summary' THEN 'summary' ELSE o.type END) = ANY(%(labels)s::text[]))
   AND (%(scope)s::text IS NULL OR o.scope = %(scope)s::text)
   AND (%(authors)s::text[] IS NULL OR lower(o.agent) = ANY(%(authors)s::text[]))
   AND (%(all_concepts)s::text[] IS NULL
        OR NOT EXISTS (SELECT FROM unnest(%(all_concepts)s::text[]) wanted
                        WHERE NOT EXISTS (SELECT FROM unnest(o.concepts) c WHERE lower(c) = wanted)))
   AND (%(min_importance)s::real IS NULL OR o.importance >= %(min_importance)s::real)"""
"""Filters on what the writer of the observation `o` says of it."""


class DerivedObservation(msgspec.Struct, frozen=True, kw_only=True):
    """An observation that the steward derived from others. It is erased with the first of them."""

    id: UUID
    number: int
    project_id: UUID


class GoneObservation(msgspec.Struct, frozen=True, kw_only=True):
    """An observation that is not shown any more: merged into the one numbered `superseded_by`, or expired."""

    id: UUID
    number: int
    project_id: UUID
    scope: Scope
    superseded_by: int | None
    expired_at: datetime | None


class NewObservation(ObservationFields, frozen=True, kw_only=True):
    """An observation about to be stored. `generation_key` makes a repeated write find the first one."""

    number: int = 0
    read_tokens: int
    discovery_tokens: int = 0
    generation_key: str | None = None
    created_at: datetime | None = None
    """None is the time of the transaction."""
    person_id: UUID | None = None
    """Whose words these are; None for those of its session or job."""


NEW_OBSERVATION_COLUMNS: LiteralString = (
    "id, number, server_session_id, kind, type, origin, title, subtitle, narrative, facts, concepts, files_read, files_modified,"
    " summary, prompt_number, importance, quote, quote_event_id, anchors, state, content, read_tokens, discovery_tokens,"
    " generation_key, metadata, created_by_job_id, scope, agent, caller_type, ttl_seconds"
)
"""All fields of a NewObservation but `created_at`, `actor_id` and `person_id`."""
OF_SEVERAL = UUID(int=0)
"""The `person_id` of what was made of several people's words."""


class ObservationCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many there are, and the time of the first."""

    observations: int
    summaries: int
    first_at: datetime | None


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The place of an observation in the order of time."""

    created_at: datetime
    id: UUID


class StoredObservation(msgspec.Struct, frozen=True, kw_only=True):
    """The id and number of a NewObservation as they are in the table: those of the first write of its key."""

    id: UUID
    number: int
    generation_key: str | None


class ManualObservation(ObservationTexts, frozen=True, kw_only=True):
    """An observation written by hand. `at` is its path in the body, for errors."""

    project_id: UUID
    type: ObservationType = "discovery"
    content: str | None = None
    created_at: datetime | None = None
    """When it was written down elsewhere; None is now."""
    at: str = "$"


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """What people may correct. UNSET stays as it is; a `title`, `subtitle`, `narrative`, `state` or `stale` of None removes it."""

    type: ObservationType | UnsetType = UNSET
    caller_type: str | UnsetType | None = UNSET
    title: str | UnsetType | None = UNSET
    subtitle: str | UnsetType | None = UNSET
    narrative: str | UnsetType | None = UNSET
    facts: list[str] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    importance: float | UnsetType = UNSET
    ttl_seconds: int | UnsetType | None = UNSET
    """From now on; None is for good."""
    concepts: list[str] | UnsetType = UNSET
    scope: Scope | UnsetType = UNSET
    metadata: dict[str, object] | UnsetType = UNSET
    state: ObservationState | UnsetType | None = UNSET
    stale: UnsetType | None = UNSET
    current_on: str | UnsetType | None = UNSET
    """The matter on which it is the current word."""

    @property
    def fields(self) -> list[str]:
        return [name for name in self.__struct_fields__ if getattr(self, name) is not UNSET]


class NewSource(msgspec.Struct, frozen=True, kw_only=True):
    """A link from an observation to its source."""

    id: UUID
    observation_id: UUID
    source_type: Literal["agent_event", "session_summary", "observation_reindex", "manual"]
    source_id: UUID
    agent_event_id: UUID | None
    generation_job_id: UUID | None


class EventObservation(msgspec.Struct, frozen=True, kw_only=True):
    """An observation that was made of an event."""

    event_id: UUID
    id: UUID
    number: int


class EditedFiles(msgspec.Struct, frozen=True, kw_only=True):
    """How many files a session has edited."""

    session_id: UUID
    files: int


class ObservationSource(msgspec.Struct, frozen=True, kw_only=True):
    """A stored source link."""

    id: UUID
    observation_id: UUID
    source_type: str
    source_id: UUID
    generation_job_id: UUID | None
    created_at: datetime


class EventLink(ObservationSource, frozen=True, kw_only=True):
    """The source link between an event and one observation made of it."""

    generation_key: str | None


def compose(title: str | None, subtitle: str | None, narrative: str | None, facts: Sequence[str] | None) -> str:
    """The texts of an observation as one."""
    parts = [title, subtitle, narrative, *(f"- {fact}" for fact in facts or ())]
    return "\n\n".join(part for part in parts if part)


def estimate_tokens(text: str) -> int:
    """About how many tokens a text is: a quarter of its characters, rounded up; within 20 % for English and code."""
    return (len(text) + 3) // 4
