"""Entities over HTTP: what observations are about."""

from __future__ import annotations

from msgspec import UNSET

from cmserver.access import verb
from cmserver.access.projects import Projects
from cmserver.access.verb import VerbCall
from cmserver.base.structs import reshape
from cmserver.embeddings.query_embedder import QueryEmbedder
from cmserver.graph import entities, wire
from cmserver.graph.model import Entity, EntityName

_WRITE = "observations:write"


@verb.get("/v1/entities", "observations:read")
async def get_entities(call: VerbCall, given: wire.EntitiesQuery) -> wire.EntitiesOut:
    """What observations are about: files, symbols, commands, errors, technologies and others, most mentioned first."""
    project_id = await call.dependency(Projects).within(call.principal, given.project)
    after = wire.decode_place(given.cursor)
    vector = await call.dependency(QueryEmbedder).embed(given.search) if given.search else None
    async with call.read() as conn:
        page, place = await entities.list_entities(
            conn,
            call.principal,
            project_id=project_id,
            type_=given.type,
            search=given.search,
            vector=vector,
            after=after,
            limit=given.limit,
        )
    return wire.EntitiesOut(entities=[reshape(row, wire.EntityOut) for row in page], next_cursor=wire.encode_place(place))


@verb.get("/v1/entities/{id}", "observations:read")
async def get_entity(call: VerbCall, given: wire.EntityQuery) -> wire.EntityDetailsOut:
    """One entity, with its other names, its relations, and what is mentioned together with it."""
    async with call.read() as conn:
        return wire.details_out(await entities.read_entity(conn, call.principal, given.id, depth=given.depth))


@verb.get("/v1/entities/{id}/mentions", "observations:read")
async def get_mentions(call: VerbCall, given: wire.MentionsQuery) -> wire.MentionsOut:
    """The time line of an entity: the observations and turns that mention it, newest first."""
    async with call.read() as conn:
        entity, mentions, next_cursor = await entities.read_mentions(
            conn, call.principal, given.id, cursor=given.cursor, limit=given.limit
        )
    mentioned = [*map(wire.mention_out, mentions)]
    return wire.MentionsOut(entity=reshape(entity, wire.EntityOut), mentions=mentioned, next_cursor=next_cursor)


@verb.post("/v1/entities", _WRITE)
async def post_entity(call: VerbCall, given: wire.EntityIn) -> tuple[wire.OneEntityOut, bool]:
    """Make an entity, or add notes to the one of that name and type (200)."""
    project = await call.dependency(Projects).named_or_own(call.principal, given.project_id, at="$.projectId")
    name = reshape(given, EntityName)
    entity, is_new = await call.write(lambda conn: entities.make_entity(conn, call.principal, project.id, name))
    return _entity_out(entity), is_new


@verb.patch("/v1/entities/{id}", _WRITE)
async def patch_entity(call: VerbCall, given: wire.EntityChangeIn) -> wire.OneEntityOut:
    """Change the notes of an entity, or the spelling of its name."""
    entity = await call.write(
        lambda conn: entities.change_entity(
            conn,
            call.principal,
            given.id,
            new_name=None if given.name is UNSET else given.name,
            notes=None if given.notes is UNSET else given.notes,
            sets_notes=given.notes is not UNSET,
        )
    )
    return _entity_out(entity)


@verb.delete("/v1/entities/{id}", _WRITE)
async def delete_entity(call: VerbCall, given: str) -> wire.DeletedEntityOut:
    """Delete an entity with its other names, mentions and relations; a later observation that names it brings it back."""
    return wire.DeletedEntityOut(id=await call.write(lambda conn: entities.delete_entity(conn, call.principal, given)))


@verb.post("/v1/entities/{id}/merge", _WRITE)
async def post_merge(call: VerbCall, given: wire.EntityMergeIn) -> wire.OneEntityOut:
    """Make an entity another name of a second one of its project, which is answered."""
    return _entity_out(await call.write(lambda conn: entities.merge_entities(conn, call.principal, given.id, given.into_id)))


@verb.post("/v1/entities/{id}/separate", _WRITE)
async def post_separate(call: VerbCall, given: str) -> wire.OneEntityOut:
    """Make another name of an entity, by its own id, an entity again."""
    return _entity_out(await call.write(lambda conn: entities.separate_entity(conn, call.principal, given)))


@verb.post("/v1/entities/{id}/relations", _WRITE, status=201)
async def post_relation(call: VerbCall, given: wire.EntityRelationIn) -> wire.OneEntityRelationOut:
    """Say how an entity has to do with another one of its project; the same again adds evidence."""
    relation = await call.write(
        lambda conn: entities.relate_entities(conn, call.principal, given.id, given.to_id, given.label, given.evidence)
    )
    return wire.OneEntityRelationOut(relation=reshape(relation, wire.EntityRelationOut))


@verb.delete("/v1/entity-relations/{id}", _WRITE)
async def delete_relation(call: VerbCall, given: str) -> wire.DeletedEntityOut:
    """Delete a relation of two entities."""
    return wire.DeletedEntityOut(id=await call.write(lambda conn: entities.unrelate_entities(conn, call.principal, given)))


def _entity_out(entity: Entity) -> wire.OneEntityOut:
    return wire.OneEntityOut(entity=reshape(entity, wire.EntityOut))


routes = [
    get_entities,
    get_entity,
    get_mentions,
    post_entity,
    patch_entity,
    delete_entity,
    post_merge,
    post_separate,
    post_relation,
    delete_relation,
]
