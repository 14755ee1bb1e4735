"""Types of memories, events of the funnel, and the rows that statistics are made of."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Literal, get_args
from uuid import UUID

import msgspec

from cmserver.consolidation.model import SuggestionStatus
from cmserver.models.providers.model import KINDS, ObservationType
from cmserver.observations.model import Observation, Scope

MemoryType = Literal[
    "solution",
    "problem",
    "code_pattern",
    "fix",
    "error",
    "workflow",
    "decision",
    "general",
    "task",
    "technology",
    "command",
    "file_context",
    "conversation",
    "project",
]
MEMORY_TYPES: tuple[MemoryType, ...] = get_args(MemoryType)
MemoryScope = Literal["global", "project"]
StoreAction = Literal["created", "created_with_suggestions", "updated"]
EventType = Literal["recall_attempt", "recall_hit", "store_opportunity", "store_action"]

DEFAULT_TTL_SECONDS = 86_400
PERMANENT_IMPORTANCE = 0.8
"""A memory of less importance lives for the default time, unless its own is sent; one of this or more is permanent."""

NO_PROJECT = "contextify/no-project"
"""The project of memories that were sent without one: they are nobody else's."""

_OUR_TYPES: dict[str, ObservationType] = {
    kind.memory_type: name for name, kind in KINDS.items() if kind.memory_type != "general" and kind.family != "security"
}
"""The nearest of our types; `discovery` for all others."""

_BY_NAME: dict[str, MemoryType] = {known: known for known in MEMORY_TYPES}
_MEMORY_TYPES: dict[str, MemoryType] = {
    **{name: _BY_NAME[kind.memory_type] for name, kind in KINDS.items()},
    "summary": "conversation",
}
"""What an observation that no client of Contextify has typed is called there; `general` for all others."""
_RELATIONSHIP = re.compile(r"[A-Z][A-Z0-9_]{0,63}")


class TelemetryEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the funnel. `session_id` and `agent` are in the caller's words, `query_text` is redacted."""

    event_type: EventType
    project_id: UUID | None = None
    observation_id: UUID | None = None
    session_id: str | None = None
    request_id: str | None = None
    agent: str | None = None
    action: StoreAction | None = None
    hit_count: int | None = None
    latency_ms: int | None = None
    query_text: str | None = None


class MemoryFilters(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions on a memory, all of which must hold; None is no condition. `concepts` and `authors` are in lower case."""

    labels: list[str] | None = None
    scope: Scope | None = None
    authors: list[str] | None = None
    all_concepts: list[str] | None = None
    min_importance: float | None = None


class MemorySuggestion(msgspec.Struct, frozen=True, kw_only=True):
    """Two memories that may say the same."""

    id: UUID
    project_id: UUID
    left_id: UUID
    right_id: UUID
    similarity: float
    status: SuggestionStatus
    created_at: datetime
    resolved_at: datetime | None


class LabelCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many memories have that type, scope and author, how many of them expire, and how many within an hour."""

    label: str
    scope: Scope
    agent: str
    memory_count: int
    short_term_count: int
    expiring_count: int


class UsageTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of all memories, tokens that reading them gave, and how often and how many of them were read."""

    tokens_stored: int
    tokens_saved: int
    hits: int
    memory_count: int
    read_count: int


class AgentTokens(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of the memories of an author."""

    agent: str
    tokens: int


class UsageDay(msgspec.Struct, frozen=True, kw_only=True):
    """A day: `created` is how many memories were made; `hits` is how many results searches gave."""

    date: date
    created: int
    hits: int


class FunnelCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Events by their kind."""

    recall_attempts: int
    recall_hits: int
    store_opportunities: int
    store_actions: int


class FunnelDay(FunnelCounts, frozen=True, kw_only=True):
    """The events of a day."""

    date: date


class FunnelGroup(FunnelCounts, frozen=True, kw_only=True):
    """The events of an agent or a project."""

    key: str


class FunnelRange(msgspec.Struct, frozen=True, kw_only=True):
    """Which events count: of so many days back, or from `first` to `last`; of a project and an agent, or of all without them."""

    days: int = 30
    first: date | None = None
    last: date | None = None
    agent: str | None = None
    project_id: UUID | None = None


def parse_type(word: str | None) -> MemoryType:
    """The type that the word names; `general` for any other word."""
    return _BY_NAME.get((word or "").strip().lower(), "general")


def our_type(type_: MemoryType) -> ObservationType:
    return _OUR_TYPES.get(type_, "discovery")


def memory_type(label: str) -> MemoryType:
    """The type of a memory with that label: the caller's type, else our type, or `summary`."""
    return _BY_NAME.get(label) or _MEMORY_TYPES.get(label, "general")


def label_of(observation: Observation) -> str:
    """As LABEL says it in SQL."""
    return observation.caller_type or ("summary" if observation.kind == "summary" else observation.type)


def labels_of(type_: MemoryType) -> list[str]:
    """All labels of memories that are shown with the type."""
    return [type_, *(label for label, known in _MEMORY_TYPES.items() if known == type_ != label)]


def relationship_word(text: str) -> str | None:
    """The relationship that the caller means, as it is stored (SOLVES, DEPENDS_ON); None for what is no word."""
    word = re.sub(r"[\s-]+", "_", text.strip()).upper()
    return word if _RELATIONSHIP.fullmatch(word) else None
