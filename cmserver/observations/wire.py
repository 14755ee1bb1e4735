"""An observation on the wire, as it is sent, and as it is shown: with the fields that clients of claude-mem know, and with ours."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cmserver.base.ids import EpochMs, epoch_ms, epoch_ms_or_none
from cmserver.base.text import Key
from cmserver.observations.model import (
    ITEM_MOST,
    ITEMS_MOST,
    TEXT_MOST,
    TITLE_MOST,
    EventLink,
    Observation,
    ObservationSource,
    ObservationType,
    Scope,
)

BATCH_MOST = 500
READ_MOST = 100
"""How many observations a request may bring, and how many it may ask for by their ids."""

Title = Annotated[str, Meta(max_length=TITLE_MOST)]
Words = Annotated[str, Meta(max_length=TEXT_MOST)]
Items = Annotated[list[Annotated[str, Meta(max_length=ITEM_MOST)]], Meta(max_length=ITEMS_MOST)]


class ObservationIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """An observation by hand. At least one of title, subtitle, narrative, content and facts has a text.

    `content` is the whole as one text, and is made of the others where it is not sent. Only a key without a project may write
    `scope: "team"`, which is recalled in every project of the team. `sessionId` is our id of a session of the project.
    `createdAtEpoch` is for what was written down elsewhere before: when that was, in milliseconds, and not in the future.
    """

    project_id: Key | None = None
    type: ObservationType = "discovery"
    title: Title | None = None
    subtitle: Words | None = None
    narrative: Words | None = None
    content: Words | None = None
    facts: Items = []
    concepts: Items = []
    files_read: Items = []
    files_modified: Items = []
    scope: Scope = "project"
    session_id: UUID | None = None
    created_at_epoch: EpochMs | None = None
    metadata: dict[str, object] = {}


class BatchReadIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`ids` are numbers (12, "#12", "S12") or ids."""

    ids: Annotated[list[Annotated[int, Meta(ge=1)] | Key], Meta(min_length=1, max_length=READ_MOST)]


class SummaryOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What a session came to."""

    request: str | None
    investigated: str | None
    learned: str | None
    completed: str | None
    next_steps: str | None
    notes: str | None


class SourceOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What an observation was drawn from: an event, or the end of a session."""

    id: UUID
    source_type: str
    source_id: UUID
    generation_job_id: UUID | None
    created_at_epoch: int


class ObservationOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """`kind` is what claude-mem means by it (see `kind_shown`); `observationKind` is ours: observation, summary or manual.

    `accessCount` is how often its text was read, as far as that has been counted: a minute or two late.
    `score` is there in the answer to a search, `sources` where one observation was asked for, `source` and `generationKey` where
    those of an event were.
    """

    id: UUID
    number: int
    project_id: UUID
    team_id: UUID
    server_session_id: UUID | None
    kind: str
    observation_kind: str
    type: str
    scope: str
    origin: str
    title: str | None
    subtitle: str | None
    narrative: str | None
    facts: list[str]
    concepts: list[str]
    files_read: list[str]
    files_modified: list[str]
    summary: SummaryOut | None
    prompt_number: int | None
    content: str
    read_tokens: int | None
    discovery_tokens: int | None
    metadata: dict[str, object]
    created_by_job_id: UUID | None
    access_count: int
    last_accessed_at_epoch: int | None
    created_at_epoch: int
    updated_at_epoch: int
    score: float | UnsetType = UNSET
    sources: list[SourceOut] | UnsetType = UNSET
    source: SourceOut | UnsetType = UNSET
    generation_key: str | UnsetType | None = UNSET


class DeletedOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """It is gone."""

    id: UUID
    deleted: bool = True


def kind_shown(kind: str, type_: str) -> str:
    """The type of a generated observation; `summary` or `manual` for the others."""
    return type_ if kind == "observation" else kind


def type_shown(kind: str, type_: str) -> str:
    """What a line calls it: `summary`, or its type, whether a model or a person has said it."""
    return kind if kind == "summary" else type_


def source_out(source: ObservationSource | EventLink) -> SourceOut:
    """The link as it is shown."""
    return SourceOut(
        id=source.id,
        source_type=source.source_type,
        source_id=source.source_id,
        generation_job_id=source.generation_job_id,
        created_at_epoch=epoch_ms(source.created_at),
    )


def observation_out(
    one: Observation,
    *,
    score: float | UnsetType = UNSET,
    sources: list[SourceOut] | UnsetType = UNSET,
    link: EventLink | None = None,
) -> ObservationOut:
    """The observation as it is shown, with what the answer at hand adds to it."""
    return ObservationOut(
        id=one.id,
        number=one.number,
        project_id=one.project_id,
        team_id=one.team_id,
        server_session_id=one.server_session_id,
        kind=kind_shown(one.kind, one.type),
        observation_kind=one.kind,
        type=one.type,
        scope=one.scope,
        origin=one.origin,
        title=one.title,
        subtitle=one.subtitle,
        narrative=one.narrative,
        facts=one.facts or [],
        concepts=one.concepts or [],
        files_read=one.files_read or [],
        files_modified=one.files_modified or [],
        summary=_summary_out(one.summary),
        prompt_number=one.prompt_number,
        content=one.content,
        read_tokens=one.read_tokens,
        discovery_tokens=one.discovery_tokens,
        metadata=_metadata_out(one),
        created_by_job_id=one.created_by_job_id,
        access_count=one.access_count,
        last_accessed_at_epoch=epoch_ms_or_none(one.last_accessed_at),
        created_at_epoch=epoch_ms(one.created_at),
        updated_at_epoch=epoch_ms(one.updated_at),
        score=score,
        sources=sources,
        source=source_out(link) if link else UNSET,
        generation_key=link.generation_key if link else UNSET,
    )


def _summary_out(summary: dict[str, str | None] | None) -> SummaryOut | None:
    if summary is None:
        return None
    return SummaryOut(
        request=summary.get("request"),
        investigated=summary.get("investigated"),
        learned=summary.get("learned"),
        completed=summary.get("completed"),
        next_steps=summary.get("next_steps"),
        notes=summary.get("notes"),
    )


def _metadata_out(one: Observation) -> dict[str, object]:
    """Clients of claude-mem look for the structured fields of a generated observation here. What is stored wins over them; what
    somebody stored by hand comes back as it was sent.
    """
    if one.kind == "manual":
        return one.metadata
    structured: dict[str, object] = {
        "title": one.title,
        "subtitle": one.subtitle,
        "facts": one.facts or [],
        "narrative": one.narrative,
        "concepts": one.concepts or [],
        "files_read": one.files_read or [],
        "files_modified": one.files_modified or [],
    }
    return structured | one.metadata
