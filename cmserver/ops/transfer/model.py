"""The lines of an export: JSON Lines, one thing each. Importers of other formats make the same lines.

The order is that of the references: projects, entities, sessions, events, turns, observations, then what links them,
and what is pinned. A line names
others by their ids. `number` is the number of an observation or a turn in its team, by which texts refer to it (#12).
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, TypeAlias
from uuid import UUID

import msgspec
from msgspec import Meta

from cmserver.base.text import QueryText
from cmserver.graph.model import EntityType, FoundBy
from cmserver.observations.model import Kind, ObservationState, Scope, StaleMark
from cmserver.pins.model import OnBreak, PinLines, PinWords
from cmserver.sessions.turns.model import MAX_LINE_CHARS

FORMAT = 2
Number = Annotated[int, Meta(ge=1, le=1_000_000_000_000)]
"""A larger one would leave none for what comes after it."""
Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Share = Annotated[float, Meta(ge=0, le=1)]


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True, tag_field="record"):
    """One line. A field that has its default is left out."""


class HeaderLine(Line, frozen=True, kw_only=True, tag="export"):
    """The first line."""

    format: int
    """The version of the format; a program refuses what is newer than it."""


class ProjectLine(Line, frozen=True, kw_only=True, tag="project"):
    """A project with its settings. Names of projects that were joined into it are among its aliases."""

    id: UUID
    canonical_id: str
    name: str
    aliases: list[str] = []
    metadata: dict[str, object] = {}
    archived_at: datetime | None = None
    generation_policy: dict[str, object] = {}
    search_language: str = "english"
    consolidation: Literal["off", "suggest", "merge"] = "suggest"
    retention: dict[str, object] = {}
    stays_apart: bool = False
    merge_with_model: bool = False
    isolated: bool = False
    created_at: datetime


class SessionLine(Line, frozen=True, kw_only=True, tag="session"):
    """A conversation of an agent with its user."""

    id: UUID
    project_id: UUID
    external_session_id: str | None = None
    content_session_id: str | None = None
    agent_id: str | None = None
    agent_type: str | None = None
    actor_id: str | None = None
    platform_source: str | None = None
    title: str | None = None
    metadata: dict[str, object] = {}
    started_at: datetime
    ended_at: datetime | None = None


class AliasOfEntity(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another name of an entity."""

    id: UUID
    type: EntityType
    name: str
    folded_name: str


class EntityLine(Line, frozen=True, kw_only=True, tag="entity"):
    """What people made or changed of what observations are about; the rest is found again in the observations."""

    id: UUID
    project_id: UUID
    type: EntityType
    name: str
    folded_name: str
    notes: str | None = None
    found_by: FoundBy = "people"
    aliases: list[AliasOfEntity] = []
    created_at: datetime


class EventLine(Line, frozen=True, kw_only=True, tag="event"):
    """What an agent reported, redacted."""

    id: UUID
    project_id: UUID
    server_session_id: UUID | None = None
    source_adapter: str
    source_event_id: str | None = None
    event_type: str
    platform_source: str | None = None
    payload: object = None
    metadata: dict[str, object] = {}
    occurred_at: datetime
    received_at: datetime
    payload_purged_at: datetime | None = None
    """When retention emptied the payload."""


class TurnLine(Line, frozen=True, kw_only=True, tag="prompt"):
    """A turn: what a user asked for (`text`), which came in the event, and what the agent answered."""

    id: UUID
    project_id: UUID
    server_session_id: UUID
    number: Number | None = None
    """None takes the team's next number, after those of all observations of the file."""
    agent_event_id: UUID | None = None
    prompt_number: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    agent_id: str | None = None
    text: str
    reply: str | None = None
    files: list[str] = []
    checks: list[str] = []
    commits: list[str] = []
    actor_id: str | None = None
    created_at: datetime
    ended_at: datetime | None = None
    own_line: Annotated[str, Meta(max_length=MAX_LINE_CHARS)] | None = None


class ObservationLine(Line, frozen=True, kw_only=True, tag="observation"):
    """What is remembered; also what was merged into another (`superseded_by`) or has expired and is not deleted yet."""

    id: UUID
    number: Number | None = None
    """None takes the team's next number."""
    project_id: UUID
    server_session_id: UUID | None = None
    scope: Scope = "project"
    kind: Kind = "observation"
    type: str = "change"
    title: str | None = None
    subtitle: str | None = None
    narrative: str | None = None
    facts: list[str] | None = None
    concepts: list[str] | None = None
    files_read: list[str] | None = None
    files_modified: list[str] | None = None
    summary: dict[str, str | None] | None = None
    prompt_number: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    actor_id: str | None = None
    importance: Share = 0.5
    quote: Annotated[str, Meta(max_length=400)] | None = None
    quote_event_id: UUID | None = None
    anchors: list[str] | None = None
    state: ObservationState | None = None
    closed_by: Number | None = None
    closed_at: datetime | None = None
    stale: StaleMark | None = None
    content: str
    discovery_tokens: Int32 | None = None
    read_tokens: Int32 | None = None
    metadata: dict[str, object] = {}
    agent: str | None = None
    caller_type: str | None = None
    ttl_seconds: Annotated[int, Meta(ge=1, le=2**62)] | None = None
    expires_at: datetime | None = None
    version: Annotated[int, Meta(ge=1, le=2**31 - 1)] = 1
    superseded_by: UUID | None = None
    superseded_at: datetime | None = None
    merged_from: list[UUID] = []
    access_count: Int32 = 0
    last_accessed_at: datetime | None = None
    created_at: datetime
    updated_at: datetime


