"""Memories as clients of Contextify send and get them. What is null there is left out here; lists are never null."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cmserver.base.text import KEY_MOST, LINE_MOST, Key, Label, Text
from cmserver.consolidation.model import SOURCES_MOST, MergeRecord, Relation, SuggestionStatus
from cmserver.memories import model
from cmserver.observations.history.model import MergeStrategy
from cmserver.observations.model import Observation, compose
from cmserver.observations.plain import one_line
from cmserver.observations.wire import Importance, LifetimeSeconds

_TITLE_CHARS = 200
MAX_RESULTS = 100
"""A list of results has no more, whatever the `limit`."""
DEFAULT_RESULTS = 20
OPERATIONS_MOST = 50

NonEmptyText = Annotated[str, Meta(min_length=1)]
Words = Annotated[Text, Meta(max_length=LINE_MOST)]
Tags = Annotated[list[str], Meta(max_length=100)]
ProjectName = Annotated[Text, Meta(max_length=KEY_MOST)]
AgentName = Annotated[Text, Meta(max_length=100)]
"""Empty ones name nothing, as some clients send them."""
Count = Annotated[int, Meta(ge=0, le=1_000_000)]
"""A `limit`. 0 is the usual one; a page has at most MAX_RESULTS."""
Offset = Annotated[int, Meta(ge=0, le=10_000)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
RequestedStatus = Literal["pending", "accepted", "rejected", "dismissed"]
WantedStrategy = MergeStrategy | Literal[""] | None
"""Without one it is the team's."""
SuggestionWord = Literal["pending", "accepted", "dismissed"]

STATUSES: dict[RequestedStatus, SuggestionStatus] = {
    "pending": "open",
    "accepted": "accepted",
    "rejected": "dismissed",
    "dismissed": "dismissed",
}
_STATUS_WORDS: dict[SuggestionStatus, SuggestionWord] = {"open": "pending", "accepted": "accepted", "dismissed": "dismissed"}


# -- what comes in


class NewMemoryIn(msgspec.Struct, kw_only=True):
    """A memory to store. An unknown `type` is `general`. `project_id` is a canonical id, an address, a path or a name.

    `ttl_seconds` is how long it lives: a day where nothing is said. One of an importance of 0.8 or more is permanent.
    """

    title: NonEmptyText
    content: NonEmptyText
    summary: str | None = None
    type: str | None = None
    scope: model.MemoryScope | Literal[""] | None = None
    project_id: ProjectName | None = None
    agent_source: AgentName | None = None
    tags: Tags | None = None
    importance: Importance | None = None
    ttl_seconds: LifetimeSeconds | None = None


class MemoryChangeIn(msgspec.Struct, kw_only=True):
    """What is to be changed; what is not sent stays. `version` is the one that the memory must still have; without it, any.

    An unknown `type` is `general`.
    """

    title: NonEmptyText | UnsetType | None = UNSET
    content: NonEmptyText | UnsetType | None = UNSET
    summary: str | UnsetType | None = UNSET
    type: str | UnsetType | None = UNSET
    scope: model.MemoryScope | UnsetType | None = UNSET
    tags: Tags | UnsetType | None = UNSET
    importance: Importance | UnsetType | None = UNSET
    version: Annotated[int, Meta(ge=1)] | None = None


class MemoryFiltersIn(msgspec.Struct, kw_only=True):
    """Conditions on the results. Without `project_id`, all projects that the caller sees; all of `tags` must be there.

    An empty `type` or `scope` is any.
    """

    tags: Annotated[list[Words], Meta(max_length=100)] | None = None
    type: model.MemoryType | Literal[""] | None = None
    scope: model.MemoryScope | Literal[""] | None = None
    project_id: ProjectName | None = None
    agent_source: AgentName | None = None
    min_importance: Fraction | None = None
    limit: Count | None = None
    offset: Offset | None = None


class MemorySearchIn(MemoryFiltersIn, kw_only=True):
    """What is looked for; `*` lists what the filters leave, newest first."""

    query: NonEmptyText


class MemoryMergeIn(msgspec.Struct, kw_only=True):
    """The memories that go into the one of the path."""

    source_ids: Annotated[list[UUID], Meta(min_length=1, max_length=SOURCES_MOST)]
    strategy: WantedStrategy = None


