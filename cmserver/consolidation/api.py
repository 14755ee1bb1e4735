"""Writing observations, their history, merges, relations and suggestions over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from cmserver.access import verb
from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.access.verb import VerbCall
from cmserver.base.db import Db
from cmserver.base.http import operation, wire
from cmserver.base.http.operation import post
from cmserver.base.http.wire import Dependencies, answer, body, caller, convert, db, wants_text
from cmserver.base.ids import require_id
from cmserver.base.json_text import decode_json
from cmserver.base.structs import reshape
from cmserver.consolidation import relate, review
from cmserver.consolidation.combine import merge_observations, undo
from cmserver.consolidation.history import read_history
from cmserver.consolidation.store import StoreResult, store_observations
from cmserver.consolidation.wire import (
    DeletedRelationOut,
    ForgottenActOut,
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
from cmserver.personal.keep import write_personal
from cmserver.personal.wire import OnePersonalObservationOut, personal_out
from cmserver.sessions.turns.wire import turn_out


@verb.post("/v1/observations", "observations:write")
async def post_observation(call: VerbCall, given: ObservationIn) -> tuple[StoredObservationOut | OnePersonalObservationOut, bool]:
    """Write an observation by hand; nothing is generated from it. 200 when one that was there says it already.

    With `scope: "user"` it is the caller's alone, and the answer is `personal`. NO_PERSON for a key that is nobody's.
    """
    if given.scope == "user":
        kept, is_new = await write_personal(call.dependency(Db), call.principal, given, size_bytes=call.size_bytes)
        return OnePersonalObservationOut(personal=personal_out(kept)), is_new
    (result,) = await _store(call.dependencies, call.principal, [given], call.size_bytes)
    return stored_out(result), result.action in {"created", "held"}


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
    results = await _store(request.scope["dependencies"], principal, new, len(raw), is_batch=True)
    return answer(
        NewObservationsOut(
            observations=[observation_out(result.observation) for result in results], results=[*map(store_result_out, results)]
        ),
        201,
    )


async def _store(
    dependencies: Dependencies, principal: Principal, new: Sequence[ObservationIn], size_bytes: int, *, is_batch: bool = False
) -> list[StoreResult]:
    return await store_observations(
        dependencies.get(Db),
        dependencies.get(Projects),
        dependencies.get(QueryEmbedder),
        principal,
        new,
        size_bytes=size_bytes,
        is_batch=is_batch,
    )


@verb.get("/v1/observations/{id}/history", "observations:read")
async def get_history(call: VerbCall, given: HistoryQuery) -> HistoryOut:
    """The changes of an observation, the last first, also of one that is not shown any more."""
    async with call.read() as conn:
        history = await read_history(conn, call.principal, given.id, given.limit)
    return HistoryOut(
        number=history.observation.number,
        version=history.observation.version,
        superseded_by=history.superseded_by,
        versions=[version_out(version, history.acts[version.version]) for version in history.versions],
        forgotten=[reshape(row, ForgottenActOut) for row in history.forgotten],
    )


@verb.post("/v1/observations/{id}/merge", "observations:write")
async def post_merge(call: VerbCall, given: MergeIn) -> MergeOut:
    """Merge up to 50 observations of the same project into this one, which keeps every fact; they are shown no longer."""
    principal = call.principal
    wording = await call.dependency(MergeWriter).word_merge(principal, given.id, given.sources, given.strategy)
    return merge_out(
        await call.write(lambda conn: merge_observations(conn, principal, given.id, given.sources, given.strategy, wording))
    )


@verb.post("/v1/observations/{id}/undo", "observations:write")
async def post_undo(call: VerbCall, given: str) -> UndoOut:
    """Undo the last change of an observation: a correction, a merge, or the end of its time."""
    undone = await call.write(lambda conn: undo(conn, call.principal, given))
    return UndoOut(observation=observation_out(undone.observation), restored=undone.restored)


@verb.post("/v1/relations", "observations:write", status=201)
async def post_relation(call: VerbCall, given: RelationIn) -> OneRelationOut:
    """Relate two observations."""
    ends, relationship = (str(given.from_), str(given.to)), given.relationship
    relation = await call.write(
        lambda conn: relate.relate(conn, call.principal, *ends, relationship, given.strength, given.context)
    )
    return OneRelationOut(relation=reshape(relation, RelationOut))


@verb.delete("/v1/relations/{id}", "observations:write")
async def delete_relation(call: VerbCall, given: str) -> DeletedRelationOut:
    """Delete a relation that was made by a caller."""
    relation_id = require_id(given, relate.NO_SUCH)
    return DeletedRelationOut(id=await call.write(lambda conn: relate.unrelate(conn, call.principal, relation_id)))


@verb.get("/v1/observations/{id}/related", "observations:read")
async def get_related(call: VerbCall, given: RelationsQuery) -> RelatedObservationsOut:
    """What is related to an observation, over up to three relations, both ways."""
    types = [word.strip() for word in given.type.split(",")] if given.type else None
    async with call.read() as conn:
        related = await relate.read_related(conn, call.principal, given.id, relationships=types, depth=given.depth)
    return RelatedObservationsOut(
        observations=[*map(observation_out, related.observations)],
        relations=[reshape(row, RelationOut) for row in related.relations],
    )


@verb.get("/v1/suggestions", "observations:read")
async def get_suggestions(call: VerbCall, given: SuggestionsQuery) -> SuggestionsOut:
    """A page of pairs that seem to say the same, or to contradict each other, newest first."""
    project_id = await call.dependency(Projects).within(call.principal, given.project)
    async with call.read() as conn:
        page, next_cursor = await review.list_suggestions(
            conn,
            call.principal,
            project_id=project_id,
            status=given.status,
            contradictions=given.contradictions,
            limit=given.limit,
            cursor=given.cursor,
        )
    return SuggestionsOut(suggestions=[reshape(row, SuggestionOut) for row in page], next_cursor=next_cursor)


@verb.patch("/v1/suggestions/{id}", "observations:write")
async def patch_suggestion(call: VerbCall, given: ResolutionIn) -> ResolvedSuggestionOut:
    """Accept a suggestion, which merges the newer observation into the older or as `into` says, dismiss it, or reopen it."""
    suggestion_id, status, strategy, into = require_id(given.id, review.NO_SUCH), given.status, given.strategy, given.into
    if status == "open":
        return resolved_out(await call.write(lambda conn: review.reopen_suggestion(conn, call.principal, suggestion_id)), None)
    wording = None
    if status == "accepted":
        wording = await call.dependency(MergeWriter).word_suggestion(call.principal, suggestion_id, strategy, into)
    return resolved_out(
        *await call.write(
            lambda conn: review.resolve_suggestion(conn, call.principal, suggestion_id, status, strategy, wording, into)
        )
    )


_PLAIN = operation.TextAnswer("text/plain", "As an agent reads them, when only text/plain is accepted.")

routes = [
    post_observation,
    post(
        "/v1/observations/batch",
        post_observations_batch,
        "",
        {200: (BatchReadOut, _PLAIN), 201: NewObservationsOut},
        body=BatchReadIn | Annotated[list[ObservationIn], Meta(min_length=1, max_length=BATCH_MOST)],
    ),
    get_history,
    post_merge,
    post_undo,
    get_related,
    post_relation,
    delete_relation,
    get_suggestions,
    patch_suggestion,
]
