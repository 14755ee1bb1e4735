"""Entities and their relations on the wire."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cmserver.base.paging import Limit, no_cursor
from cmserver.base.structs import reshape
from cmserver.base.text import Key, Text
from cmserver.graph.entities import EntityDetails
from cmserver.graph.model import DEPTH_MOST, LABEL_MOST, NAME_MOST, NOTES_MOST, EntityMention, EntityType, FoundBy

EntityName = Annotated[Text, Meta(min_length=1, max_length=NAME_MOST)]
Notes = Annotated[Text, Meta(max_length=NOTES_MOST)]
RelationLabel = Annotated[Text, Meta(min_length=1, max_length=LABEL_MOST)]


class EntitiesQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`type` is which to list; `search` is a part of a name or an alias, whatever its case; on the last page up to ten follow that
    mean the like.

    Without `project`, a key of the whole team sees all projects.
    """

    project: str | None = None
    type: EntityType | None = None
    search: EntityName | None = None
    limit: Limit = 50
    cursor: str | None = None


class EntityQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`depth` is 2 to list the neighbours of the neighbours, too."""

    id: str
    depth: Annotated[int, Meta(ge=1, le=DEPTH_MOST)] = 1


class MentionsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A page of the observations and turns that mention an entity."""

    id: str
    limit: Limit = 50
    cursor: str | None = None


class EntityOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Something that observations and turns are about. `type` is what kind of entity it is.

    `mentionCount` is how many observations and turns mention it by any of its names. `foundBy` is who made it: one of `people`
    stays without mentions.
    """

    id: UUID
    project_id: UUID
    type: EntityType
    name: str
    notes: str | None
    found_by: FoundBy
    mention_count: int
    first_seen_at_epoch: int
    last_seen_at_epoch: int
    created_at_epoch: int


class EntitiesOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Most mentioned first."""

    entities: list[EntityOut]
    next_cursor: str | None


class AliasOut(msgspec.Struct, frozen=True, kw_only=True):
    """Another name of an entity, which its id takes apart again. `type` is what kind of entity it is."""

    id: UUID
    type: EntityType
    name: str


class EntityRelationOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What is said of two entities. `label` is how the first has to do with the other; `evidence` are the numbers of the
    observations that say so.
    """

    id: UUID
    from_id: UUID
    from_type: EntityType
    from_name: str
    to_id: UUID
    to_type: EntityType
    to_name: str
    label: str
    evidence: list[int]
    created_at_epoch: int


class NeighbourOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An entity that is mentioned in the same observations as `fromId`: in `together` of its latest 300. `fromId` is the entity
    that it stands beside; `type` is what kind of entity it is.
    """

    from_id: UUID
    id: UUID
    type: EntityType
    name: str
    mention_count: int
    together: int


class OneEntityOut(msgspec.Struct, frozen=True, kw_only=True):
    """An entity."""

    entity: EntityOut


class EntityDetailsOut(msgspec.Struct, frozen=True, kw_only=True):
    """An entity with its other names, its relations, and what is mentioned together with it, the most often first."""

    entity: EntityOut
    aliases: list[AliasOut]
    relations: list[EntityRelationOut]
    neighbours: list[NeighbourOut]


class MentionOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An observation or a turn that mentions the entity. `kind` is observation, summary, manual or turn; `type` is the type of the
    observation, or `turn`; `beginning` is how its text begins, for one without a title.
    """

    id: UUID
    number: int
    project_id: UUID
    type: str
    kind: str
    title: str | None
    beginning: str
    created_at_epoch: int


class MentionsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The time line of an entity: the observations and turns that mention it, newest first."""

    entity: EntityOut
    mentions: list[MentionOut]
    next_cursor: str | None


class EntityIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """One entity of a name and type exists in a project: the same again adds its notes. `type` is what kind of entity it is."""

    project_id: Key | None = None
    name: EntityName
    type: EntityType
    notes: Notes | None = None


class EntityChangeIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What is not sent stays. `name` is another spelling of the same name; `notes` are free text, or null to remove them."""

    id: str
    name: EntityName | UnsetType = UNSET
    notes: Notes | UnsetType | None = UNSET


class EntityMergeIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """`intoId` is the entity that the one in the path is another name of."""

    id: str
    into_id: Key


class EntityRelationIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """`toId` is another entity of the project; `label` is how the entity in the path has to do with the other; `evidence` are the
    numbers of observations that say so.
    """

    id: str
    to_id: Key
    label: RelationLabel
    evidence: Annotated[list[Annotated[int, Meta(ge=1)]], Meta(max_length=100)] = []


class DeletedEntityOut(msgspec.Struct, frozen=True, kw_only=True):
    """What was deleted."""

    id: UUID


class OneEntityRelationOut(msgspec.Struct, frozen=True, kw_only=True):
    """A relation."""

    relation: EntityRelationOut


def details_out(details: EntityDetails) -> EntityDetailsOut:
    return EntityDetailsOut(
        entity=reshape(details.entity, EntityOut),
        aliases=[reshape(alias, AliasOut) for alias in details.aliases],
        relations=[reshape(relation, EntityRelationOut) for relation in details.relations],
        neighbours=[reshape(neighbour, NeighbourOut) for neighbour in details.neighbours],
    )


def mention_out(mention: EntityMention) -> MentionOut:
    return reshape(mention, MentionOut, created_at_epoch=mention.seen_at)


def encode_place(place: tuple[int, UUID] | None) -> str | None:
    """The cursor of the page after an entity, by its count and id."""
    return None if place is None else base64.urlsafe_b64encode(place[0].to_bytes(4) + place[1].bytes).decode()


def decode_place(cursor: str | None) -> tuple[int, UUID] | None:
    """The count and id after which the page begins; Invalid when it is no cursor."""
    if cursor is None:
        return None
    try:
        raw = base64.b64decode(cursor, altchars=b"-_", validate=True)
        place = int.from_bytes(raw[:4]), UUID(bytes=raw[4:])
    except (binascii.Error, ValueError) as error:
        raise no_cursor() from error
    if place[0] >= 2**31:
        raise no_cursor()
    return place
