"""Merges, relations and suggestions of Contextify."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from cmserver.base.errors import NotFound
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, query, read
from cmserver.base.ids import named_id
from cmserver.compat.api.contextify.frame import admit, contextify, memories
from cmserver.consolidation.review import NO_SUCH
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
    memory, _ = await consolidate.merge_memories(
        memories(request), caller, target_id, merge.source_ids, merge.strategy or "smart_merge"
    )
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
    suggestion_id = named_id(request.path_params["id"])
    status = (await read(request, SuggestionStatusIn)).status
    if suggestion_id is None:
        raise NotFound(NO_SUCH)
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
    Operation(
        "GET",
        "/api/v1/memories/duplicates",
        contextify(get_duplicates),
        scope="observations:read",
        query=DuplicatesQuery,
        answers={200: MemorySuggestionsOut},
    ),
    Operation(
        "POST",
        "/api/v1/memories/consolidate",
        contextify(post_consolidate),
        scope="observations:write",
        body=MemoryConsolidationIn,
        answers={200: MergeResultsOut},
    ),
    Operation(
        "POST",
        "/api/v1/memories/{id}/merge",
        contextify(post_merge),
        scope="observations:write",
        body=MemoryMergeIn,
        answers={200: MemoryRecordOut},
    ),
    Operation(
        "GET",
        "/api/v1/memories/{id}/related",
        contextify(get_related),
        scope="observations:read",
        answers={200: RelatedMemoriesOut},
    ),
    Operation(
        "POST",
        "/api/v1/relationships",
        contextify(post_relationship),
        scope="observations:write",
        body=MemoryRelationIn,
        answers={201: MemoryRelationOut},
    ),
    Operation(
        "GET",
        "/api/v1/consolidation/suggestions",
        contextify(get_suggestions),
        scope="observations:read",
        query=MemorySuggestionsQuery,
        answers={200: MemorySuggestionsOut},
    ),
    Operation(
        "PUT",
        "/api/v1/consolidation/suggestions/{id}",
        contextify(put_suggestion),
        scope="observations:write",
        body=SuggestionStatusIn,
        answers={200: MemoryStatusOut},
    ),
    Operation(
        "GET",
        "/api/v1/consolidation/log",
        contextify(get_log),
        scope="observations:read",
        query=MergeLogQuery,
        answers={200: list[MergeLogEntryOut]},
    ),
]