class SourceLine(Line, frozen=True, kw_only=True, tag="source"):
    """What an observation was made of."""

    id: UUID
    project_id: UUID
    observation_id: UUID
    source_type: Literal["agent_event", "session_summary", "observation_reindex", "manual"]
    source_id: UUID
    metadata: dict[str, object] = {}
    created_at: datetime


class VersionLine(Line, frozen=True, kw_only=True, tag="version"):
    """A change of an observation, and how it was before."""

    id: UUID
    project_id: UUID
    observation_id: UUID
    version: Int32
    action: Literal["corrected", "merged", "promoted"]
    before: dict[str, object] | None = None
    source_ids: list[UUID] = []
    strategy: Literal["latest_wins", "append", "smart_merge"] | None = None
    similarity: Annotated[float, Meta(ge=-2, le=2)] | None = None
    measured_by: Literal["text", "vector", "words"] | None = None
    performed_by: str
    created_at: datetime
    undone_at: datetime | None = None
    sources_purged_at: datetime | None = None


class RelationshipLine(Line, frozen=True, kw_only=True, tag="relationship"):
    """How one observation relates to another."""

    id: UUID
    from_id: UUID
    from_project_id: UUID
    to_id: UUID
    to_project_id: UUID
    relationship: Annotated[str, Meta(pattern="^[A-Z][A-Z0-9_]{0,63}$")]
    strength: Share = 0.5
    context: str | None = None
    created_at: datetime


class EntityRelationLine(Line, frozen=True, kw_only=True, tag="entity_relation"):
    """How an entity has to do with another one of its project, and which observations say so."""

    id: UUID
    project_id: UUID
    from_id: UUID
    to_id: UUID
    label: Annotated[str, Meta(min_length=1)]
    source_ids: list[UUID] = []
    """Ids of observations."""
    created_at: datetime


class PinLine(Line, frozen=True, kw_only=True, tag="pin"):
    """What the memory must answer. Whether it does is found out anew by whoever imports it."""

    id: UUID
    project_id: UUID
    number: Number
    question: QueryText
    must: PinWords = []
    must_not: PinWords = []
    lines: PinLines
    on_break: OnBreak = "report"
    from_file: bool = False
    created_at: datetime
    updated_at: datetime


DataLine: TypeAlias = (
    ProjectLine
    | EntityLine
    | SessionLine
    | EventLine
    | TurnLine
    | ObservationLine
    | SourceLine
    | VersionLine
    | RelationshipLine
    | EntityRelationLine
    | PinLine
)
AnyLine: TypeAlias = HeaderLine | DataLine
LINE_TYPES: tuple[type[DataLine], ...] = (
    ProjectLine,
    EntityLine,
    SessionLine,
    EventLine,
    TurnLine,
    ObservationLine,
    SourceLine,
    VersionLine,
    RelationshipLine,
    EntityRelationLine,
    PinLine,
)


def record_name(line_type: type[msgspec.Struct]) -> str:
    """The value of `record` in lines of this type."""
    return str(line_type.__struct_config__.tag)


class RefusedLine(msgspec.Struct, frozen=True, kw_only=True):
    """A thing that was not taken: `record` is its kind; `place` is where it is in the source, a line, or a table and an id."""

    record: str
    place: str
    reason: str


class ImportReport(msgspec.Struct, rename="camel", kw_only=True):
    """What became of the things of a source, in numbers by kind: `taken` are those that were stored; `known` are those that were
    there already; `erased` are those that were erased here before, and stay away.

    `refused` are those that were not taken; `examples` are the first of these; `redactions` are secrets and private passages that
    were removed. `renumbered` is how many observations got a new number, because theirs was another's; `lostPins` are what is
    pinned, and held before the import. `seconds` is how long it took.
    """

    taken: dict[str, int] = {}
    known: dict[str, int] = {}
    erased: dict[str, int] = {}
    refused: dict[str, int] = {}
    examples: list[RefusedLine] = []
    redactions: dict[str, int] = {}
    renumbered: int = 0
    lost_pins: list[str] = []
    seconds: float = 0.0
