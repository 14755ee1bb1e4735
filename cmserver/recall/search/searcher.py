"""Search for the API and the MCP tools: reads the request, searches, audits what was read, and renders hits for agents."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

import msgspec

from cmserver.access import repository as access
from cmserver.access.model import Principal
from cmserver.access.private import go_inside
from cmserver.access.projects import Projects
from cmserver.base.db import Db
from cmserver.base.errors import Invalid, NotFound
from cmserver.base.ids import from_epoch_ms, from_iso
from cmserver.base.paging import no_cursor
from cmserver.base.sql import Conn
from cmserver.embeddings.query_embedder import QueryEmbedder
from cmserver.graph import repository as graph
from cmserver.graph.model import fold_name
from cmserver.observations.model import Observation
from cmserver.observations.past.model import read_moment
from cmserver.observations.past.travel import VIA, travel
from cmserver.observations.plain import index_line, observation_lines, one_line, turn_line, turn_lines
from cmserver.observations.read import audit_read
from cmserver.personal.keep import search_personal
from cmserver.personal.model import PersonalObservation
from cmserver.recall.file_paths import resolve_paths
from cmserver.recall.search.later import name_changes, name_later, put_ended_last, put_later_first
from cmserver.recall.search.model import OBSERVATION_KINDS, Filters, Hit, PagePosition, Ranking, SearchPage, SearchRequest
from cmserver.recall.search.search import find_page
from cmserver.recall.search.time_cues import find_time_cue
from cmserver.recall.search.wire import TITLE_CHARS, ContextIn, SearchIn, render_parts
from cmserver.sessions.read import audit_prompt_read

_PRIVATE = 3
"""Hits in private sessions that a search of the team's memory shows."""


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """A page of hits. `texts` are what an agent reads of each, in their order.

    `personal` are up to three of the caller's own that have most of the words, behind the first page of a search without filters;
    nothing that is counted of the page counts them. So for `private`, the texts of up to
    three hits in their private sessions.
    """

    page: SearchPage
    texts: list[str]
    personal: list[PersonalObservation]
    private: list[str]
    next_cursor: str | None
    by_meaning: bool


class Searcher:
    """Searches for the API and the MCP tools."""

    def __init__(self, db: Db, projects: Projects, embedder: QueryEmbedder, ranking: Ranking) -> None:
        self._db = db
        self._projects = projects
        self.embedder = embedder
        self._ranking = ranking

    async def search(self, principal: Principal, query: SearchIn, *, full: bool) -> SearchResult:
        """The best first. `full` says whether whole texts are read, or lines. Raises Invalid or NotFound."""
        project_ids = await self._project_ids(principal, query)
        moment = read_moment(query.as_of, query.known_at)
        changes = {name: getattr(query, name) for name in ("meaning_weight", "neighbours") if getattr(query, name) is not None}
        ranking = msgspec.structs.replace(self._ranking, **changes)
        request = SearchRequest(
            query=query.query,
            project_ids=project_ids,
            filters=_filters(query),
            limit=query.limit,
            after=_decode_cursor(query.cursor),
            min_score=query.min_score or 0.0,
            order=query.sort,
            at=moment.earliest if moment else None,
        )
        vector = await self.embedder.embed(query.query, team_id=principal.team_id) if ranking.meaning_weight > 0 else None
        has_filters = request.filters != Filters() or query.files or query.file_prefix or query.entity
        searches_own = query.cursor is None and not has_filters and moment is None
        async with self._db.tenant(principal.team_id, principal.user_id) as conn:
            personal = await search_personal(conn, principal, query.query) if searches_own else []
            request = msgspec.structs.replace(request, filters=await _look_up(conn, principal, request, query))
            if moment is not None:
                await travel(conn, principal.team_id, project_ids, moment)
            page = await find_page(conn, principal, request, ranking, vector)
            hits = await name_later(conn, principal.team_id, page.hits)
            hits = await name_changes(conn, principal.team_id, hits)
            if request.order == "relevance" and find_time_cue(query.query, request.at or datetime.now(UTC)) is None:
                hits = put_later_first(hits)
            if moment is not None and moment.as_of is not None:
                hits = await put_ended_last(conn, principal.team_id, hits)
            if principal.names:
                sources = principal.named([hit.source for hit in hits])
                hits = [msgspec.structs.replace(hit, source=source) for hit, source in zip(hits, sources, strict=True)]
            page = msgspec.structs.replace(page, hits=hits)
            await _audit(conn, principal, project_ids, page, via=VIA if moment else "search.full" if full else "search")
            searched = set[UUID]() if project_ids and len(project_ids) == 1 else {hit.source.project_id for hit in page.hits}
            names = await access.names_of(conn, principal.team_id, searched) if searched else {}
        return SearchResult(
            page=page,
            texts=[_render_hit(hit, names, full=full, explain=query.explain) for hit in page.hits],
            personal=personal,
            private=await self._search_private(principal, query, project_ids, full=full) if searches_own else [],
            next_cursor=base64.urlsafe_b64encode(msgspec.msgpack.encode(page.next)).decode() if page.next else None,
            by_meaning=vector is not None,
        )

    async def _search_private(
        self, principal: Principal, query: SearchIn, project_ids: list[UUID] | None, *, full: bool
    ) -> list[str]:
        """The texts of the best hits in the caller's private sessions; none for whoever has none."""
        if principal.private_id is None or principal.home is not None:
            return []
        inside = go_inside(principal)
        projects: list[str] | None = None
        if project_ids is not None:
            projects = []
            for project_id in project_ids:
                named = await self._projects.find(principal, str(project_id))
                with suppress(NotFound):
                    projects.append(str((await self._projects.find(inside, named.canonical_id)).id))
            if not projects:
                return []
        wanted = msgspec.structs.replace(query, project=None, project_id=None, projects=projects, limit=_PRIVATE)
        return (await self.search(inside, wanted, full=full)).texts

    async def find_best(self, principal: Principal, query: ContextIn) -> SearchPage:
        """The best of one project, to be read whole."""
        project = await self._projects.named_or_own(principal, query.project_id, at="$.projectId")
        request = SearchRequest(
            query=query.query, project_ids=[project.id], filters=Filters(kinds=OBSERVATION_KINDS), limit=query.limit
        )
        vector = await self.embedder.embed(query.query, team_id=principal.team_id)
        async with self._db.tenant(principal.team_id) as conn:
            page = await find_page(conn, principal, request, self._ranking, vector)
            await _audit(conn, principal, [project.id], page, via="context.search")
        return page

    async def _project_ids(self, principal: Principal, query: SearchIn) -> list[UUID] | None:
        """The projects that the query names; None for the whole team."""
        name = query.project_id or query.project
        if query.projects is not None and name is not None:
            raise Invalid.at("$.projects", "Send `projectId` for one project, or `projects` for several.")
        if query.projects is not None:
            projects = [
                await self._projects.named_or_own(principal, name, at=f"$.projects[{place}]")
                for place, name in enumerate(query.projects)
            ]
            return list(dict.fromkeys(project.id for project in projects))
        if name is None and principal.project_id is None:
            return None
        return [(await self._projects.named_or_own(principal, name, at="$.projectId")).id]


