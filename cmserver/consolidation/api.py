"""Writing observations, their history, merges, relations and suggestions over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.http import operation, wire
from cmserver.base.http.operation import delete, get, patch, post
from cmserver.base.http.wire import answer, body, caller, convert, db, dependency, path_id, query, read, read_sized, wants_text
from cmserver.base.json_text import decode_json
from cmserver.base.structs import reshape
from cmserver.consolidation import relate, review
from cmserver.consolidation.combine import merge_observations, undo
from cmserver.consolidation.history import read_history
from cmserver.consolidation.store import StoreResult, store_observations
from cmserver.consolidation.wire import (
    DeletedRelationOut,
    HistoryOut,
    HistoryQuery,
    MergeIn,
    MergeOut,
    NewObservationsOut,
    OneRelationOut,
    RelatedObservationsOut,
    RelationIn,
    RelationOut,
    RelationsQuery,
    ResolutionIn,
    ResolvedSuggestionOut,
    StoredObservationOut,
    SuggestionOut,
    SuggestionsOut,
    SuggestionsQuery,
    UndoOut,
    merge_out,
    resolved_out,
    store_result_out,
    stored_out,
    version_out,
)
from cmserver.consolidation.wording import MergeWriter
from cmserver.embeddings.query_embedder import QueryEmbedder
from cmserver.observations.plain import render_observations
from cmserver.observations.read import NO_SUCH, read_batch
from cmserver.observations.wire import (
    BATCH_MOST,
    BatchReadIn,
    BatchReadOut,
    GoneObservationOut,
    ObservationIn,
    observation_out,
)
from cmserver.sessions.turns.wire import turn_out


async def post_observation(request: Request) -> Response:
    """Write an observation by hand; nothing is generated from it. 200 when one that was there says it already."""
    principal = await caller(request, Principal)
    new, size_bytes = await read_sized(request, ObservationIn)
    (result,) = await _store(request, principal, [new], size_bytes)
    return answer(stored_out(result), 201 if result.action == "created" else 200)


async def post_observations_batch(request: Request) -> Response:
    """Read up to 100 observations at once, or write up to 500 by hand, all or none.

    An object with `ids` reads, with the scope observations:read; as an agent reads them when only text/plain is accepted. A list
    writes, with the scope observations:write.
    """
    principal = await caller(request, Principal)
    raw = await body(request)
    value = decode_json(raw or b"{}")
    reads = isinstance(value, dict) and "ids" in value
    return await (_read_batch if reads else _write_batch)(request, principal, raw)


async def _read_batch(request: Request, principal: Principal, raw: bytes) -> Response:
    principal.require("observations:read")
    names = convert(decode_json(raw), BatchReadIn).ids
    async with db(request).tenant(principal.team_id) as conn:
        batch = await read_batch(conn, principal, names)
    if wants_text(request):
        return PlainTextResponse(render_observations(batch.observations) if batch.observations else f"{NO_SUCH}\n")
    gone = [reshape(row, GoneObservationOut) for row in batch.gone]
    turns = [*map(turn_out, batch.turns)]
    return answer(
        BatchReadOut(observations=[*map(observation_out, batch.observations)], missing=batch.missing, gone=gone, turns=turns)
    )


async def _write_batch(request: Request, principal: Principal, raw: bytes) -> Response:
    """Store the observations of an array; all or none."""
    principal.require("observations:write")
    new = wire.batch(raw, ObservationIn, max_items=BATCH_MOST, noun="observations")
    results = await _store(request, principal, new, len(raw), is_batch=True)
    return answer(
        NewObservationsOut(
            observations=[observation_out(result.observation) for result in results], results=[*map(store_result_out, results)]
        ),
        201,
    )


async def _store(
    request: Request, principal: Principal, new: Sequence[ObservationIn], size_bytes: int, *, is_batch: bool = False
) -> list[StoreResult]:
    return await store_observations(
        db(request),
        dependency(request, Projects),
        dependency(request, QueryEmbedder),
        principal,
        new,
        size_bytes=size_bytes,
        is_batch=is_batch,
    )


async def get_history(request: Request) -> Response:
    """The changes of an observation, the last first, also of one that is not shown any more."""
    principal = await caller(request, Principal)
    limit = query(request, HistoryQuery).limit
    async with db(request).tenant(principal.team_id) as conn:
        history = await read_history(conn, principal, str(request.path_params["id"]), limit)
    return answer(
        HistoryOut(
            number=history.observation.number,
            version=history.observation.version,
            superseded_by=history.superseded_by,
            versions=[*map(version_out, history.versions)],
        )
    )


async def post_merge(request: Request) -> Response:
    """Merge up to 50 observations of the same project into this one, which keeps every fact; they are shown no longer."""
    principal = await caller(request, Principal)
    wanted = await read(request, MergeIn)
    name = str(request.path_params["id"])
    wording = await dependency(request, MergeWriter).word_merge(principal, name, wanted.sources, wanted.strategy)
    merge = await db(request).in_tenant(
        principal.team_id, lambda conn: merge_observations(conn, principal, name, wanted.sources, wanted.strategy, wording)
    )
    return answer(merge_out(merge))


async def post_undo(request: Request) -> Response:
    """Undo the last change of an observation: a correction, a merge, or the end of its time."""
    principal = await caller(request, Principal)
    name = str(request.path_params["id"])
    undone = await db(request).in_tenant(principal.team_id, lambda conn: undo(conn, principal, name))
    return answer(UndoOut(observation=observation_out(undone.observation), restored=undone.restored))


async def post_relation(request: Request) -> Response:
    """Relate two observations."""
    principal = await caller(request, Principal)
    new = await read(request, RelationIn)
    relation = await db(request).in_tenant(
        principal.team_id,
        lambda conn: relate.relate(conn, principal, str(new.from_), str(new.to), new.relationship, new.strength, new.context),
    )
    return answer(OneRelationOut(relation=reshape(relation, RelationOut)), 201)


async def delete_relation(request: Request) -> Response:
    """Delete a relation that was made by a caller."""
    principal = await caller(request, Principal)
    relation_id = path_id(request, relate.NO_SUCH)
    deleted = await db(request).in_tenant(principal.team_id, lambda conn: relate.unrelate(conn, principal, relation_id))
    return answer(DeletedRelationOut(id=deleted))


async def get_related(request: Request) -> Response:
    """What is related to an observation, over up to three relations, both ways."""
    principal = await caller(request, Principal)
    filters = query(request, RelationsQuery)
    types = [word.strip() for word in filters.type.split(",")] if filters.type else None
    async with db(request).tenant(principal.team_id) as conn:
        related = await relate.read_related(
            conn, principal, str(request.path_params["id"]), relationships=types, depth=filters.depth
        )
    return answer(
        RelatedObservationsOut(
            observations=[*map(observation_out, related.observations)],
            relations=[reshape(row, RelationOut) for row in related.relations],
        )
    )


async def get_suggestions(request: Request) -> Response:
    """A page of pairs that seem to say the same, or to contradict each other, newest first."""
    principal = await caller(request, Principal)
    filters = query(request, SuggestionsQuery)
    project_id = await dependency(request, Projects).within(principal, filters.project)
    async with db(request).tenant(principal.team_id) as conn:
        page, next_cursor = await review.list_suggestions(
            conn,
            principal,
            project_id=project_id,
            status=filters.status,
            contradictions=filters.contradictions,
            limit=filters.limit,
            cursor=filters.cursor,
        )
    return answer(SuggestionsOut(suggestions=[reshape(row, SuggestionOut) for row in page], next_cursor=next_cursor))


async def patch_suggestion(request: Request) -> Response:
    """Accept a suggestion, which merges the newer observation into the older or as `into` says, dismiss it, or reopen it."""
    principal = await caller(request, Principal)
    resolution = await read(request, ResolutionIn)
    suggestion_id = path_id(request, review.NO_SUCH)
    status = resolution.status
    if status == "open":
        reopened = await db(request).in_tenant(
            principal.team_id, lambda conn: review.reopen_suggestion(conn, principal, suggestion_id)
        )
        return answer(resolved_out(reopened, None))
    wording = None
    if status == "accepted":
        wording = await dependency(request, MergeWriter).word_suggestion(
            principal, suggestion_id, resolution.strategy, resolution.into
        )
    suggestion, merge = await db(request).in_tenant(
        principal.team_id,
        lambda conn: review.resolve_suggestion(
            conn, principal, suggestion_id, status, resolution.strategy, wording, resolution.into
        ),
    )
    return answer(resolved_out(suggestion, merge))


_PLAIN = operation.TextAnswer("text/plain", "As an agent reads them, when only text/plain is accepted.")

routes = [
    post(
        "/v1/observations",
        post_observation,
        "observations:write",
        {200: StoredObservationOut, 201: StoredObservationOut},
        body=ObservationIn,
    ),
    post(
        "/v1/observations/batch",
        post_observations_batch,
        "",
        {200: (BatchReadOut, _PLAIN), 201: NewObservationsOut},
        body=BatchReadIn | Annotated[list[ObservationIn], Meta(min_length=1, max_length=BATCH_MOST)],
    ),
    get("/v1/observations/{id}/history", get_history, "observations:read", HistoryOut, query=HistoryQuery),
    post("/v1/observations/{id}/merge", post_merge, "observations:write", MergeOut, body=MergeIn),
    post("/v1/observations/{id}/undo", post_undo, "observations:write", UndoOut),
    get("/v1/observations/{id}/related", get_related, "observations:read", RelatedObservationsOut, query=RelationsQuery),
    post("/v1/relations", post_relation, "observations:write", OneRelationOut, status=201, body=RelationIn),
    delete("/v1/relations/{id}", delete_relation, "observations:write", DeletedRelationOut),
    get("/v1/suggestions", get_suggestions, "observations:read", SuggestionsOut, query=SuggestionsQuery),
    patch("/v1/suggestions/{id}", patch_suggestion, "observations:write", ResolvedSuggestionOut, body=ResolutionIn),
]
