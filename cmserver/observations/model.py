"""Observations, their sources, and what people write and correct."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, LiteralString
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

Kind = Literal["observation", "summary", "manual"]
Scope = Literal["project", "team"]
ObservationState = Literal["open", "done", "dropped"]
ObservationType = Literal[
    "bugfix", "feature", "refactor", "change", "discovery", "decision", "security_alert", "security_note", "sensitive"
]
TYPES: frozenset[str] = frozenset(ObservationType.__args__)

LISTS = ("facts", "concepts", "files_read", "files_modified")
"""The fields that are lists of texts."""

TITLE_MOST = 200
TEXT_MOST = 20_000
ITEM_MOST = 2_000
ITEMS_MOST = 50
"""Bounds of what is stored, in characters; a search vector of PostgreSQL holds at most 1 MB."""


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One thing worth remembering of a session, made by generation or by hand. Most fields may be missing.

    People may correct its labels. One of scope `team` is recalled in every project of its team.
    """

    id: UUID
    number: int
    project_id: UUID
    team_id: UUID
    server_session_id: UUID | None
    scope: Scope
    kind: Kind
    type: str
    origin: str
    title: str | None
    subtitle: str | None
    narrative: str | None
    facts: list[str] | None
    concepts: list[str] | None
    files_read: list[str] | None
    files_modified: list[str] | None
    summary: dict[str, str | None] | None
    prompt_number: int | None
    importance: float = 0.5
    """0 to 1."""
    quote: str | None = None
    """The sentence of the user or the agent that it rests on, word by word."""
    quote_event_id: UUID | None = None
    anchors: list[str] | None = None
    """Files, functions, tests and commands by which it is found."""
    state: ObservationState | None = None
    """Of something to be done; None for everything else."""
    closed_by: int | None = None
    """The number of the observation with which it was done."""
    closed_at: datetime | None = None
    content: str
    read_tokens: int | None
    discovery_tokens: int | None
    metadata: dict[str, object]
    created_by_job_id: UUID | None
    access_count: int
    """How often its text was read; see observations.accesses."""
    last_accessed_at: datetime | None
    created_at: datetime
    updated_at: datetime

    @property
    def cost(self) -> int:
        """Tokens that the whole text takes."""
        return estimate_tokens(self.content) if self.read_tokens is None else self.read_tokens


OBSERVATION_COLUMNS: LiteralString = (
    "id, number, project_id, team_id, server_session_id, scope, kind, type, origin, title, subtitle, narrative, facts, concepts,"
    " files_read, files_modified, summary, prompt_number, importance, quote, quote_event_id, anchors, state, closed_by, closed_at,"
    " content, read_tokens, discovery_tokens, metadata, created_by_job_id,"
    " access_count, last_accessed_at, created_at, updated_at"
)


class NewObservation(msgspec.Struct, frozen=True, kw_only=True):
    """An observation about to be stored. `generation_key` makes a repeated write find the first one."""

    id: UUID
    number: int = 0
    server_session_id: UUID | None = None
    kind: Kind
    type: str
    origin: str
    title: str | None = None
    subtitle: str | None = None
    narrative: str | None = None
    facts: list[str] | None = None
    concepts: list[str] | None = None
    files_read: list[str] | None = None
    files_modified: list[str] | None = None
    summary: dict[str, str | None] | None = None
    prompt_number: int | None = None
    importance: float = 0.5
    quote: str | None = None
    quote_event_id: UUID | None = None
    anchors: list[str] | None = None
    state: ObservationState | None = None
    content: str
    read_tokens: int
    discovery_tokens: int = 0
    generation_key: str | None = None
    metadata: dict[str, object] = {}
    created_by_job_id: UUID | None = None
    scope: Scope = "project"
    created_at: datetime | None = None
    """None is the time of the transaction."""


NEW_OBSERVATION_COLUMNS: LiteralString = (
    "id, number, server_session_id, kind, type, origin, title, subtitle, narrative, facts, concepts, files_read, files_modified,"
    " summary, prompt_number, importance, quote, quote_event_id, anchors, state, content, read_tokens, discovery_tokens,"
    " generation_key, metadata, created_by_job_id, scope"
)
"""All fields of a NewObservation but `created_at`."""


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


class ManualObservation(msgspec.Struct, frozen=True, kw_only=True):
    """An observation written by hand. `at` is its path in the body, for errors."""

    project_id: UUID
    server_session_id: UUID | None = None
    type: ObservationType = "discovery"
    scope: Scope = "project"
    title: str | None = None
    subtitle: str | None = None
    narrative: str | None = None
    content: str | None = None
    facts: list[str] | None = None
    concepts: list[str] | None = None
    files_read: list[str] | None = None
    files_modified: list[str] | None = None
    metadata: dict[str, object] = {}
    created_at: datetime | None = None
    """When it was written down elsewhere; None is now."""
    at: str = "$"


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """What people may correct. UNSET stays as it is; a `title` or `state` of None removes it."""

    type: ObservationType | UnsetType = UNSET
    title: str | UnsetType | None = UNSET
    concepts: list[str] | UnsetType = UNSET
    scope: Scope | UnsetType = UNSET
    metadata: dict[str, object] | UnsetType = UNSET
    state: ObservationState | UnsetType | None = UNSET

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
