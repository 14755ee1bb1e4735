"""Finds, makes, merges and relates entities, and what is around one."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from cmserver.access import audit
from cmserver.access.model import Principal
from cmserver.access.projects import NO_SUCH as NO_SUCH_PROJECT
from cmserver.base import paging
from cmserver.base.errors import Conflict, Invalid, Issue, NotFound
from cmserver.base.follow import hold_off
from cmserver.base.ids import named_id, new_id, require_id
from cmserver.base.sql import Conn
from cmserver.embeddings.model import QueryVector
from cmserver.graph import repository
from cmserver.graph.find_names import is_ignored
from cmserver.graph.model import (
    READER,
    Entity,
    EntityMention,
    EntityName,
    EntityRelation,
    EntityType,
    Neighbour,
    NewEntity,
    fold_name,
)
from cmserver.observations import repository as observations
from cmserver.observations.read import audit_read
from cmserver.redaction.redact import redact

NO_SUCH = "Entity not found."
NO_SUCH_RELATION = "Relation not found."
NEIGHBOURS_MOST = 20
RELATIONS_MOST = 100
NEAR_MOST = 10
"""At most this many with another name are found by meaning."""


class EntityDetails(msgspec.Struct, frozen=True, kw_only=True):
    """An entity with its other names, what is said of it, and what is mentioned together with it, nearest first."""

    entity: Entity
    aliases: list[Entity]
    relations: list[EntityRelation]
    neighbours: list[Neighbour]
    """Those of the entity first, then those of its neighbours."""


async def list_entities(
    conn: Conn,
    principal: Principal,
    *,
    project_id: UUID | None,
    type_: EntityType | None = None,
    search: str | None = None,
    vector: QueryVector | None = None,
    after: tuple[int, UUID] | None = None,
    limit: int,
) -> tuple[list[Entity], tuple[int, UUID] | None]:
    """A page of entities, most mentioned first, and the place of the next page. `search` is a part of a name or alias.

    With its `vector` the last page ends with a few that are near to it in meaning, the nearest first.
    """
    folded = fold_name(search) if search else None
    rows = await repository.list_entities(
        conn,
        principal.team_id,
        project_id=project_id,
        type_=type_,
        search=folded,
        after=after,
        limit=limit + 1,
    )
    page = rows[:limit]
    if len(rows) > limit:
        return page, (page[-1].mention_count, page[-1].id)
    room = min(NEAR_MOST, limit - len(page))
    if folded and vector and room:
        page += await repository.find_near(
            conn, principal.team_id, vector, project_id=project_id, type_=type_, search=folded, limit=room
        )
    return page, None


async def find_entity(conn: Conn, principal: Principal, name: str) -> Entity:
    """The entity with that id; of an alias the one that it stands for. NotFound also when the key may not see its project."""
    entity_id = named_id(name)
    entity = await repository.by_id(conn, principal.team_id, entity_id) if entity_id else None
    if entity is not None and entity.merged_into is not None:
        entity = await repository.by_id(conn, principal.team_id, entity.merged_into)
    if entity is None or not principal.sees(entity.project_id):
        raise NotFound(NO_SUCH)
    return entity


async def find_named(conn: Conn, principal: Principal, project_id: UUID, name: EntityName) -> Entity:
    """The entity of the project with that type and name or alias, or NotFound."""
    found = await repository.find_named(conn, principal.team_id, project_id, fold_name(name.name), name.type)
    if not found:
        raise NotFound(NO_SUCH, [Issue("$.name", NO_SUCH)])
    return await find_entity(conn, principal, str(found[0]))


async def read_entity(conn: Conn, principal: Principal, name: str, *, depth: int) -> EntityDetails:
    """The entity and what is around it, over one step or two."""
    entity = await find_entity(conn, principal, name)
    team_id = principal.team_id
    neighbours = await repository.list_neighbours(conn, team_id, entity.id, NEIGHBOURS_MOST)
    if depth > 1:
        seen = {entity.id, *(neighbour.id for neighbour in neighbours)}
        for neighbour in neighbours[:]:
            further = await repository.list_neighbours(conn, team_id, neighbour.id, NEIGHBOURS_MOST // 4)
            neighbours += [row for row in further if row.id not in seen]
    return EntityDetails(
        entity=entity,
        aliases=await repository.list_aliases(conn, team_id, entity.id),
        relations=await repository.list_relations(conn, team_id, entity.id, RELATIONS_MOST),
        neighbours=neighbours,
    )


async def read_mentions(
    conn: Conn, principal: Principal, name: str, *, cursor: str | None, limit: int
) -> tuple[Entity, list[EntityMention], str | None]:
    """The entity, and a page of the observations and turns that mention it, newest first."""
    entity = await find_entity(conn, principal, name)
    before, before_id = paging.place(cursor)
    rows = await repository.list_mentions(conn, principal.team_id, entity.id, before=before, before_id=before_id, limit=limit + 1)
    page, next_cursor = paging.page(rows, limit, lambda row: (row.seen_at, row.id))
    await audit_read(conn, principal, entity.project_id, "entity", page)
    return entity, page, next_cursor


async def make_entity(conn: Conn, principal: Principal, project_id: UUID, new: EntityName) -> tuple[Entity, bool]:
    """The entity of that name and type, or what that is an alias of, and whether it is new. Without notes, old ones stay."""
    name = " ".join(redact(new.name)[0].split())
    if is_ignored(name):
        message = "This is no name of an entity"
        raise Invalid(f"{message}: it is a greeting, a month, a number or a single letter.", [Issue("$.name", message)])
    notes = redact(new.notes)[0].strip() if new.notes else None
    folded = fold_name(name)
    row = NewEntity(id=new_id(), type=new.type, name=name, folded_name=folded, notes=notes or None)
    if not await observations.hold_projects(conn, principal.team_id, [project_id]):
        raise NotFound(NO_SUCH_PROJECT)
    made = await repository.add_entities(conn, principal.team_id, project_id, [row], "people")
    found = await repository.find_named(conn, principal.team_id, project_id, folded, new.type)
    entity = await repository.make_lasting(conn, principal.team_id, found[0]) if found else None
    if entity is None:
        raise Conflict("The entity or its project was changed meanwhile. Send the request again.")
    is_new = row.id in made
    if is_new:
        await audit.record(conn, principal, "entity.created", "entity", entity.id, project_id=project_id, type=entity.type)
    return entity, is_new


async def change_entity(
    conn: Conn, principal: Principal, name: str, *, new_name: str | None, notes: str | None, sets_notes: bool
) -> Entity:
    """Give the entity another spelling of its name, or other notes. Another name is another entity: merge the two."""
    entity = await find_entity(conn, principal, name)
    spelling = " ".join(redact(new_name)[0].split()) if new_name else None
    if spelling is not None and fold_name(spelling) != fold_name(entity.name):
        message = "Only the spelling of a name can be changed"
        raise Invalid(f"{message}: make an entity of the other name, and merge this one into it.", [Issue("$.name", message)])
    kept_notes = redact(notes)[0].strip() or None if notes else None
    changed = await repository.make_lasting(
        conn, principal.team_id, entity.id, name=spelling, notes=kept_notes, sets_notes=sets_notes
    )
    if changed is None:
        raise NotFound(NO_SUCH)
    await audit.record(conn, principal, "entity.changed", "entity", entity.id, project_id=entity.project_id)
    return changed


async def delete_entity(conn: Conn, principal: Principal, name: str) -> UUID:
    """Delete the entity with its aliases, mentions and relations. It comes back when a later observation names it."""
    entity = await find_entity(conn, principal, name)
    if not await repository.delete(conn, principal.team_id, entity.id):
        raise NotFound(NO_SUCH)
    await audit.record(conn, principal, "entity.deleted", "entity", entity.id, project_id=entity.project_id, type=entity.type)
    return entity.id


async def merge_entities(conn: Conn, principal: Principal, name: str, into: str) -> Entity:
    """Make the entity another name of `into`, which is returned: its mentions and relations count for that one."""
    await hold_off(conn, READER, principal.team_id)  # a reader would go on with the alias
    entity = await find_entity(conn, principal, name)
    try:
        target = await find_entity(conn, principal, into)
    except NotFound as error:
        raise NotFound(NO_SUCH, [Issue("$.intoId", NO_SUCH)]) from error
    if target.id == entity.id:
        message = "An entity is not merged into itself"
        raise Invalid(f"{message}.", [Issue("$.intoId", message)])
    if target.project_id != entity.project_id:
        message = "The entities belong to different projects"
        raise Invalid(f"{message}.", [Issue("$.intoId", message)])
    locked = await repository.lock(conn, principal.team_id, {entity.id, target.id})
    if len(locked) < 2 or any(row.merged_into is not None for row in locked):
        raise Conflict("One of them was merged or deleted meanwhile. Look at both, and try again.")
    await repository.merge(conn, principal.team_id, entity.id, target.id)
    await audit.record(conn, principal, "entity.merged", "entity", entity.id, project_id=entity.project_id, into=str(target.id))
    return await find_entity(conn, principal, str(target.id))


async def separate_entity(conn: Conn, principal: Principal, name: str) -> Entity:
    """Make an alias, named by its id, an entity of its own again, with the mentions of its name."""
    await hold_off(conn, READER, principal.team_id)
    alias_id = named_id(name)
    alias = await repository.by_id(conn, principal.team_id, alias_id) if alias_id else None
    if alias is None or not principal.sees(alias.project_id):
        raise NotFound(NO_SUCH)
    if alias.merged_into is None:
        raise Conflict("This entity is no alias of another one.")
    await repository.lock(conn, principal.team_id, {alias.id, alias.merged_into})
    await repository.separate(conn, principal.team_id, alias.id, alias.merged_into)
    await audit.record(conn, principal, "entity.separated", "entity", alias.id, project_id=alias.project_id)
    return await find_entity(conn, principal, str(alias.id))


async def relate_entities(
    conn: Conn, principal: Principal, name: str, to: str, label: str, evidence: Sequence[int]
) -> EntityRelation:
    """Say how two entities of a project have to do with each other; the same again adds its evidence, observations by number."""
    from_entity = await find_entity(conn, principal, name)
    try:
        to_entity = await find_entity(conn, principal, to)
    except NotFound as error:
        raise NotFound(NO_SUCH, [Issue("$.toId", NO_SUCH)]) from error
    if from_entity.id == to_entity.id or from_entity.project_id != to_entity.project_id:
        message = "Two entities of one project are related"
        raise Invalid(f"{message}.", [Issue("$.toId", message)])
    words = clean_label(label)
    if not words:
        raise Invalid.at("$.label", "The label has no words.")
    for entity_id in (from_entity.id, to_entity.id):
        if await repository.make_lasting(conn, principal.team_id, entity_id) is None:
            raise NotFound(NO_SUCH)
    project_id = from_entity.project_id
    relation_id = await repository.relate(conn, principal.team_id, project_id, from_entity.id, to_entity.id, words)
    numbers = sorted(set(evidence))
    if numbers:
        await repository.add_evidence(conn, principal.team_id, project_id, relation_id, numbers)
    relation = await _find_relation(conn, principal, relation_id)
    if missing := [number for number in numbers if number not in relation.evidence]:
        message = f"There is no such observation in the project: {missing[0]}"
        raise Invalid(f"{message}.", [Issue("$.evidence", message)])
    await audit.record(
        conn, principal, "entity.related", "entity", from_entity.id, project_id=project_id, relation=str(relation_id)
    )
    return relation


def clean_label(label: str) -> str:
    """The label on one line, redacted, as it is stored."""
    return " ".join(redact(label)[0].split())


async def unrelate_entities(conn: Conn, principal: Principal, name: str) -> UUID:
    """Delete a relation."""
    relation = await _find_relation(conn, principal, require_id(name, NO_SUCH_RELATION))
    await repository.unrelate(conn, principal.team_id, relation)
    await audit.record(
        conn, principal, "entity.unrelated", "entity", relation.from_id, project_id=relation.project_id, relation=str(relation.id)
    )
    return relation.id


async def _find_relation(conn: Conn, principal: Principal, relation_id: UUID) -> EntityRelation:
    relation = await repository.find_relation(conn, principal.team_id, relation_id)
    if relation is None or not principal.sees(relation.project_id):
        raise NotFound(NO_SUCH_RELATION)
    return relation
