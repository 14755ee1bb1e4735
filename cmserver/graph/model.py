"""Entities, their mentions, and how they have to do with each other."""

from __future__ import annotations

import unicodedata
from datetime import datetime
from typing import Literal, LiteralString
from uuid import UUID

import msgspec

from cmserver.observations.model import Kind

EntityType = Literal["person", "place", "project", "technology", "concept", "organization", "file", "symbol", "command", "error"]
ENTITY_TYPES: tuple[EntityType, ...] = EntityType.__args__
NamedType = Literal["person", "place", "project", "technology", "concept", "organization"]
NAMED_TYPES: tuple[NamedType, ...] = NamedType.__args__
"""What a model finds: the memory-service's types. Rules find the others."""
FoundBy = Literal["rules", "model", "people"]

READER = "entities"
"""Who reads on from the observations and turns of a team. Two transactions never do: each would wait for the other's entities."""
NAME_MOST = 200
NOTES_MOST = 2_000
LABEL_MOST = 100
DEPTH_MOST = 2


def fold_name(name: str) -> str:
    """The name without differences of case, width and spaces, by which an entity is found."""
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())[:NAME_MOST]


class EntityName(msgspec.Struct, frozen=True):
    """What a text names."""

    type: EntityType
    name: str
    notes: str | None = None

    @property
    def key(self) -> tuple[EntityType, str]:
        """By which two names are the same entity."""
        return self.type, fold_name(self.name)


class Entity(msgspec.Struct, frozen=True, kw_only=True):
    """Something that observations of a project are about. It has one name of a type, and aliases that people merged into it."""

    id: UUID
    project_id: UUID
    type: EntityType
    name: str
    notes: str | None
    found_by: FoundBy
    """One that people made stays without mentions."""
    merged_into: UUID | None
    """Of an alias: the entity that it is another name of."""
    mention_count: int
    """How many observations and turns mention it by any of its names."""
    first_seen_at: datetime
    last_seen_at: datetime
    created_at: datetime


ENTITY_COLUMNS: LiteralString = (
    "id, project_id, type, name, notes, found_by, merged_into, mention_count, first_seen_at, last_seen_at, created_at"
)


class NewEntity(msgspec.Struct, frozen=True, kw_only=True):
    """An entity to be stored, or found by its folded name and type."""

    id: UUID
    type: EntityType
    name: str
    folded_name: str
    notes: str | None = None


class NewMention(msgspec.Struct, frozen=True, kw_only=True):
    """An observation or a turn, and what it names."""

    place_id: UUID
    type: EntityType
    folded_name: str


class ReadableText(msgspec.Struct, frozen=True, kw_only=True):
    """The texts of an observation in which entities are looked for; of a turn the `content` is what was said on both sides."""

    id: UUID
    number: int
    project_id: UUID
    is_live: bool
    kind: Kind | Literal["turn"] = "observation"
    title: str | None = None
    subtitle: str | None = None
    narrative: str | None = None
    facts: list[str] | None = None
    content: str = ""
    files_read: list[str] | None = None
    files_modified: list[str] | None = None
    anchors: list[str] | None = None
    entities: list[object] = []
    """What the model that made it says it is about, as "technology: Redis"."""


class EntityMention(msgspec.Struct, frozen=True, kw_only=True):
    """An observation or a turn that mentions an entity, as a list shows it."""

    id: UUID
    number: int
    project_id: UUID
    type: str
    kind: Kind | Literal["turn"]
    title: str | None
    beginning: str
    """The first characters of its text."""
    seen_at: datetime


class TypeCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many entities there are of a type."""

    type: EntityType
    entities: int


class EntityLink(msgspec.Struct, frozen=True, kw_only=True):
    """Two entities that are mentioned together in so many of the observations and turns that were looked at."""

    from_id: UUID
    to_id: UUID
    together: int


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """An entity that is mentioned together with another one, `from_id`, in so many of the observations that were looked at."""

    from_id: UUID
    id: UUID
    type: EntityType
    name: str
    mention_count: int
    together: int


class EntityRelation(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody says of two entities, with the numbers of the observations that say so."""

    id: UUID
    project_id: UUID
    from_id: UUID
    from_type: EntityType
    from_name: str
    to_id: UUID
    to_type: EntityType
    to_name: str
    label: str
    evidence: list[int]
    created_at: datetime
