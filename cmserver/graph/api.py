"""Entities over HTTP: what observations are about."""

from __future__ import annotations

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.http.operation import delete, get, patch, post
from cmserver.base.http.wire import answer, caller, db, dependency, query, read
from cmserver.base.structs import reshape
from cmserver.embeddings.query_embedder import QueryEmbedder
from cmserver.graph import entities, wire
from cmserver.graph.model import EntityName


async def get_entities(request: Request) -> Response:
    """What observations are about: files, symbols, commands, errors, technologies and others, most mentioned first."""
    principal = await caller(request, Principal)
    filters = query(request, wire.EntitiesQuery)
    project_id = await dependency(request, Projects).within(principal, filters.project)
    after = wire.decode_place(filters.cursor)
    vector = await dependency(request, QueryEmbedder).embed(filters.search) if filters.search else None
    async with db(request).tenant(principal.team_id) as conn:
        page, place = await entities.list_entities(
            conn,
            principal,
            project_id=project_id,
            type_=filters.type,
            search=filters.search,
            vector=vector,
            after=after,
            limit=filters.limit,
        )
    return answer(wire.EntitiesOut(entities=[reshape(row, wire.EntityOut) for row in page], next_cursor=wire.encode_place(place)))


async def get_entity(request: Request) -> Response:
    """One entity, with its other names, its relations, and what is mentioned together with it."""
    principal = await caller(request, Principal)
    depth = query(request, wire.EntityQuery).depth
    async with db(request).tenant(principal.team_id) as conn:
        details = await entities.read_entity(conn, principal, str(request.path_params["id"]), depth=depth)
    return answer(wire.details_out(details))


async def get_mentions(request: Request) -> Response:
    """The time line of an entity: the observations and turns that mention it, newest first."""
    principal = await caller(request, Principal)
    page = query(request, wire.MentionsQuery)
    async with db(request).tenant(principal.team_id) as conn:
        entity, mentions, next_cursor = await entities.read_mentions(
            conn, principal, str(request.path_params["id"]), cursor=page.cursor, limit=page.limit
        )
    return answer(
        wire.MentionsOut(
            entity=reshape(entity, wire.EntityOut), mentions=[*map(wire.mention_out, mentions)], next_cursor=next_cursor
        )
    )


async def post_entity(request: Request) -> Response:
    """Make an entity, or add notes to the one of that name and type (200)."""
    principal = await caller(request, Principal)
    new = await read(request, wire.EntityIn)
    project = await dependency(request, Projects).named_or_own(principal, new.project_id, at="$.projectId")
    name = reshape(new, EntityName)
    entity, is_new = await db(request).in_tenant(
        principal.team_id, lambda conn: entities.make_entity(conn, principal, project.id, name)
    )
    return answer(wire.OneEntityOut(entity=reshape(entity, wire.EntityOut)), 201 if is_new else 200)


async def patch_entity(request: Request) -> Response:
    """Change the notes of an entity, or the spelling of its name."""
    principal = await caller(request, Principal)
    change = await read(request, wire.EntityChangeIn)
    entity = await db(request).in_tenant(
        principal.team_id,
        lambda conn: entities.change_entity(
            conn,
            principal,
            str(request.path_params["id"]),
            new_name=None if change.name is UNSET else change.name,
            notes=None if change.notes is UNSET else change.notes,
            sets_notes=change.notes is not UNSET,
        ),
    )
    return answer(wire.OneEntityOut(entity=reshape(entity, wire.EntityOut)))


async def delete_entity(request: Request) -> Response:
    """Delete an entity with its other names, mentions and relations; a later observation that names it brings it back."""
    principal = await caller(request, Principal)
    name = str(request.path_params["id"])
    deleted = await db(request).in_tenant(principal.team_id, lambda conn: entities.delete_entity(conn, principal, name))
    return answer(wire.DeletedEntityOut(id=deleted))


async def post_merge(request: Request) -> Response:
    """Make an entity another name of a second one of its project, which is answered."""
    principal = await caller(request, Principal)
    into = (await read(request, wire.EntityMergeIn)).into_id
    name = str(request.path_params["id"])
    entity = await db(request).in_tenant(principal.team_id, lambda conn: entities.merge_entities(conn, principal, name, into))
    return answer(wire.OneEntityOut(entity=reshape(entity, wire.EntityOut)))


async def post_separate(request: Request) -> Response:
    """Make another name of an entity, by its own id, an entity again."""
    principal = await caller(request, Principal)
    name = str(request.path_params["id"])
    entity = await db(request).in_tenant(principal.team_id, lambda conn: entities.separate_entity(conn, principal, name))
    return answer(wire.OneEntityOut(entity=reshape(entity, wire.EntityOut)))


async def post_relation(request: Request) -> Response:
    """Say how an entity has to do with another one of its project; the same again adds evidence."""
    principal = await caller(request, Principal)
    new = await read(request, wire.EntityRelationIn)
    name = str(request.path_params["id"])
    relation = await db(request).in_tenant(
        principal.team_id, lambda conn: entities.relate_entities(conn, principal, name, new.to_id, new.label, new.evidence)
    )
    return answer(wire.OneEntityRelationOut(relation=reshape(relation, wire.EntityRelationOut)), 201)


async def delete_relation(request: Request) -> Response:
    """Delete a relation of two entities."""
    principal = await caller(request, Principal)
    name = str(request.path_params["id"])
    deleted = await db(request).in_tenant(principal.team_id, lambda conn: entities.unrelate_entities(conn, principal, name))
    return answer(wire.DeletedEntityOut(id=deleted))


_WRITE = "observations:write"
routes = [
    get("/v1/entities", get_entities, "observations:read", wire.EntitiesOut, query=wire.EntitiesQuery),
    get("/v1/entities/{id}", get_entity, "observations:read", wire.EntityDetailsOut, query=wire.EntityQuery),
    get("/v1/entities/{id}/mentions", get_mentions, "observations:read", wire.MentionsOut, query=wire.MentionsQuery),
    post("/v1/entities", post_entity, _WRITE, {201: wire.OneEntityOut, 200: wire.OneEntityOut}, body=wire.EntityIn),
    patch("/v1/entities/{id}", patch_entity, _WRITE, wire.OneEntityOut, body=wire.EntityChangeIn),
    delete("/v1/entities/{id}", delete_entity, _WRITE, wire.DeletedEntityOut),
    post("/v1/entities/{id}/merge", post_merge, _WRITE, wire.OneEntityOut, body=wire.EntityMergeIn),
    post("/v1/entities/{id}/separate", post_separate, _WRITE, wire.OneEntityOut),
    post("/v1/entities/{id}/relations", post_relation, _WRITE, wire.OneEntityRelationOut, status=201, body=wire.EntityRelationIn),
    delete("/v1/entity-relations/{id}", delete_relation, _WRITE, wire.DeletedEntityOut),
]
