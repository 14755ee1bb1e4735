"""Memories of Contextify: stored, read, changed, found."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from cmserver.base.http.operation import delete, get, post, put
from cmserver.base.http.wire import answer, read, read_sized
from cmserver.doors.contextify.frame import admit, contextify, memories
from cmserver.memories.change import change_memory, delete_memory, promote_memory, read_memory
from cmserver.memories.find import read_context, search_memories
from cmserver.memories.memories import memory_id
from cmserver.memories.store import store_memory
from cmserver.memories.wire import (
    MemoryChangeIn,
    MemoryHitOut,
    MemoryRecordOut,
    MemorySearchIn,
    MemoryStatusOut,
    NewMemoryIn,
    NewMemoryOut,
)


async def post_memory(request: Request) -> Response:
    """Store a memory, or merge it into the one that says the same. An unknown project is made."""
    caller = await admit(request)
    new, size_bytes = await read_sized(request, NewMemoryIn)
    return answer(await store_memory(memories(request), caller.sized(size_bytes), new), 201)


async def get_memory(request: Request) -> Response:
    """One memory, also one that was merged into another. Reading extends the life of one that expires."""
    caller = await admit(request)
    return answer(await read_memory(memories(request), caller, memory_id(request.path_params["id"])))


async def put_memory(request: Request) -> Response:
    """Change a memory; with `version`, only if it still has that version."""
    caller = await admit(request)
    id_ = memory_id(request.path_params["id"])
    change, size_bytes = await read_sized(request, MemoryChangeIn)
    return answer(await change_memory(memories(request), caller.sized(size_bytes), id_, change))


async def delete_memory_by_id(request: Request) -> Response:
    """Delete a memory with what was merged into it."""
    caller = await admit(request)
    id_ = memory_id(request.path_params["id"])
    await delete_memory(memories(request), caller, id_)
    return answer(MemoryStatusOut(status="deleted", id=id_))


async def post_promote(request: Request) -> Response:
    """Make a memory permanent."""
    caller = await admit(request)
    promoted = await promote_memory(memories(request), caller, memory_id(request.path_params["id"]))
    return answer(MemoryStatusOut(status="promoted", id=promoted.id))


async def post_search(request: Request) -> Response:
    """Search memories; with the query `*`, list them. What is shown counts as read."""
    caller = await admit(request)
    search = await read(request, MemorySearchIn)
    return answer(await search_memories(memories(request), caller, search.query, search))


async def post_context(request: Request) -> Response:
    """The most important memories of a project and of what the team shares, up to 50.

    Slashes may be sent as they are, or as %2F.
    """
    caller = await admit(request)
    return answer(await read_context(memories(request), caller, request.path_params["project"]))


routes = [
    post("/api/v1/memories", contextify(post_memory), "observations:write", NewMemoryOut, status=201, body=NewMemoryIn),
    post("/api/v1/memories/search", contextify(post_search), "observations:read", list[MemoryHitOut], body=MemorySearchIn),
    post("/api/v1/memories/recall", contextify(post_search), "observations:read", list[MemoryHitOut], body=MemorySearchIn),
    post("/api/v1/context/{project:path}", contextify(post_context), "observations:read", list[MemoryRecordOut]),
    get("/api/v1/memories/{id}", contextify(get_memory), "observations:read", MemoryRecordOut),
    put("/api/v1/memories/{id}", contextify(put_memory), "observations:write", MemoryRecordOut, body=MemoryChangeIn),
    delete("/api/v1/memories/{id}", contextify(delete_memory_by_id), "observations:write", MemoryStatusOut),
    post("/api/v1/memories/{id}/promote", contextify(post_promote), "observations:write", MemoryStatusOut),
]