class MergeOperationIn(msgspec.Struct, kw_only=True):
    """One merge of several."""

    target_id: Words = ""
    source_ids: Annotated[list[Words], Meta(max_length=SOURCES_MOST)] = []


class MemoryConsolidationIn(msgspec.Struct, kw_only=True):
    """Several merges, each on its own: one that fails leaves the others."""

    operations: Annotated[list[MergeOperationIn], Meta(min_length=1, max_length=OPERATIONS_MOST)]
    strategy: WantedStrategy = None


class MemoryRelationIn(msgspec.Struct, kw_only=True):
    """A relation, named by a word (SOLVES, CAUSES). `strength` is how strong it is, up to 1: 0 or less is taken for 0.5."""

    from_memory_id: UUID
    to_memory_id: UUID
    relationship: Annotated[Text, Meta(min_length=1, max_length=64)]
    strength: Annotated[float, Meta(le=1)] = 0.5
    context: Annotated[Text, Meta(max_length=2_000)] | None = None


class MemorySuggestionsQuery(msgspec.Struct, kw_only=True):
    """Which suggestions: `status` is which to list."""

    project_id: Key | None = None
    status: RequestedStatus = "pending"
    limit: Count = DEFAULT_RESULTS
    offset: Offset = 0


class DuplicatesQuery(msgspec.Struct, kw_only=True):
    """Of which project."""

    project_id: Key | None = None
    limit: Count = DEFAULT_RESULTS


class SuggestionStatusIn(msgspec.Struct, kw_only=True):
    """`status` is what is decided: `accepted` merges the newer into the older, `rejected` and `dismissed` never suggest the pair
    again.
    """

    status: Literal["accepted", "rejected", "dismissed"]


class MergeLogQuery(msgspec.Struct, kw_only=True):
    """Of which memory; of all without `target_id`."""

    target_id: UUID | None = None
    limit: Count = DEFAULT_RESULTS
    offset: Offset = 0


class FunnelQuery(msgspec.Struct, rename={"first": "from", "last": "to"}, kw_only=True):
    """The last `days`, or those from one to another: `from` is the first day (YYYY-MM-DD); `to` is the last day, included."""

    days: Annotated[int, Meta(ge=1, le=365)] | None = None
    first: date | None = None
    last: date | None = None
    agent_source: Label | None = None
    project_id: Key | None = None


class StewardPageQuery(msgspec.Struct, kw_only=True):
    """A page of what the steward did."""

    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    offset: Offset = 0


class StewardPoliciesQuery(StewardPageQuery, kw_only=True):
    """A page of changes, of all policies or of one."""

    policy_key: Key | None = None


class StewardEventsQuery(msgspec.Struct, kw_only=True):
    """A page of the events of a job."""

    limit: Annotated[int, Meta(ge=1, le=1_000)] = 200
    offset: Offset = 0


# -- what goes out


class MemoryRecordOut(msgspec.Struct, frozen=True, kw_only=True):
    """A memory. `replaced_by` is the one that it was merged into; `access_count` may be a minute late."""

    id: UUID
    title: str
    content: str
    summary: str | UnsetType = UNSET
    type: model.MemoryType
    scope: model.MemoryScope
    project_id: str | UnsetType = UNSET
    agent_source: str | UnsetType = UNSET
    tags: list[str]
    importance: float
    ttl_seconds: int | UnsetType = UNSET
    access_count: int
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | UnsetType = UNSET
    version: int
    merged_from: list[UUID]
    replaced_by: UUID | UnsetType = UNSET


class SimilarMemoryOut(msgspec.Struct, frozen=True, kw_only=True):
    """A memory that is near to another, and how near: 0 to 1. `measured_by` is whether their vectors were compared, or only their
    words: right after a memory is stored its vector is not there yet.
    """

    memory: MemoryRecordOut
    similarity: float
    measured_by: Literal["vector", "words"]


