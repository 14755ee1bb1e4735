"""Entities, relationships and overviews as clients of the memory-service know them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import projects
from cmserver.access.model import Principal, Project
from cmserver.base.errors import Conflict, Invalid, Issue, NotFound
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, db, query, read
from cmserver.base.ids import named_id
from cmserver.base.sql import Conn
from cmserver.base.text import Text
from cmserver.compat.api.guest import admit_caller
from cmserver.compat.api.service.frame import DeletionOut
from cmserver.graph import entities, repository
from cmserver.graph.model import ENTITY_TYPES, LABEL_MOST, NAME_MOST, NOTES_MOST, Entity, EntityName, EntityRelation, EntityType
from cmserver.graph.overviews.make import make_overview, read_overview
from cmserver.graph.overviews.model import Overview

_RESERVED_PROJECT = "memory-service"
"""The canonical id of the project of what its client puts into none."""
_TYPES: dict[str, EntityType] = {type_: type_ for type_ in ENTITY_TYPES}
_GUEST_SCOPES = frozenset({"observations:write", "events:write"})
"""What guests may do here besides what they may elsewhere: the original asks nobody for a key."""


class ServiceEntityIn(msgspec.Struct, rename="camel", kw_only=True):
    """An entity. Without `projectId` it belongs to a reserved project."""

    name: Annotated[Text, Meta(min_length=1, max_length=NAME_MOST)]
    type: EntityType
    notes: Annotated[Text, Meta(max_length=NOTES_MOST)] | None = None
    project_id: UUID | None = None


class ServiceRelationshipIn(msgspec.Struct, rename="camel", kw_only=True):
    """A relationship from one entity to another."""

    from_id: UUID
    to_id: UUID
    label: Annotated[Text, Meta(min_length=1, max_length=LABEL_MOST)]


class ServiceEntitiesQuery(msgspec.Struct, kw_only=True):
    """A page, the newest first."""

    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    offset: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


class ServiceEntityOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An entity."""

    id: UUID
    project_id: UUID
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


class ServiceOverviewOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The overview of a project, which stands in no session."""

    id: UUID
    project_id: UUID
    session_id: UUID | None
    content: str
    created_at: str


class NothingToSummariseOut(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no overview."""

    error: str


async def post_entity(request: Request) -> Response:
    """Make an entity, or give the one of that name and type new notes; empty ones change nothing."""
    principal = await _admit(request)
    new = await read(request, ServiceEntityIn)

    async def make(conn: Conn) -> Entity:
        project = await _find_project(conn, principal, new.project_id)
        entity, _ = await entities.make_entity(conn, principal, project.id, EntityName(new.type, new.name, new.notes))
        return entity

    return answer(_entity_out(await db(request).in_tenant(principal.team_id, make)), 201)


async def get_by_type(request: Request) -> Response:
    """The entities of a type, the newest first."""
    principal = await _admit(request)
    page = query(request, ServiceEntitiesQuery)
    type_ = _TYPES.get(str(request.path_params["type"]))
    if type_ is None:
        raise Invalid.at("$.type", f"Not a type of entities: {', '.join(ENTITY_TYPES)}.")
    async with db(request).tenant(principal.team_id) as conn:
        rows = await repository.of_type(conn, principal.team_id, principal.project_id, type_, limit=page.limit, offset=page.offset)
    return answer([*map(_entity_out, rows)])


async def get_entity(request: Request) -> Response:
    """One entity."""
    principal = await _admit(request)
    async with db(request).tenant(principal.team_id) as conn:
        return answer(_entity_out(await entities.find_entity(conn, principal, str(request.path_params["id"]))))


async def delete_entity(request: Request) -> Response:
    """Delete an entity with its relationships."""
    principal = await _admit(request)
    name = str(request.path_params["id"])
    deleted = await db(request).in_tenant(principal.team_id, lambda conn: entities.delete_entity(conn, principal, name))
    return answer(DeletionOut(id=deleted))


async def get_relationships(request: Request) -> Response:
    """The relationships that lead from an entity to others."""
    principal = await _admit(request)
    async with db(request).tenant(principal.team_id) as conn:
        entity = await entities.find_entity(conn, principal, str(request.path_params["id"]))
        rows = await repository.relations(conn, principal.team_id, [entity.id], entities.RELATIONS_MOST)
    return answer([_relationship_out(row) for row in rows if row.from_id == entity.id])


async def post_relationship(request: Request) -> Response:
    """Relate an entity to another one; the same again changes nothing."""
    principal = await _admit(request)
    new = await read(request, ServiceRelationshipIn)

    async def relate(conn: Conn) -> EntityRelation:
        await _require_entity(conn, principal, new.from_id, "$.fromId")
        return await entities.relate_entities(conn, principal, str(new.from_id), str(new.to_id), new.label, [])

    return answer(_relationship_out(await db(request).in_tenant(principal.team_id, relate)), 201)


