"""What observations are about: entities by type, and one entity with its mentions, relations and neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, get_args

import msgspec
from msgspec import Meta
from starlette.responses import Response

from cmserver.access.projects import Projects
from cmserver.base.structs import reshape
from cmserver.base.text import Text
from cmserver.doors.web.graph_drawing import MAX_DRAWN, GraphNode, GraphView, draw_graph
from cmserver.doors.web.page import Page
from cmserver.doors.web.pages.memory import TITLE_CHARS, list_projects, names_of_projects
from cmserver.doors.web.visit import Visit
from cmserver.embeddings.query_embedder import QueryEmbedder
from cmserver.graph import entities
from cmserver.graph import repository as graph
from cmserver.graph.model import LABEL_MOST, NAME_MOST, NOTES_MOST, Entity, EntityLink, EntityName, EntityType, Neighbour
from cmserver.graph.wire import decode_place, encode_place
from cmserver.observations.plain import one_line

_PAGE = 50

TYPES: tuple[str, ...] = get_args(EntityType)


class EntityFilters(msgspec.Struct, frozen=True):
    """The filter in the address."""

    project: str | None = None
    type: EntityType | None = None
    search: Annotated[Text, Meta(max_length=NAME_MOST)] | None = None
    cursor: str | None = None


class NewEntityForm(msgspec.Struct, frozen=True):
    """An entity by hand."""

    project: str
    name: Annotated[Text, Meta(min_length=1, max_length=NAME_MOST)]
    type: EntityType
    notes: Annotated[Text, Meta(max_length=NOTES_MOST)] | None = None


class MentionFilters(msgspec.Struct, frozen=True):
    """The page of mentions in the address."""

    cursor: str | None = None


class NotesForm(msgspec.Struct, frozen=True):
    """The notes of an entity."""

    notes: Annotated[Text, Meta(max_length=NOTES_MOST)] | None = None


class OtherEntityForm(msgspec.Struct, frozen=True):
    """Another entity of the project, by its type and name."""

    type: EntityType
    name: Annotated[Text, Meta(min_length=1, max_length=NAME_MOST)]
    label: Annotated[Text, Meta(max_length=LABEL_MOST)] | None = None


async def get_graph(visit: Visit) -> Response:
    """The files, symbols, commands, errors, technologies and others that observations are about, most mentioned first."""
    filters = visit.query(EntityFilters)
    principal = visit.principal
    project_id = await visit.dependency(Projects).within(principal, filters.project)
    after = decode_place(filters.cursor)
    vector = await visit.dependency(QueryEmbedder).embed(filters.search) if filters.search else None
    async with visit.tenant() as conn:
        rows, place = await entities.list_entities(
            conn,
            principal,
            project_id=project_id,
            type_=filters.type,
            search=filters.search,
            vector=vector,
            after=after,
            limit=_PAGE,
        )
        counts = await graph.count_types(conn, principal.team_id, project_id)
        projects = await list_projects(conn, principal)
        names = await names_of_projects(conn, principal, {row.project_id for row in rows})
        links = await graph.list_links(conn, principal.team_id, [row.id for row in rows[:MAX_DRAWN]])
    return visit.render(
        "graph.html",
        title="Graph",
        entities=rows,
        drawing=_draw(rows[:MAX_DRAWN], links),
        type_options=[(count.type, f"{count.type} ({count.entities:,})") for count in counts],
        projects=projects,
        names=names,
        types=TYPES,
        filters=filters,
        parameters=msgspec.structs.asdict(filters),
        next_cursor=encode_place(place),
    )


async def post_entity(visit: Visit) -> Response:
    """Make an entity by hand, or add notes to the one of that name."""
    form = await visit.form(NewEntityForm)
    project = await visit.dependency(Projects).named_or_own(visit.principal, form.project, at="$.project")
    name = EntityName(form.type, form.name, form.notes)
    async with visit.tenant() as conn:
        entity, is_new = await entities.make_entity(conn, visit.principal, project.id, name)
    return visit.redirect(f"/ui/graph/{entity.id}", "The entity is made." if is_new else "It was there already.")


async def get_entity(visit: Visit) -> Response:
    """One entity: its notes and other names, what is mentioned together with it, its relations, and where it is mentioned."""
    cursor = visit.query(MentionFilters).cursor
    name = visit.parameter("entity")
    async with visit.tenant() as conn:
        details = await entities.read_entity(conn, visit.principal, name, depth=1)
        entity, mentions, next_cursor = await entities.read_mentions(conn, visit.principal, name, cursor=cursor, limit=_PAGE)
        names = await names_of_projects(conn, visit.principal, [entity.project_id])
        near = [entity, *details.neighbours[: MAX_DRAWN - 1]]
        links = await graph.list_links(conn, visit.team_id, [node.id for node in near])
    return visit.render(
        "entity.html",
        title=one_line(entity.name, 60),
        entity=entity,
        details=details,
        path=f"/ui/graph/{entity.id}",
        drawing=_draw(near, links),
        mentions=[(mention, one_line(mention.title or mention.beginning, TITLE_CHARS)) for mention in mentions],
        project=names.get(entity.project_id, ""),
        types=TYPES,
        next_cursor=next_cursor,
        cursor=cursor,
    )


def _draw(nodes: Sequence[Entity | Neighbour], links: Sequence[EntityLink]) -> GraphView | None:
    """The entities with their links; None where there is nothing between them to be seen."""
    return draw_graph([reshape(node, GraphNode) for node in nodes], links) if links else None


async def post_notes(visit: Visit) -> Response:
    """Change the notes of an entity."""
    form = await visit.form(NotesForm)
    async with visit.tenant() as conn:
        entity = await entities.change_entity(
            conn, visit.principal, visit.parameter("entity"), new_name=None, notes=form.notes, sets_notes=True
        )
    return visit.redirect(f"/ui/graph/{entity.id}", "The notes are changed.")


async def post_merge(visit: Visit) -> Response:
    """Make the entity another name of a second one of its project."""
    form = await visit.form(OtherEntityForm)
    async with visit.tenant() as conn:
        entity = await entities.find_entity(conn, visit.principal, visit.parameter("entity"))
        other = await entities.find_named(conn, visit.principal, entity.project_id, EntityName(form.type, form.name))
        target = await entities.merge_entities(conn, visit.principal, str(entity.id), str(other.id))
    return visit.redirect(f"/ui/graph/{target.id}", "It is another name of this one now.")


async def post_separate(visit: Visit) -> Response:
    """Make another name an entity again."""
    async with visit.tenant() as conn:
        entity = await entities.separate_entity(conn, visit.principal, visit.parameter("entity"))
    return visit.redirect(f"/ui/graph/{entity.id}", "It is an entity of its own again.")


async def post_relation(visit: Visit) -> Response:
    """Say how the entity has to do with another one of its project."""
    form = await visit.form(OtherEntityForm)
    async with visit.tenant() as conn:
        entity = await entities.find_entity(conn, visit.principal, visit.parameter("entity"))
        other = await entities.find_named(conn, visit.principal, entity.project_id, EntityName(form.type, form.name))
        await entities.relate_entities(conn, visit.principal, str(entity.id), str(other.id), form.label or "", [])
    return visit.redirect(f"/ui/graph/{entity.id}", "They are related.")


async def post_unrelate(visit: Visit) -> Response:
    """Delete a relation of the entity."""
    async with visit.tenant() as conn:
        await entities.unrelate_entities(conn, visit.principal, visit.parameter("relation"))
    return visit.redirect(f"/ui/graph/{visit.parameter('entity')}", "The relation is deleted.")


async def post_delete(visit: Visit) -> Response:
    """Delete an entity with its other names, mentions and relations."""
    async with visit.tenant() as conn:
        await entities.delete_entity(conn, visit.principal, visit.parameter("entity"))
    return visit.redirect("/ui/graph", "The entity is deleted.")


_WRITE = "observations:write"
routes = [
    Page("GET", "/ui/graph", get_graph, scope="observations:read"),
    Page("POST", "/ui/graph", post_entity, scope=_WRITE, form_of=get_graph),
    Page("GET", "/ui/graph/{entity}", get_entity, scope="observations:read"),
    Page("POST", "/ui/graph/{entity}/notes", post_notes, scope=_WRITE, form_of=get_entity),
    Page("POST", "/ui/graph/{entity}/merge", post_merge, scope=_WRITE, form_of=get_entity),
    Page("POST", "/ui/graph/{entity}/separate", post_separate, scope=_WRITE),
    Page("POST", "/ui/graph/{entity}/relations", post_relation, scope=_WRITE, form_of=get_entity),
    Page("POST", "/ui/graph/{entity}/relations/{relation}/delete", post_unrelate, scope=_WRITE),
    Page("POST", "/ui/graph/{entity}/delete", post_delete, scope=_WRITE),
]
