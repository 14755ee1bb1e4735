"""Observations on the wire, with the fields that clients of claude-mem know, and with ours."""

from __future__ import annotations

from math import ceil
from time import time
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cmserver.base.errors import Invalid
from cmserver.base.ids import EpochMs
from cmserver.base.paging import Limit
from cmserver.base.structs import reshape
from cmserver.base.text import Key, Label
from cmserver.observations import model
from cmserver.sessions.turns.wire import TurnOut

BATCH_MOST = 500
"""How many observations one request may write."""
READ_MOST = 100
"""How many observations one request may read by their ids."""

Title = Annotated[str, Meta(max_length=model.TITLE_MOST)]
Words = Annotated[str, Meta(max_length=model.TEXT_MOST)]
OnDuplicate = Literal["keep", "suggest", "merge"]
Importance = Annotated[float, Meta(ge=0, le=1)]
LifetimeSeconds = Annotated[int, Meta(ge=1, le=3_155_760_000)]
Items = Annotated[list[Annotated[str, Meta(max_length=model.ITEM_MOST)]], Meta(max_length=model.ITEMS_MOST)]

IN_METADATA = ("title", "subtitle", "facts", "narrative", "concepts", "files_read", "files_modified")
"""Clients of claude-mem look for these in the metadata of a generated observation, where they are shown and not stored."""


class ObservationsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Without `project`, a key of the whole team sees all its projects. `session` is our id of a session.

    `kind` is which to list; `type` is which to list; `scope` is which to list; `state` is which to list, of things to be done,
    or `expired` for what is shown no longer and not purged yet.
    `asOf` is a time, in ISO 8601 with a zone or in milliseconds since 1970, of which what held then is listed; `knownAt` is such a
    time, of which what was known then is.
    """

    project: str | None = None
    session: UUID | None = None
    kind: model.Kind | None = None
    type: model.ObservationType | None = None
    scope: model.Scope | None = None
    state: model.ListedState | None = None
    as_of: str | None = msgspec.field(default=None, name="asOf")
    known_at: str | None = msgspec.field(default=None, name="knownAt")
    limit: Limit = 50
    cursor: str | None = None


class ObservationIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """An observation by hand, with a text in at least one of title, subtitle, narrative, content and facts.

    `content` is the whole text; it is composed of the other fields when it is not sent. Only a key without a project may write
    `scope: "team"`, which is recalled in every project of the team. With `scope: "user"` it is the caller's alone, in all projects:
    only its texts and its `type` have a meaning then, a decision is a rule for agents, and the answer is `personal`. `sessionId` is
    our id of a session of the project.
    `createdAtEpoch` is when it was written down elsewhere, in milliseconds and not in the future. `ttlSeconds` is how long it is
    shown, in seconds; `expiresAtEpoch` is until when it is shown; without either, for good. `agent` is who writes it; `callerType`
    is what the writer calls such a thing. `onDuplicate` is what becomes of one that says what is there already: `keep` stores it
    all the same, `suggest` suggests to merge it, and `merge` merges it. A repeat of the same text is
    stored by `keep` only; else the one that is there holds again.
    """

    project_id: Key | None = None
    type: model.ObservationType = "discovery"
    title: Title | None = None
    subtitle: Words | None = None
    narrative: Words | None = None
    content: Words | None = None
    facts: Items = []
    concepts: Items = []
    files_read: Items = []
    files_modified: Items = []
    scope: model.WrittenScope = "project"
    importance: Importance = 0.5
    ttl_seconds: LifetimeSeconds | None = None
    expires_at_epoch: EpochMs | None = None
    agent: Label | None = None
    caller_type: Label | None = None
    on_duplicate: OnDuplicate | None = None
    session_id: UUID | None = None
    created_at_epoch: EpochMs | None = None
    metadata: dict[str, object] = {}


class CorrectionIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """Fields that are not sent stay as they are. `title: null` removes the title; `metadata` are free values, which take the place
    of all there were.

    `content` is the whole text, which is composed of the others again when they change, unless it was written by itself. `state` is
    `open` for something to be done, `done` or `dropped` when it no longer is, and null for everything else. An `importance` that is
    raised to 0.8 makes an observation that expires permanent. `ttlSeconds` is for how many seconds it is shown from now on, null
    for good; `expiresAtEpoch` is until when it is shown, null for good. `stale` is null to take the mark of a stale observation
    away; another text does so, too. `currentOn` is the matter on which this is the current word, null for none: of a project one
    observation at a time is that.
    """

    type: model.ObservationType | UnsetType = UNSET
    title: Title | UnsetType | None = UNSET
    subtitle: Words | UnsetType | None = UNSET
    narrative: Words | UnsetType | None = UNSET
    facts: Items | UnsetType = UNSET
    content: Words | UnsetType = UNSET
    importance: Importance | UnsetType = UNSET
    ttl_seconds: LifetimeSeconds | UnsetType | None = UNSET
    expires_at_epoch: EpochMs | UnsetType | None = UNSET
    concepts: Items | UnsetType = UNSET
    scope: model.Scope | UnsetType = UNSET
    metadata: dict[str, object] | UnsetType = UNSET
    state: model.ObservationState | UnsetType | None = UNSET
    stale: UnsetType | None = UNSET
    current_on: Title | UnsetType | None = UNSET


def read_lifetime(sent: ObservationIn | CorrectionIn, at: str) -> int | UnsetType | None:
    """The lifetime from now on, in seconds; Invalid for one that is said twice, or is over."""
    until = sent.expires_at_epoch
    if until is None or until is UNSET:
        return sent.ttl_seconds if until is UNSET or sent.ttl_seconds is not UNSET else until
    if sent.ttl_seconds is not None and sent.ttl_seconds is not UNSET:
        raise Invalid.at(f"{at}.expiresAtEpoch", "Send `ttlSeconds` or `expiresAtEpoch`, not both.")
    seconds = ceil((until - time() * 1000) / 1000)
    if seconds < 1:
        raise Invalid.at(f"{at}.expiresAtEpoch", "`expiresAtEpoch` is in the past. To end an observation's time now, expire it.")
    return seconds


class BatchReadIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`ids` are numbers (12, "#12", "S12") or ids of observations and turns."""

    ids: Annotated[list[Annotated[int, Meta(ge=1)] | Key], Meta(min_length=1, max_length=READ_MOST)]


class SummaryOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The summary of a session; `notes` are what else was worth a note. Each may be null."""

    request: str | None
    investigated: str | None
    learned: str | None
    completed: str | None
    next_steps: str | None
    notes: str | None


class SourceOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The source of an observation: an event, or the end of a session. `generationJobId` is the job that read it, or null."""

    id: UUID
    source_type: str
    source_id: UUID
    generation_job_id: UUID | None
    created_at_epoch: int


class ObservationOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An observation. `kind` is what claude-mem's clients read: `summary`, `manual`, or else the type.

    `observationKind` is observation, summary or manual; `origin` is how it came to be: by a model, rules, hand or an import. Search
    answers with `score`, one observation has `sources`, and the observations of an event have `source` and `generationKey`.
    `accessCount` is how often its text was read, as of a minute or two ago. `state` is open, done or dropped for something to be
    done, else null; `closedBy` is the number of the observation or of the turn that did it, or null.
    `summary` is what a summary says, by its parts, or null for other kinds. `actorId` is whose key it came by, or null. `stale` is
    why what it says of a file does not hold any more, or null. `expiresAtEpoch` is when it is shown no longer, null for
    never: reading it whole extends that, after this answer. `version` is counted from 1 with each change. `metadata` are free
    values, with the texts and lists of one that was not written by hand, for clients of claude-mem. `callerType` is what the
    writer calls it, or null.
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
    turn_number: int | None
    actor_id: str | None
    importance: float
    quote: str | None
    quote_event_id: UUID | None
    anchors: list[str]
    state: model.ObservationState | None
    closed_by: int | None
    closed_at_epoch: int | None
    stale: model.StaleMark | None
    content: str
    read_tokens: int | None
    discovery_tokens: int | None
    metadata: dict[str, object]
    created_by_job_id: UUID | None
    access_count: int
    last_accessed_at_epoch: int | None
    agent: str | None
    caller_type: str | None
    ttl_seconds: int | None
    expires_at_epoch: int | None
    version: int
    merged_from: list[UUID]
    created_at_epoch: int
    updated_at_epoch: int
    score: float | UnsetType = UNSET
    sources: list[SourceOut] | UnsetType = UNSET
    source: SourceOut | UnsetType = UNSET
    generation_key: str | UnsetType | None = UNSET


class OneObservationOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One observation; with its sources where it was read by its id."""

    observation: ObservationOut


class ObservationsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Newest first."""

    observations: list[ObservationOut]
    next_cursor: str | None


class GoneObservationOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An observation that is not shown any more: merged into the one numbered `supersededBy`, or expired.

    `expiredAtEpoch` is when it expired, or null for a merged one.
    """

    id: UUID
    number: int
    superseded_by: int | None
    expired_at_epoch: int | None


class BatchReadOut(msgspec.Struct, frozen=True, kw_only=True):
    """The observations in the order of the request, each once, and the turns; `missing` are the ids that were not found.

    `gone` are those of the missing that were there once, and what became of them.
    """

    observations: list[ObservationOut]
    missing: list[int | str]
    gone: list[GoneObservationOut] = []
    turns: list[TurnOut] = []


class EventObservationsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The observations made of an event; empty until, or because, there are none."""

    event_id: UUID
    observations: list[ObservationOut]


class DeletedObservationOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The observation is deleted."""

    id: UUID
    deleted: bool = True


def kind_shown(kind: str, type_: str) -> str:
    """The type of a generated observation; `summary` or `manual` for the others."""
    return type_ if kind == "observation" else kind


def type_shown(kind: str, type_: str, origin: str = "", caller_type: str | None = None) -> str:
    """The type that a line shows: `summary`, `commit` or `document` of what came from git, or the type that somebody gave."""
    if origin == "git" and caller_type:
        return caller_type
    return kind if kind == "summary" else type_


def state_shown(state: str | None, closed_by: int | None) -> str:
    """What a line says of something to be done, with a space before it."""
    if state == "done":
        return f" (done with #{closed_by})" if closed_by else " (done)"
    return f" ({state})" if state else ""


def describe_stale(mark: model.StaleMark) -> str:
    """In a sentence, why an observation does not hold any more."""
    match mark.reason:
        case "deleted":
            return f"{mark.path} was deleted since."
        case "moved":
            return f"{mark.path} was moved to {mark.name} since."
        case "removed":
            return f"{mark.name} was removed from {mark.path} since."
        case "changed":
            return f"{mark.name} was changed in {mark.path} since."


def observation_out(
    observation: model.Observation,
    *,
    score: float | UnsetType = UNSET,
    sources: list[SourceOut] | UnsetType = UNSET,
    link: model.EventLink | None = None,
) -> ObservationOut:
    """An observation on the wire, with what the answer at hand adds to it."""
    lists: dict[str, list[str]] = {name: getattr(observation, name) or [] for name in model.LISTS}
    return reshape(
        observation,
        ObservationOut,
        **lists,
        anchors=observation.anchors or [],
        kind=kind_shown(observation.kind, observation.type),
        observation_kind=observation.kind,
        summary=_summary_out(observation.summary),
        metadata=_metadata_out(observation),
        score=score,
        sources=sources,
        source=reshape(link, SourceOut) if link else UNSET,
        generation_key=link.generation_key if link else UNSET,
    )


def _summary_out(summary: dict[str, str | None] | None) -> SummaryOut | None:
    if summary is None:
        return None
    return SummaryOut(**{name: summary.get(name) for name in SummaryOut.__struct_fields__})


def _metadata_out(observation: model.Observation) -> dict[str, object]:
    """The metadata with the structured fields added; a stored key wins. Metadata written by hand comes back as it was sent."""
    if observation.kind == "manual":
        return observation.metadata
    structured: dict[str, object] = {name: getattr(observation, name) for name in IN_METADATA}
    missing_lists = {name: list[str]() for name in IN_METADATA if name in model.LISTS and structured[name] is None}
    return structured | missing_lists | observation.metadata
