"""Versions, merges, relations and suggestions on the wire."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from cmserver.base.paging import Limit
from cmserver.base.structs import reshape
from cmserver.base.text import Key, Text
from cmserver.consolidation import model
from cmserver.consolidation.store import StoreResult
from cmserver.observations.history.model import Act, Action, Measure, MergeStrategy, ObservationVersion
from cmserver.observations.wire import ObservationOut, observation_out

Name = Annotated[int, Meta(ge=1)] | Key
"""An observation's number (12, "#12") or id."""


class HistoryQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How many changes to show, the last first."""

    id: str
    limit: Limit = 50


class TextsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What an observation said."""

    type: str
    title: str | None
    subtitle: str | None
    narrative: str | None
    facts: list[str]
    concepts: list[str]
    content: str
    importance: float
    scope: str


class ObservationVersionOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A change, and the version that came of it. `act` is what was done by it, more exactly than `action`. `before` is what it said
    before, or null for an undone change.

    `sourceIds`, `strategy`, `similarity` and `measuredBy` are of merges. `similarity` is how alike they were, from 0 to 1, or null
    when somebody asked for the merge.
    """

    version: int
    action: Action
    act: Act
    before: TextsOut | None
    source_ids: list[UUID]
    strategy: MergeStrategy | None
    similarity: float | None
    measured_by: Measure | None
    performed_by: str
    created_at_epoch: int
    undone_at_epoch: int | None


class ForgottenActOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Somebody forgot the observation. It is no version: nothing of what it says changed."""

    performed_by: str
    created_at_epoch: int


class HistoryOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An observation's changes, the last first. `supersededBy` is the number of the one that it was merged into, or null;
    `forgotten` is who forgot it and when, the last first.
    """

    number: int
    version: int
    superseded_by: int | None
    versions: list[ObservationVersionOut]
    forgotten: list[ForgottenActOut] = []


class MergeIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`sources` are the numbers or ids of those to merge into it.

    `smart_merge` keeps each fact and sentence once, `append` the whole texts, `latest_wins` only the newest.
    """

    id: str
    sources: Annotated[list[Name], Meta(min_length=1, max_length=model.SOURCES_MOST)]
    strategy: MergeStrategy = "smart_merge"


class SkippedSourceOut(msgspec.Struct, frozen=True, kw_only=True):
    """A source that was not merged, as it was named."""

    name: int | str
    reason: model.SkipReason


class MergeOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The observation that was merged into; `merged` are the numbers of those that it took in."""

    observation: ObservationOut
    merged: list[int]
    skipped: list[SkippedSourceOut]
    strategy: MergeStrategy
    worded_by: model.WordedBy
    model_refused: model.ModelRefusal | None


class UndoOut(msgspec.Struct, frozen=True, kw_only=True):
    """The observation as it was before its last change; `restored` are the numbers of those that are shown again."""

    observation: ObservationOut
    restored: list[int]


class RelationIn(msgspec.Struct, rename={"from_": "from"}, kw_only=True, forbid_unknown_fields=True):
    """A relation from one observation to another. `relationship` is the name of the relation, a word in capitals (RELATED_TO,
    CAUSES, DEPENDS_ON).
    """

    from_: Name
    to: Name
    relationship: model.Relationship
    strength: model.Strength = 0.5
    context: Annotated[Text, Meta(max_length=2_000)] | None = None


class RelationOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A relation, with the numbers and ids of both ends."""

    id: UUID
    from_id: UUID
    from_number: int
    to_id: UUID
    to_number: int
    relationship: str
    strength: float
    context: str | None
    created_at_epoch: int


class OneRelationOut(msgspec.Struct, frozen=True, kw_only=True):
    """The relation as it is now."""

    relation: RelationOut


class DeletedRelationOut(msgspec.Struct, frozen=True, kw_only=True):
    """The relation is deleted."""

    id: UUID
    deleted: bool = True


class RelationsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`type` is one relationship, or several with commas; `depth` is over how many relations to go."""

    id: str
    type: Text | None = None
    depth: Annotated[int, Meta(ge=1, le=model.DEPTH_MOST)] = 1


class RelatedObservationsOut(msgspec.Struct, frozen=True, kw_only=True):
    """What is related, nearest first, and the relations that lead there, both ways."""

    observations: list[ObservationOut]
    relations: list[RelationOut]


class SuggestionsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Without `project`, of all that the key sees. `contradictions` is true to list those only, and false to list the others;
    `status` is which to list.
    """

    project: str | None = None
    status: model.SuggestionStatus | None = "open"
    contradictions: bool | None = None
    limit: Limit = 50
    cursor: str | None = None


class SuggestionOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Two observations that seem to say the same (`same`), that are near to each other (`related`), or that contradict each other.

    `status` is `open` until somebody decides. Accepting merges the newer into the older.
    """

    id: UUID
    project_id: UUID
    left_number: int
    left_title: str | None
    right_number: int
    right_title: str | None
    similarity: float
    measured_by: Literal["vector", "words"]
    reason: model.SuggestionReason
    status: model.SuggestionStatus
    created_at_epoch: int
    resolved_at_epoch: int | None
    resolved_by: str | None


class SuggestionsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Newest first."""

    suggestions: list[SuggestionOut]
    next_cursor: str | None


class ResolutionIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`status` is what is decided: `accepted` merges the pair, by the strategy, `dismissed` never suggests it again, and `open`
    suggests again what was dismissed.

    `into` is the number of the pair that the other is merged into; the older one when it is not sent.
    """

    id: str
    status: Literal["accepted", "dismissed", "open"]
    strategy: MergeStrategy = "smart_merge"
    into: Annotated[int, Meta(ge=1)] | None = None


class ResolvedSuggestionOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The suggestion; `observation` is what its pair was merged into by this request, or null, with `wordedBy` and `modelRefused`
    as of a merge.
    """

    suggestion: SuggestionOut
    observation: ObservationOut | None
    worded_by: model.WordedBy | None
    model_refused: model.ModelRefusal | None


class StoreResultOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What became of an observation that was sent: `created`, `held` for a rule that waits for a person's yes, `repeated` (it was
    there already), or `merged` into another.

    `similarity` is how alike the one is that was there, from 0 to 1, or null; `measuredBy` is `text` for an exact repeat, else
    `vector` or `words`.
    """

    action: Literal["created", "held", "repeated", "merged"]
    similarity: float | None
    measured_by: Measure | None
    suggestions: list[SuggestionOut]


class StoredObservationOut(StoreResultOut, rename="camel", frozen=True, kw_only=True):
    """The observation as it is stored now, and what became of the one that was sent."""

    observation: ObservationOut


class NewObservationsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The observations as they are stored now, and what became of each that was sent, in the order of the batch."""

    observations: list[ObservationOut]
    results: list[StoreResultOut]


def store_result_out(result: StoreResult) -> StoreResultOut:
    return reshape(result, StoreResultOut, suggestions=[reshape(row, SuggestionOut) for row in result.suggestions])


def stored_out(result: StoreResult) -> StoredObservationOut:
    suggestions = [reshape(row, SuggestionOut) for row in result.suggestions]
    return reshape(result, StoredObservationOut, observation=observation_out(result.observation), suggestions=suggestions)


def version_out(version: ObservationVersion, act: Act) -> ObservationVersionOut:
    before = version.before
    texts = before and reshape(before, TextsOut, facts=before.facts or [], concepts=before.concepts or [])
    return reshape(version, ObservationVersionOut, before=texts, act=act)


def merge_out(merge: model.Merge) -> MergeOut:
    return MergeOut(
        observation=observation_out(merge.observation),
        merged=[source.number for source in merge.merged],
        skipped=[reshape(source, SkippedSourceOut) for source in merge.skipped],
        strategy=merge.strategy,
        worded_by=merge.worded_by,
        model_refused=merge.model_refused,
    )


def resolved_out(suggestion: model.Suggestion, merge: model.Merge | None) -> ResolvedSuggestionOut:
    return ResolvedSuggestionOut(
        suggestion=reshape(suggestion, SuggestionOut),
        observation=observation_out(merge.observation) if merge else None,
        worded_by=merge.worded_by if merge else None,
        model_refused=merge.model_refused if merge else None,
    )