async def delete_relationship(request: Request) -> Response:
    """Delete a relationship, named as it was made."""
    principal = await _admit(request)
    old = await read(request, ServiceRelationshipIn)

    async def delete(conn: Conn) -> UUID:
        entity = await _require_entity(conn, principal, old.from_id, "$.fromId")
        label = " ".join(old.label.split())
        for row in await repository.relations(conn, principal.team_id, [entity.id], entities.RELATIONS_MOST):
            if (row.from_id, row.to_id, row.label) == (entity.id, old.to_id, label):
                return await entities.unrelate_entities(conn, principal, str(row.id))
        raise NotFound(entities.NO_SUCH_RELATION)

    return answer(DeletionOut(id=await db(request).in_tenant(principal.team_id, delete)))


async def post_summarize(request: Request) -> Response:
    """Make the overview of a project; 422 when nothing is remembered of it."""
    principal = await _admit(request)
    project_id = _path_id(request)

    async def make(conn: Conn) -> Overview:
        return await make_overview(conn, principal, await _find_project(conn, principal, project_id))

    try:
        overview = await db(request).in_tenant(principal.team_id, make)
    except Conflict as error:
        return answer(NothingToSummariseOut(error=str(error)), 422)
    return answer(_overview_out(overview), 201)


async def get_overview(request: Request) -> Response:
    """The overview of a project; null when there is none yet."""
    principal = await _admit(request)
    async with db(request).tenant(principal.team_id) as conn:
        project = await _find_project(conn, principal, _path_id(request))
        overview = await read_overview(conn, principal, project.id)
    return answer(_overview_out(overview) if overview else None)


async def _admit(request: Request) -> Principal:
    return await admit_caller(request, more_scopes=_GUEST_SCOPES)


def _path_id(request: Request) -> UUID:
    project_id = named_id(str(request.path_params["id"]))
    if project_id is None:
        raise NotFound(projects.NO_SUCH)
    return project_id


async def _find_project(conn: Conn, principal: Principal, project_id: UUID | None) -> Project:
    """The project with that id, else the key's own or the reserved one."""
    if project_id is None and principal.project_id is None:
        project, _ = await projects.make_project(conn, principal, _RESERVED_PROJECT, name="Sessions without a project")
        return project
    project = await projects.find(conn, principal, str(project_id or principal.project_id))
    if project is None:
        raise NotFound(projects.NO_SUCH, [Issue("$.projectId", projects.NO_SUCH)])
    return project


async def _require_entity(conn: Conn, principal: Principal, entity_id: UUID, at: str) -> Entity:
    try:
        return await entities.find_entity(conn, principal, str(entity_id))
    except NotFound as error:
        raise NotFound(entities.NO_SUCH, [Issue(at, entities.NO_SUCH)]) from error


def _entity_out(entity: Entity) -> ServiceEntityOut:
    return ServiceEntityOut(
        id=entity.id,
        project_id=entity.project_id,
        name=entity.name,
        type=entity.type,
        notes=entity.notes,
        mention_count=entity.mention_count,
        created_at=_iso(entity.created_at),
    )


def _relationship_out(relation: EntityRelation) -> ServiceRelationshipOut:
    return ServiceRelationshipOut(
        id=relation.id,
        from_id=relation.from_id,
        to_id=relation.to_id,
        label=relation.label,
        created_at=_iso(relation.created_at),
    )


def _overview_out(overview: Overview) -> ServiceOverviewOut:
    return ServiceOverviewOut(
        id=overview.id,
        project_id=overview.project_id,
        session_id=None,
        content=overview.body,
        created_at=_iso(overview.made_at),
    )


def _iso(at: datetime) -> str:
    """The time in ISO 8601 as JavaScript writes it: UTC, milliseconds, `Z`."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_WRITE = "observations:write"
_READ = "observations:read"
routes = [
    Operation("POST", "/entities", post_entity, scope=_WRITE, body=ServiceEntityIn, answers={201: ServiceEntityOut}),
    Operation(
        "GET",
        "/entities/by-type/{type}",
        get_by_type,
        scope=_READ,
        query=ServiceEntitiesQuery,
        answers={200: list[ServiceEntityOut]},
    ),
    Operation("GET", "/entities/{id}", get_entity, scope=_READ, answers={200: ServiceEntityOut}),
    Operation("DELETE", "/entities/{id}", delete_entity, scope=_WRITE, answers={200: DeletionOut}),
    Operation("GET", "/entities/{id}/relationships", get_relationships, scope=_READ, answers={200: list[ServiceRelationshipOut]}),
    Operation(
        "POST", "/relationships", post_relationship, scope=_WRITE, body=ServiceRelationshipIn, answers={201: ServiceRelationshipOut}
    ),
    Operation(
        "DELETE", "/relationships", delete_relationship, scope=_WRITE, body=ServiceRelationshipIn, answers={200: DeletionOut}
    ),
    Operation(
        "POST",
        "/projects/{id}/summarize",
        post_summarize,
        scope=_WRITE,
        answers={201: ServiceOverviewOut, 422: NothingToSummariseOut},
    ),
    Operation("GET", "/projects/{id}/overview", get_overview, scope=_READ, answers={200: ServiceOverviewOut}),
]