async def _look_up(conn: Conn, principal: Principal, request: SearchRequest, query: SearchIn) -> Filters:
    """The request's filters with the entities that have the query's name, of any type, and its files in whatever spelling."""
    resolve = partial(resolve_paths, conn, principal.team_id, request.project_ids)
    return msgspec.structs.replace(
        request.filters,
        files=None if query.files is None else await resolve(query.files),
        file_prefixes=None if query.file_prefix is None else await resolve([query.file_prefix]),
        entity_ids=None
        if query.entity is None
        else [
            entity_id
            for project_id in request.project_ids or [principal.project_id]
            for entity_id in await graph.find_named(conn, principal.team_id, project_id, fold_name(query.entity), None)
        ],
    )


def _filters(query: SearchIn) -> Filters:
    """The filters of the query; Invalid for times that are none, or in the wrong order."""
    since, until = _parse_time(query.since, "$.since"), _parse_time(query.until, "$.until")
    if since is not None and until is not None and since >= until:
        raise Invalid.at("$.until", "`until` must be later than `since`.")
    return Filters(
        kinds=query.kinds,
        types=[*(query.types or []), *([query.type] if isinstance(query.type, str) else query.type or [])] or None,
        concepts=None if query.concepts is None else [concept.lower() for concept in query.concepts],
        session_id=query.session,
        agents=None if query.agents is None else [agent.lower() for agent in query.agents],
        since=since,
        until=until,
        min_importance=query.min_importance,
    )


def _parse_time(value: int | str | None, at: str) -> datetime | None:
    if value is None:
        return None
    try:
        return from_epoch_ms(value) if isinstance(value, int) else from_iso(value)
    except ValueError as error:
        raise Invalid.at(at, "Invalid time: use ISO 8601 (2026-11-22T10:00:00Z) or milliseconds since 1970.") from error


async def _audit(conn: Conn, principal: Principal, project_ids: list[UUID] | None, page: SearchPage, *, via: str) -> None:
    project_id = project_ids[0] if project_ids and len(project_ids) == 1 else None
    await audit_read(conn, principal, project_id, via, [hit.observation for hit in page.hits if hit.observation])
    await audit_prompt_read(conn, principal, project_id, sum(1 for hit in page.hits if hit.turn))


def _render_hit(hit: Hit, names: Mapping[UUID, str], *, full: bool, explain: bool) -> str:
    """A line with the score at its end, and the project's name where several are searched; `full` has all lines of the text."""
    name = names.get(hit.source.project_id)
    parts = f" ({render_parts(hit.parts)})" if explain else ""
    if hit.changed is not None:
        parts += f" (changed in #{hit.changed})"
    if hit.later:
        parts += f" (later: {', '.join(f'#{number}' for number in hit.later)})"
    end = f" {hit.score:.2f}{parts} {one_line(name, TITLE_CHARS)}\n" if name else f" {hit.score:.2f}{parts}\n"
    if isinstance(hit.source, Observation):
        first, *rest = observation_lines(hit.source) if full else [index_line(hit.source)]
    else:
        first, *rest = turn_lines(hit.source) if full else [turn_line(hit.source)]
    return "".join([first, end, *(f"{line}\n" for line in rest)])


def _decode_cursor(cursor: str | None) -> PagePosition | None:
    """The position after which the page begins; None for the first page, Invalid for a text that is no cursor."""
    if cursor is None:
        return None
    try:
        position = msgspec.msgpack.decode(base64.b64decode(cursor, altchars=b"-_", validate=True), type=PagePosition)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise no_cursor() from error
    if not position.is_valid:
        raise no_cursor()
    return position