class NewMemoryOut(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a memory: `created`; `created_with_suggestions`, which are near to it; or `updated`, the one that said it.

    `updated_existing` is the memory that said it already; `suggestions` are memories that are near to it; `similarity` is how alike
    the nearest is, from 0 to 1.
    """

    memory: MemoryRecordOut
    action: model.StoreAction
    suggestions: list[SimilarMemoryOut] | UnsetType = UNSET
    updated_existing: MemoryRecordOut | UnsetType = UNSET
    similarity: float | UnsetType = UNSET


class MemoryHitOut(msgspec.Struct, frozen=True, kw_only=True):
    """A result; `score` is how well it fits, from 0 to 1. `match_type` is whether its words, its meaning or both fit, or `list` for
    a query of `*`.
    """

    memory: MemoryRecordOut
    score: float
    match_type: Literal["keyword", "semantic", "hybrid", "list"]


class MemoryStatusOut(msgspec.Struct, frozen=True, kw_only=True):
    """`status` is what was done with the thing of that id."""

    status: Literal["promoted", "deleted", "accepted", "rejected", "dismissed"]
    id: UUID


class MergeResultOut(msgspec.Struct, frozen=True, kw_only=True):
    """The merged memory, or why it is none."""

    target_id: str
    memory: MemoryRecordOut | UnsetType = UNSET
    error: str | UnsetType = UNSET


class MergeResultsOut(msgspec.Struct, frozen=True, kw_only=True):
    """A result for each operation, in their order."""

    results: list[MergeResultOut]


class MemoryRelationOut(msgspec.Struct, frozen=True, kw_only=True):
    """A relation between two memories."""

    id: UUID
    from_memory_id: UUID
    to_memory_id: UUID
    relationship: str
    strength: float
    context: str | UnsetType = UNSET
    created_at: datetime


class RelatedMemoriesOut(msgspec.Struct, frozen=True, kw_only=True):
    """The strongest relations first, both ways; `memories` are the other ends of the relations, one for each."""

    memories: list[MemoryRecordOut]
    relationships: list[MemoryRelationOut]


class MemorySuggestionOut(msgspec.Struct, frozen=True, kw_only=True):
    """Two memories that may say the same. `status` is `pending` until somebody decides; `resolved_at` is when somebody decided."""

    id: UUID
    memory_a_id: UUID
    memory_b_id: UUID
    similarity: float
    status: SuggestionWord
    project_id: str | UnsetType = UNSET
    created_at: datetime
    resolved_at: datetime | UnsetType = UNSET
    memory_a: MemoryRecordOut
    memory_b: MemoryRecordOut


class MemorySuggestionsOut(msgspec.Struct, frozen=True, kw_only=True):
    """A page, the most similar first; `total` is how many there are on all pages."""

    suggestions: list[MemorySuggestionOut]
    total: int


class MergeLogEntryOut(msgspec.Struct, frozen=True, kw_only=True):
    """A merge. `similarity_score` is how alike they were, from 0 to 1, or null when somebody asked for it. `content_before` is the
    text before it, or empty for one that was undone.
    """

    id: UUID
    target_id: UUID
    source_ids: list[UUID]
    merge_strategy: MergeStrategy
    similarity_score: float | None
    content_before: str
    content_after: str
    performed_by: str
    created_at: datetime


class MemoryStatisticsOut(msgspec.Struct, frozen=True, kw_only=True):
    """What there is, without what is merged or expired. `expiring_count` is how many expire within an hour."""

    total_memories: int
    by_type: dict[str, int]
    by_scope: dict[str, int]
    by_agent: dict[str, int]
    long_term_count: int
    short_term_count: int
    expiring_count: int
    pending_suggestions: int


class TopMemoryOut(msgspec.Struct, frozen=True, kw_only=True):
    """A memory that is read often."""

    id: UUID
    title: str
    type: model.MemoryType
    access_count: int
    token_count: int
    agent_source: str | UnsetType = UNSET


class UsageDayOut(model.UsageDay, frozen=True, kw_only=True):
    """A day in UTC."""


class MemoryAnalyticsOut(msgspec.Struct, frozen=True, kw_only=True):
    """What memories take, and what reading them gave: `hit_rate` is the share of memories that were read, from 0 to 1.

    `top_accessed_memories` are the ten that are read most; `timeline` are the last 30 days, without those on which nothing
    happened.
    """

    total_tokens_stored: int
    total_tokens_saved: int
    total_hits: int
    hit_rate: float
    top_accessed_memories: list[TopMemoryOut]
    tokens_by_agent: dict[str, int]
    timeline: list[UsageDayOut]


class FunnelDayOut(msgspec.Struct, frozen=True, kw_only=True):
    """A day in UTC on which anything happened."""

    date: date
    recall_attempts: int
    recall_hits: int
    store_opportunities: int
    store_actions: int


class FunnelGroupOut(msgspec.Struct, frozen=True, kw_only=True):
    """An agent or a project: `key` is the name of either."""

    key: str
    recall_attempts: int
    recall_hits: int
    store_opportunities: int
    store_actions: int


class FunnelOut(msgspec.Struct, frozen=True, kw_only=True):
    """How often something was looked for and found, offered and kept. `by_agent` are the same counts by agent, of the 20 busiest;
    `by_project` are the same counts by project, of the 20 busiest.
    """

    recall_attempts: int
    recall_hits: int
    store_opportunities: int
    store_actions: int
    recall_hit_rate: float
    store_capture_rate: float
    timeline: list[FunnelDayOut]
    by_agent: list[FunnelGroupOut]
    by_project: list[FunnelGroupOut]


def page_size(limit: int | None) -> int:
    """The size of a page, by the `limit` that was sent."""
    return min(limit or DEFAULT_RESULTS, MAX_RESULTS)


def memory_out(observation: Observation, project: str | UnsetType) -> MemoryRecordOut:
    """A memory; `project` is the canonical id of its project."""
    return MemoryRecordOut(
        id=observation.id,
        title=title_of(observation),
        content=content_of(observation),
        summary=observation.subtitle or UNSET,
        type=model.memory_type(model.label_of(observation)),
        scope="global" if observation.scope == "team" else "project",
        project_id=project,
        agent_source=observation.agent or UNSET,
        tags=observation.concepts or [],
        importance=observation.importance,
        ttl_seconds=UNSET if observation.ttl_seconds is None else observation.ttl_seconds,
        access_count=observation.access_count,
        created_at=observation.created_at,
        updated_at=observation.updated_at,
        expires_at=observation.expires_at or UNSET,
        version=observation.version,
        merged_from=observation.merged_from,
        replaced_by=observation.superseded_by or UNSET,
    )


def content_of(observation: Observation) -> str:
    """The text as it was stored. Where it is composed, or merged, without the title, which stands beside it."""
    composed = compose(observation.title, observation.subtitle, observation.narrative, observation.facts)
    if observation.content != composed and not observation.merged_from:
        return observation.content
    paragraphs = observation.content.split("\n\n")
    return "\n\n".join(part for part in paragraphs if part != observation.title) or observation.content


def title_of(observation: Observation) -> str:
    """The title, or else the beginning of the text."""
    return observation.title or one_line(observation.narrative or observation.content, _TITLE_CHARS)


def memory_relation_out(relation: Relation) -> MemoryRelationOut:
    return MemoryRelationOut(
        id=relation.id,
        from_memory_id=relation.from_id,
        to_memory_id=relation.to_id,
        relationship=relation.relationship,
        strength=relation.strength,
        context=relation.context or UNSET,
        created_at=relation.created_at,
    )


def merge_log_entry_out(merge: MergeRecord) -> MergeLogEntryOut:
    return MergeLogEntryOut(
        id=merge.id,
        target_id=merge.observation_id,
        source_ids=merge.source_ids,
        merge_strategy=merge.strategy,
        similarity_score=merge.similarity,
        content_before=merge.content_before or "",
        content_after=merge.content_after,
        performed_by=merge.performed_by,
        created_at=merge.created_at,
    )


def memory_suggestion_out(suggestion: model.MemorySuggestion, left: MemoryRecordOut, right: MemoryRecordOut) -> MemorySuggestionOut:
    return MemorySuggestionOut(
        id=suggestion.id,
        memory_a_id=left.id,
        memory_b_id=right.id,
        similarity=round(suggestion.similarity, 4),
        status=_STATUS_WORDS[suggestion.status],
        project_id=left.project_id,
        created_at=suggestion.created_at,
        resolved_at=suggestion.resolved_at or UNSET,
        memory_a=left,
        memory_b=right,
    )
