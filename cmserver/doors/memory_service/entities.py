"""Entities and relationships as clients of the memory-service know them."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.base.errors import Invalid, Issue, NotFound
from cmserver.base.http.operation import delete, get, post
from cmserver.base.http.wire import answer, db, dependency, query, read
from cmserver.base.ids import iso
from cmserver.base.sql import Conn
from cmserver.base.text import Key, Text, cut_query
from cmserver.doors.memory_service.frame import DeletionOut, ServicePageQuery, Words, admit, find_project, find_reserved_id
from cmserver.embeddings.query_embedder import QueryEmbedder
from cmserver.graph import entities
from cmserver.graph import repository as graph
from cmserver.graph.model import ENTITY_TYPES, LABEL_MOST, NAME_MOST, NOTES_MOST, Entity, EntityName, EntityRelation, EntityType

_SEARCHED = 1_000
"""How many of those that a search finds can be read."""
_TYPES: dict[str, EntityType] = {type_: type_ for type_ in ENTITY_TYPES}


class ServiceEntityIn(msgspec.Struct, rename="camel", kw_only=True):
    """An entity. Without `projectId` it belongs to a reserved project. `type` is what kind of entity it is."""

    name: Annotated[Text, Meta(min_length=1, max_length=NAME_MOST)]
    type: EntityType
    notes: Annotated[Text, Meta(max_length=NOTES_MOST)] | None = None
    project_id: Key | None = None


class EntitiesOfTypeQuery(ServicePageQuery, kw_only=True):
    """All of the type, or those that a search finds."""

    q: Words | None = None


class ServiceRelationshipIn(msgspec.Struct, rename="camel", kw_only=True):
    """A relationship from one entity to another."""

    from_id: UUID
    to_id: UUID
    label: Annotated[Text, Meta(min_length=1, max_length=LABEL_MOST)]


class ServiceEntityOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An entity. `type` is what kind of entity it is."""

    id: UUID
    project_id: UUID | None
    name: str
    type: EntityType
    notes: str | None
    mention_count: int
    created_at: str


class ServiceRelationshipOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A relationship from one entity to another."""

    id: UUID
    from_id: UUID
    to_id: UUID
    label: str
    created_at: str


async def post_entity(request: Request) -> Response:
    """Make an entity, or give the one of that name and type new notes; empty ones change nothing."""
    principal = await admit(request)
    new = await read(request, ServiceEntityIn)

    async def make(conn: Conn) -> ServiceEntityOut:
        project = await find_project(conn, principal, new.project_id)
        entity, _ = await entities.make_entity(conn, principal, project.id, EntityName(new.type, new.name, new.notes))
        return _entity_out(entity, await find_reserved_id(conn, principal))

    return answer(await db(request).in_tenant(principal.team_id, make), 201)


async def get_by_type(request: Request) -> Response:
    """The entities of a type, the newest first; with `q` those that have it in a name, and those that mean the like."""
    principal = await admit(request)
    page = query(request, EntitiesOfTypeQuery)
    type_ = _TYPES.get(str(request.path_params["type"]))
    if type_ is None:
        raise Invalid.at("$.type", f"Not a type of entities: {', '.join(ENTITY_TYPES)}.")
    search = page.q and cut_query(page.q)
    vector = await dependency(request, QueryEmbedder).embed(search) if search else None
    async with db(request).tenant(principal.team_id) as conn:
        if search:
            most = min(page.offset + page.limit, _SEARCHED)
            found, _ = await entities.list_entities(
                conn, principal, project_id=principal.project_id, type_=type_, search=search, vector=vector, limit=most
            )
            rows = found[page.offset :]
        else:
            rows = await graph.list_by_type(
                conn, principal.team_id, principal.project_id, type_, limit=page.limit, offset=page.offset
            )
        reserved_id = await find_reserved_id(conn, principal)
    return answer([_entity_out(row, reserved_id) for row in rows])


async def get_entity(request: Request) -> Response:
    """One entity."""
    principal = await admit(request)
    async with db(request).tenant(principal.team_id) as conn:
        entity = await entities.find_entity(conn, principal, str(request.path_params["id"]))
        return answer(_entity_out(entity, await find_reserved_id(conn, principal)))


async def delete_entity(request: Request) -> Response:
    """Delete an entity with its relationships."""
    principal = await admit(request)
    name = str(request.path_params["id"])
    deleted = await db(request).in_tenant(principal.team_id, lambda conn: entities.delete_entity(conn, principal, name))
    return answer(DeletionOut(id=deleted))


async def get_relationships(request: Request) -> Response:
    """The relationships that lead from an entity to others."""
    principal = await admit(request)
    async with db(request).tenant(principal.team_id) as conn:
        entity = await entities.find_entity(conn, principal, str(request.path_params["id"]))
        rows = await graph.list_relations(conn, principal.team_id, entity.id, entities.RELATIONS_MOST, outbound=True)
    return answer([*map(_relationship_out, rows)])


async def post_relationship(request: Request) -> Response:
    """Relate an entity to another one; the same again changes nothing."""
    principal = await admit(request)
    new = await read(request, ServiceRelationshipIn)

    async def relate(conn: Conn) -> EntityRelation:
        await _require_entity(conn, principal, new.from_id, "$.fromId")
        return await entities.relate_entities(conn, principal, str(new.from_id), str(new.to_id), new.label, [])

    return answer(_relationship_out(await db(request).in_tenant(principal.team_id, relate)), 201)


async def delete_relationship(request: Request) -> Response:
    """Delete a relationship, named as it was made."""
    principal = await admit(request)
    old = await read(request, ServiceRelationshipIn)

    async def delete(conn: Conn) -> UUID:
        entity = await _require_entity(conn, principal, old.from_id, "$.fromId")
        other = await _require_entity(conn, principal, old.to_id, "$.toId")
        label = entities.clean_label(old.label)
        found = await graph.find_relation_between(conn, principal.team_id, entity.id, other.id, label)
        if found is None:
            raise NotFound(entities.NO_SUCH_RELATION)
        return await entities.unrelate_entities(conn, principal, str(found))

    return answer(DeletionOut(id=await db(request).in_tenant(principal.team_id, delete)))


async def _require_entity(conn: Conn, principal: Principal, entity_id: UUID, at: str) -> Entity:
    try:
        return await entities.find_entity(conn, principal, str(entity_id))
    except NotFound as error:
        raise NotFound(entities.NO_SUCH, [Issue(at, entities.NO_SUCH)]) from error


def _entity_out(entity: Entity, reserved_id: UUID | None) -> ServiceEntityOut:
    return ServiceEntityOut(
        id=entity.id,
        project_id=None if entity.project_id == reserved_id else entity.project_id,
        name=entity.name,
        type=entity.type,
        notes=entity.notes,
        mention_count=entity.mention_count,
        created_at=iso(entity.created_at),
    )


def _relationship_out(relation: EntityRelation) -> ServiceRelationshipOut:
    return ServiceRelationshipOut(
        id=relation.id,
        from_id=relation.from_id,
        to_id=relation.to_id,
        label=relation.label,
        created_at=iso(relation.created_at),
    )


_WRITE = "observations:write"
_READ = "observations:read"
routes = [
    post("/entities", post_entity, _WRITE, ServiceEntityOut, status=201, body=ServiceEntityIn),
    get("/entities/by-type/{type}", get_by_type, _READ, list[ServiceEntityOut], query=EntitiesOfTypeQuery),
    get("/entities/{id}", get_entity, _READ, ServiceEntityOut),
    delete("/entities/{id}", delete_entity, _WRITE, DeletionOut),
    get("/entities/{id}/relationships", get_relationships, _READ, list[ServiceRelationshipOut]),
    post("/relationships", post_relationship, _WRITE, ServiceRelationshipOut, status=201, body=ServiceRelationshipIn),
    delete("/relationships", delete_relationship, _WRITE, DeletionOut, body=ServiceRelationshipIn),
]
