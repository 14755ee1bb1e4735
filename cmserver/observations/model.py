"""The central noun: an observation is one thing worth remembering."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

Kind = Literal["observation", "summary", "manual"]
Scope = Literal["project", "team"]
ObservationType = Literal[
    "bugfix", "feature", "refactor", "change", "discovery", "decision", "security_alert", "security_note", "sensitive"
]
TYPES: frozenset[str] = frozenset(ObservationType.__args__)

TITLE_MOST = 200
TEXT_MOST = 20_000
ITEM_MOST = 2_000
ITEMS_MOST = 50
"""Bounds of what is stored, in characters: an index of PostgreSQL takes a megabyte of words, and nobody reads that much."""


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One thing worth remembering, drawn from the events of one session.

    Made by generation or by hand; people may correct its labels. Partial data is better than none: most fields may be missing.
    One of scope `team` is recalled in every project of its team.
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
    content: str
    read_tokens: int | None
    discovery_tokens: int | None
    metadata: dict[str, object]
    created_by_job_id: UUID | None
    access_count: int
    """How often its text was given to somebody, as far as that has been counted; see observations.accesses."""
    last_accessed_at: datetime | None
    created_at: datetime
    updated_at: datetime

    @property
    def cost(self) -> int:
        """How many tokens reading the whole of it takes."""
        return estimate_tokens(self.content) if self.read_tokens is None else self.read_tokens


class NewObservation(msgspec.Struct, frozen=True, kw_only=True):
    """An observation about to be stored. `generation_key` makes a repeated write find the first one."""

    id: UUID
    number: int
    server_session_id: UUID | None
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
    content: str
    read_tokens: int
    discovery_tokens: int
    generation_key: str | None
    metadata: dict[str, object]
    created_by_job_id: UUID | None
    scope: Scope = "project"
    created_at: datetime | None = None
    """Now, where it is None."""


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many there are, summaries apart, and since when."""

    observations: int
    summaries: int
    first_at: datetime | None


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where an observation stands among those of its project, by age."""

    created_at: datetime
    id: UUID


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a NewObservation: its id and number as they are in the table."""

    id: UUID
    number: int
    generation_key: str | None


class Manual(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody writes down by hand. `at` is where it stands in the body, for errors."""

    project_id: UUID
    server_session_id: UUID | None = None
    type: ObservationType = "discovery"
    scope: Scope = "project"
    title: str | None = None
    subtitle: str | None = None
    narrative: str | None = None
    content: str | None = None
    facts: list[str] = []
    concepts: list[str] = []
    files_read: list[str] = []
    files_modified: list[str] = []
    metadata: dict[str, object] = {}
    created_at: datetime | None = None
    """Now, where it is None; else when it was written down elsewhere."""
    at: str = "$"


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """What people may correct; UNSET stays as it is. `title` may be taken away."""

    type: ObservationType | UnsetType = UNSET
    title: str | UnsetType | None = UNSET
    concepts: list[str] | UnsetType = UNSET
    scope: Scope | UnsetType = UNSET
    metadata: dict[str, object] | UnsetType = UNSET

    @property
    def fields(self) -> list[str]:
        return [name for name in self.__struct_fields__ if getattr(self, name) is not UNSET]


class NewSource(msgspec.Struct, frozen=True, kw_only=True):
    """A link from an observation to what it was drawn from."""

    id: UUID
    observation_id: UUID
    source_type: Literal["agent_event", "session_summary", "observation_reindex", "manual"]
    source_id: UUID
    agent_event_id: UUID | None
    generation_job_id: UUID | None


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """Which observation was drawn from which event."""

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


class EventLink(msgspec.Struct, frozen=True, kw_only=True):
    """The source link between an event and one observation that was drawn from it."""

    id: UUID
    observation_id: UUID
    source_type: str
    source_id: UUID
    generation_job_id: UUID | None
    generation_key: str | None
    created_at: datetime


def compose(title: str | None, subtitle: str | None, narrative: str | None, facts: Sequence[str] | None) -> str:
    """An observation as one text."""
    parts = [title, subtitle, narrative, *(f"- {fact}" for fact in facts or ())]
    return "\n\n".join(part for part in parts if part)


def estimate_tokens(text: str) -> int:
    """What a text costs a model to read: a quarter of its characters, rounded up. Within some 20 % for English and code."""
    return (len(text) + 3) // 4
