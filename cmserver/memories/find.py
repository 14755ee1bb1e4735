"""Finds memories: by a query, by filters, for the context of a project, and near to another."""

from __future__ import annotations

import time
from typing import Literal
from uuid import UUID

import msgspec

from cmserver.base.errors import Invalid
from cmserver.base.sql import Conn
from cmserver.base.structs import reshape
from cmserver.base.text import cut_query
from cmserver.consolidation.comparison import repository as comparison
from cmserver.consolidation.marks import read_marks
from cmserver.consolidation.similarity import lexical_similarity
from cmserver.consolidation.store import compared_text
from cmserver.embeddings.model import ObservationText, QueryVector, document_text
from cmserver.memories import repository, wire
from cmserver.memories.memories import Memories, MemoryCaller, memories_out, record
from cmserver.memories.model import MemoryFilters, TelemetryEvent, labels_of
from cmserver.observations import repository as observations
from cmserver.observations.model import TYPE_FAMILIES, ManualObservation, Observation
from cmserver.observations.read import audit_read, find_observation
from cmserver.recall.search.model import OBSERVATION_KINDS, Filters, Hit, MatchType, SearchRequest
from cmserver.recall.search.search import find_page
from cmserver.redaction.redact import redact

ANYTHING = "*"
"""A query that lists what the filters leave."""
CONTEXT_MEMORIES = 50
_QUERY_CHARS = 500
"""So much of a query is kept for the funnel."""
_CANDIDATES = 50
_MATCHES: dict[MatchType, Literal["keyword", "semantic", "hybrid"]] = {
    "lexical": "keyword",
    "semantic": "semantic",
    "both": "hybrid",
}


async def search_memories(
    memories: Memories, caller: MemoryCaller, query: str, filters: wire.MemoryFiltersIn
) -> list[wire.MemoryHitOut]:
    """The best results first; with a query of `*` or without words, all that the filters leave, newest first.

    Without an embedder, or while it does not answer, only words count. What is shown counts as read. An unknown project has what
    the team shares.
    """
    started = time.monotonic()
    limit, offset = wire.page_size(filters.limit), filters.offset or 0
    project_ids = await memories.projects_to_read(caller.principal, filters.project_id)
    conditions = _conditions(filters)
    query = cut_query(query).strip()
    if query in {"", ANYTHING}:
        async with memories.db.tenant(caller.team_id) as conn:
            rows = await repository.listed(conn, caller.team_id, project_ids, conditions, limit=limit, offset=offset)
            await audit_read(conn, caller.principal, _only(project_ids), "list", rows)
            outs = await memories_out(conn, caller.principal, rows)
        return [wire.MemoryHitOut(memory=out, score=0.0, match_type="list") for out in outs]
    vector = await memories.embedder.embed(query)
    request = SearchRequest(
        query=query,
        project_ids=project_ids,
        filters=Filters(kinds=OBSERVATION_KINDS, **msgspec.structs.asdict(conditions)),
        limit=offset + limit,
    )

    async def find(conn: Conn) -> list[wire.MemoryHitOut]:
        page = await find_page(conn, caller.principal, request, memories.ranking, vector)
        hits = page.hits[offset:]
        outs = await _read(conn, caller, _only(project_ids), hits)
        await _record_search(conn, caller, filters, query, project_ids, len(outs), started)
        return outs

    return await memories.db.in_tenant(caller.team_id, find)


async def _read(conn: Conn, caller: MemoryCaller, project_id: UUID | None, hits: list[Hit]) -> list[wire.MemoryHitOut]:
    """The results as they are after they were read, which extends the lives of those that expire."""
    rows = [hit.observation for hit in hits if hit.observation]
    await audit_read(conn, caller.principal, project_id, "search.full", rows)
    expiring = {row.id for row in rows if row.expires_at is not None}
    now = {row.id: row for row in await observations.by_ids(conn, caller.team_id, list(expiring))} if expiring else {}
    outs = await memories_out(conn, caller.principal, [now.get(row.id, row) for row in rows])
    return [
        wire.MemoryHitOut(memory=out, score=round(hit.score, 4), match_type=_MATCHES[hit.match_type])
        for hit, out in zip([hit for hit in hits if hit.observation], outs, strict=True)
    ]


