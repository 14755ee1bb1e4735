"""Merges, relations and suggestions of Contextify."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from cmserver.base.http.operation import get, post, put
from cmserver.base.http.wire import answer, path_id, query, read
from cmserver.consolidation.review import NO_SUCH
from cmserver.doors.contextify.frame import admit, contextify, memories
from cmserver.memories import consolidate
from cmserver.memories.memories import memory_id
from cmserver.memories.wire import (
    DuplicatesQuery,
    MemoryConsolidationIn,
    MemoryMergeIn,
    MemoryRecordOut,
    MemoryRelationIn,
    MemoryRelationOut,
    MemoryStatusOut,
    MemorySuggestionsOut,
    MemorySuggestionsQuery,
    MergeLogEntryOut,
    MergeLogQuery,
    MergeResultsOut,
    RelatedMemoriesOut,
    SuggestionStatusIn,
    page_size,
)


async def get_duplicates(request: Request) -> Response:
    """Pairs of memories that may say the same and wait for a decision, the most similar first."""
    caller = await admit(request)
    filters = query(request, DuplicatesQuery)
    return answer(
        await consolidate.list_suggestions(
            memories(request), caller, project=filters.project_id, status="pending", limit=page_size(filters.limit)
        )
    )


async def post_consolidate(request: Request) -> Response:
    """Several merges; one that fails leaves the others."""
    caller = await admit(request)
    request_in = await read(request, MemoryConsolidationIn)
    return answer(MergeResultsOut(results=await consolidate.merge_several(memories(request), caller, request_in)))


async def post_merge(request: Request) -> Response:
    """Merge memories of the same project into this one; they are shown no longer."""
    caller = await admit(request)
    target_id = memory_id(request.path_params["id"])
    merge = await read(request, MemoryMergeIn)
    memory, _ = await consolidate.merge_memories(memories(request), caller, target_id, merge.source_ids, merge.strategy)
    return answer(memory)


async def get_related(request: Request) -> Response:
    """What is related to a memory, both ways, the strongest relation first."""
    caller = await admit(request)
    return answer(await consolidate.read_related(memories(request), caller, memory_id(request.path_params["id"])))


async def post_relationship(request: Request) -> Response:
    """Relate two memories; the same relation again gets the new strength and context."""
    caller = await admit(request)
    relation = await read(request, MemoryRelationIn)
    return answer(await consolidate.relate_memories(memories(request), caller, relation), 201)


async def get_suggestions(request: Request) -> Response:
    """Suggestions to merge, the most similar first."""
    caller = await admit(request)
    filters = query(request, MemorySuggestionsQuery)
    return answer(
        await consolidate.list_suggestions(
            memories(request),
            caller,
            project=filters.project_id,
            status=filters.status,
            limit=page_size(filters.limit),
            offset=filters.offset,
        )
    )


async def put_suggestion(request: Request) -> Response:
    """Accept a suggestion, which merges the newer memory into the older one, or dismiss it for good."""
    caller = await admit(request)
    status = (await read(request, SuggestionStatusIn)).status
    suggestion_id = path_id(request, NO_SUCH)
    await consolidate.resolve(memories(request), caller, suggestion_id, is_accepted=status == "accepted")
    return answer(MemoryStatusOut(status=status, id=suggestion_id))


async def get_log(request: Request) -> Response:
    """Merges, the last first, with the texts of the target before and after."""
    caller = await admit(request)
    filters = query(request, MergeLogQuery)
    return answer(
        await consolidate.list_merge_log(
            memories(request), caller, target_id=filters.target_id, limit=page_size(filters.limit), offset=filters.offset
        )
    )


routes = [
    get(
        "/api/v1/memories/duplicates", contextify(get_duplicates), "observations:read", MemorySuggestionsOut, query=DuplicatesQuery
    ),
    post(
        "/api/v1/memories/consolidate",
        contextify(post_consolidate),
        "observations:write",
        MergeResultsOut,
        body=MemoryConsolidationIn,
    ),
    post("/api/v1/memories/{id}/merge", contextify(post_merge), "observations:write", MemoryRecordOut, body=MemoryMergeIn),
    get("/api/v1/memories/{id}/related", contextify(get_related), "observations:read", RelatedMemoriesOut),
    post(
        "/api/v1/relationships",
        contextify(post_relationship),
        "observations:write",
        MemoryRelationOut,
        status=201,
        body=MemoryRelationIn,
    ),
    get(
        "/api/v1/consolidation/suggestions",
        contextify(get_suggestions),
        "observations:read",
        MemorySuggestionsOut,
        query=MemorySuggestionsQuery,
    ),
    put(
        "/api/v1/consolidation/suggestions/{id}",
        contextify(put_suggestion),
        "observations:write",
        MemoryStatusOut,
        body=SuggestionStatusIn,
    ),
    get("/api/v1/consolidation/log", contextify(get_log), "observations:read", list[MergeLogEntryOut], query=MergeLogQuery),
]