async def _record_search(
    conn: Conn,
    caller: MemoryCaller,
    filters: wire.MemoryFiltersIn,
    query: str,
    project_ids: list[UUID] | None,
    hit_count: int,
    started: float,
) -> None:
    """One event for the search, and one more if something was found. Its words are kept only with a project."""
    project_id = _only(project_ids) or caller.principal.project_id
    event = TelemetryEvent(
        event_type="recall_attempt",
        project_id=project_id,
        agent=filters.agent_source or None,
        hit_count=hit_count,
        latency_ms=int((time.monotonic() - started) * 1000),
        query_text=redact(query)[0][:_QUERY_CHARS] if project_id else None,
    )
    hit = [msgspec.structs.replace(event, event_type="recall_hit")] if hit_count else []
    await record(conn, caller, [event, *hit])


async def read_context(memories: Memories, caller: MemoryCaller, project: str) -> list[wire.MemoryRecordOut]:
    """The most important memories of the project and of what the team shares, up to 50. They do not count as read."""
    if not project.strip():
        raise Invalid.at("$.project_id", "project_id is required.")
    project_ids = await memories.projects_to_read(caller.principal, project)
    async with memories.db.tenant(caller.team_id) as conn:
        rows = await repository.most_important(conn, caller.team_id, project_ids or [], CONTEXT_MEMORIES)
        await audit_read(conn, caller.principal, _only(project_ids), "context", rows)
        return await memories_out(conn, caller.principal, rows)


async def find_similar(
    memories: Memories, caller: MemoryCaller, memory_id: UUID, *, threshold: float, limit: int
) -> list[wire.SimilarMemoryOut]:
    """The memories of the same project, scope and type that are nearest to it, without itself: by meaning, else by words."""
    async with memories.db.tenant(caller.team_id) as conn:
        observation = await find_observation(conn, caller.principal, str(memory_id))
    text = reshape(observation, ObservationText, observation_id=observation.id)
    vectors = await memories.embedder.embed_documents([document_text(text)])
    async with memories.db.tenant(caller.team_id) as conn:
        near = await _nearest(conn, caller, observation, vectors[0] if vectors else None)
        near = [hit for hit in near if hit[1] >= threshold][:limit]
        await audit_read(conn, caller.principal, observation.project_id, "search.full", [row for row, *_ in near])
        outs = await memories_out(conn, caller.principal, [row for row, *_ in near])
    return [
        wire.SimilarMemoryOut(memory=out, similarity=round(similarity, 4), measured_by=measured_by)
        for out, (_, similarity, measured_by) in zip(outs, near, strict=True)
    ]


async def _nearest(
    conn: Conn, caller: MemoryCaller, observation: Observation, vector: QueryVector | None
) -> list[tuple[Observation, float, Literal["vector", "words"]]]:
    """The nearest others with their similarity, nearest first; by words alone where there is no vector, or not yet."""
    types = next((sorted(family) for family in TYPE_FAMILIES if observation.type in family), [observation.type])
    same = reshape(observation, ManualObservation)
    cosines: dict[UUID, float] = {}
    if vector is not None:
        nearest = await comparison.nearest(conn, caller.team_id, same, types, vector, _CANDIDATES)
        cosines = {row.id: row.cosine for row in nearest}
    text = compared_text(observation)
    ids = cosines.keys() | set(await comparison.by_words(conn, same, types, text, _CANDIDATES))
    marks = read_marks(text)
    near: list[tuple[Observation, float, Literal["vector", "words"]]] = []
    for row in await observations.by_ids(conn, caller.team_id, list(ids - {observation.id})):
        lexical = lexical_similarity(marks, read_marks(compared_text(row)))
        measured_by: Literal["vector", "words"] = "vector" if row.id in cosines else "words"
        near.append((row, min(1.0, max(cosines.get(row.id, 0.0), lexical)), measured_by))
    return sorted(near, key=lambda pair: (-pair[1], pair[0].number))


def _conditions(filters: wire.MemoryFiltersIn) -> MemoryFilters:
    return MemoryFilters(
        labels=labels_of(filters.type) if filters.type else None,
        scope=("team" if filters.scope == "global" else "project") if filters.scope else None,
        authors=[filters.agent_source.lower()] if filters.agent_source else None,
        all_concepts=[tag.strip().lower() for tag in filters.tags if tag.strip()] or None if filters.tags else None,
        min_importance=filters.min_importance or None,
    )


def _only(project_ids: list[UUID] | None) -> UUID | None:
    """The project that a request is about; None for all, and for one that is not known."""
    return project_ids[0] if project_ids and len(project_ids) == 1 else None
