"""The tools of Contextify, by its names and with its arguments: the verbs of its routes for a model. They answer in JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, TypeVar
from uuid import UUID

import msgspec
from msgspec import Meta

from cmserver.base.errors import NotFound
from cmserver.base.lookalikes import remove_invisible
from cmserver.base.text import Key, Line
from cmserver.consolidation.model import SOURCES_MOST
from cmserver.doors.mcp.call import Call, Tool, handle
from cmserver.memories import wire as memories_wire
from cmserver.memories.change import change_memory, delete_memory, promote_memory, read_memory
from cmserver.memories.consolidate import list_suggestions, merge_memories, read_related, relate_memories
from cmserver.memories.find import find_similar, read_context, search_memories
from cmserver.memories.memories import Memories, MemoryCaller
from cmserver.memories.store import store_memory
from cmserver.observations.history.model import MergeStrategy
from cmserver.observations.plain import defuse_tags

S = TypeVar("S", bound=msgspec.Struct)
Verb = Callable[[Memories, MemoryCaller, S], Awaitable[str]]

_ENCODER = msgspec.json.Encoder()
_SCOPES = {False: "observations:read", True: "observations:write"}


class MemoryIdArguments(msgspec.Struct, kw_only=True):
    """Which memory."""

    memory_id: UUID


class MemorySearchArguments(memories_wire.MemoryFiltersIn, kw_only=True):
    """Without `query`, what the filters leave, newest first."""

    query: str | None = None


class MemoryChangeArguments(memories_wire.MemoryChangeIn, kw_only=True):
    """Which memory, and what to change of it."""

    memory_id: UUID


class RelatedMemoriesArguments(MemoryIdArguments, kw_only=True):
    """Which memory, and by which relations; by all without."""

    relationship_types: Annotated[list[Line], Meta(max_length=50)] | None = None


class MemoryContextArguments(msgspec.Struct, kw_only=True):
    """Which project."""

    project_id: Key


class MemoryMergeArguments(msgspec.Struct, kw_only=True):
    """What is merged into what."""

    target_id: UUID
    source_ids: Annotated[list[UUID], Meta(min_length=1, max_length=SOURCES_MOST)]
    strategy: MergeStrategy | None = None


class SimilarMemoriesArguments(MemoryIdArguments, kw_only=True):
    """Which memory, how near others must be (0 to 1), and how many of them."""

    threshold: memories_wire.Fraction = 0.75
    limit: Annotated[int, Meta(ge=1, le=50)] = 5


class MemorySuggestionsArguments(msgspec.Struct, kw_only=True):
    """Of which project."""

    project_id: Key | None = None
    limit: memories_wire.Count = 10


class MergedMemoryOut(msgspec.Struct, frozen=True, kw_only=True):
    """The merged memory, and how many went into it."""

    memory: memories_wire.MemoryRecordOut
    merged_count: int
    message: str


async def _store(memories: Memories, caller: MemoryCaller, arguments: memories_wire.NewMemoryIn) -> str:
    result = await store_memory(memories, caller, arguments)
    memory = result.memory
    if result.action == "created_with_suggestions":
        return _json(result)
    if result.action == "updated":
        return _plain(f"Auto-merged into existing memory: {memory.title} ({memory.id}, version {memory.version})")
    return _plain(f"Stored memory: {memory.title} ({memory.id}, {memory.type}, long-term: {_is_permanent(memory)})")


def _is_permanent(memory: memories_wire.MemoryRecordOut) -> str:
    return "false" if isinstance(memory.ttl_seconds, int) else "true"


async def _recall(memories: Memories, caller: MemoryCaller, arguments: memories_wire.MemorySearchIn) -> str:
    return _json(await search_memories(memories, caller, arguments.query, arguments))


async def _search(memories: Memories, caller: MemoryCaller, arguments: MemorySearchArguments) -> str:
    return _json(await search_memories(memories, caller, arguments.query or "", arguments))


async def _get(memories: Memories, caller: MemoryCaller, arguments: MemoryIdArguments) -> str:
    try:
        return _json(await read_memory(memories, caller, arguments.memory_id))
    except NotFound:
        return "Memory not found"  # an answer there, and no error


async def _update(memories: Memories, caller: MemoryCaller, arguments: MemoryChangeArguments) -> str:
    return _json(await change_memory(memories, caller, arguments.memory_id, arguments))


async def _delete(memories: Memories, caller: MemoryCaller, arguments: MemoryIdArguments) -> str:
    await delete_memory(memories, caller, arguments.memory_id)
    return f"Deleted memory: {arguments.memory_id}"


async def _relate(memories: Memories, caller: MemoryCaller, arguments: memories_wire.MemoryRelationIn) -> str:
    relation = await relate_memories(memories, caller, arguments)
    ends = f"{relation.from_memory_id} -[{relation.relationship}]-> {relation.to_memory_id}"
    return f"Created relationship: {ends} (id: {relation.id})"


async def _related(memories: Memories, caller: MemoryCaller, arguments: RelatedMemoriesArguments) -> str:
    words = [word.strip().upper() for word in arguments.relationship_types or []]
    return _json(await read_related(memories, caller, arguments.memory_id, relationships=words or None))


async def _context(memories: Memories, caller: MemoryCaller, arguments: MemoryContextArguments) -> str:
    return _json(await read_context(memories, caller, arguments.project_id))


async def _promote(memories: Memories, caller: MemoryCaller, arguments: MemoryIdArguments) -> str:
    promoted = await promote_memory(memories, caller, arguments.memory_id)
    return f"Promoted memory {promoted.id} to long-term"


async def _consolidate(memories: Memories, caller: MemoryCaller, arguments: MemoryMergeArguments) -> str:
    memory, count = await merge_memories(memories, caller, arguments.target_id, arguments.source_ids, arguments.strategy)
    return _json(MergedMemoryOut(memory=memory, merged_count=count, message=f"Merged {count} memories into {memory.id}"))


async def _similar(memories: Memories, caller: MemoryCaller, arguments: SimilarMemoriesArguments) -> str:
    near = await find_similar(memories, caller, arguments.memory_id, threshold=arguments.threshold, limit=arguments.limit)
    return _json(near)


async def _suggest(memories: Memories, caller: MemoryCaller, arguments: MemorySuggestionsArguments) -> str:
    limit = memories_wire.page_size(arguments.limit)
    return _json(await list_suggestions(memories, caller, project=arguments.project_id, status="pending", limit=limit))


def _json(value: object) -> str:
    return _plain(_ENCODER.encode(value).decode())


def _plain(text: str) -> str:
    """Stored text, which cannot end a block around it."""
    return defuse_tags(remove_invisible(text))


def _tool(
    name: str,
    description: str,
    arguments: type[S],
    verb: Verb[S],
    shown_fields: Mapping[str, str],
    *,
    writes: bool = False,
    project_field: str | None = None,
) -> Tool:
    async def run(call: Call, values: S) -> str:
        caller = MemoryCaller(principal=call.principal, origin="mcp", size_bytes=call.size_bytes)
        return await verb(call.dependency(Memories), caller, values)

    return Tool(
        name=name,
        title=name.replace("_", " ").capitalize(),
        description=description,
        shown_fields=shown_fields,
        scope=_SCOPES[writes],
        handler=handle(arguments, run),
        writes=writes,
        project_field=project_field,
    )


_TYPES = "solution, problem, code_pattern, fix, error, workflow, decision, general"
_FILTERS = {"project_id": "", "tags": "", "type": _TYPES, "min_importance": "", "limit": ""}

CONTEXTIFY: list[Tool] = [
    _tool(
        "store_memory",
        "Store a memory; one that says the same already is merged with it.",
        memories_wire.NewMemoryIn,
        _store,
        {
            "title": "",
            "content": "",
            "type": _TYPES,
            "scope": "",
            "importance": "0.8 and more is permanent",
            "summary": "",
            "project_id": "path or address; else this one",
            "agent_source": "your name",
            "tags": "",
            "ttl_seconds": "",
        },
        writes=True,
        project_field="project_id",
    ),
    _tool(
        "recall_memories",
        "Find memories by meaning.",
        memories_wire.MemorySearchIn,
        _recall,
        {"query": "", **_FILTERS},
        project_field="project_id",
    ),
    _tool(
        "search_memories",
        "Find memories by words and filters; without a query, list them.",
        MemorySearchArguments,
        _search,
        {"query": "", **_FILTERS, "scope": "", "agent_source": "", "offset": ""},
        project_field="project_id",
    ),
    _tool("get_memory", "Read a memory.", MemoryIdArguments, _get, {"memory_id": ""}),
    _tool(
        "update_memory",
        "Change a memory.",
        MemoryChangeArguments,
        _update,
        {"memory_id": "", "title": "", "content": "", "summary": "", "type": _TYPES, "tags": "", "importance": ""},
        writes=True,
    ),
    _tool("delete_memory", "Delete a memory.", MemoryIdArguments, _delete, {"memory_id": ""}, writes=True),
    _tool(
        "create_relationship",
        "Relate two memories.",
        memories_wire.MemoryRelationIn,
        _relate,
        {"from_memory_id": "", "to_memory_id": "", "relationship": "SOLVES, CAUSES, ...", "strength": "0 to 1", "context": ""},
        writes=True,
    ),
    _tool(
        "get_related_memories",
        "What is related to a memory.",
        RelatedMemoriesArguments,
        _related,
        {"memory_id": "", "relationship_types": "all when left out"},
    ),
    _tool(
        "get_context",
        "The most important memories of a project, for the start of a session.",
        MemoryContextArguments,
        _context,
        {"project_id": ""},
        project_field="project_id",
    ),
    _tool("promote_memory", "Make a memory permanent.", MemoryIdArguments, _promote, {"memory_id": ""}, writes=True),
    _tool(
        "consolidate_memories",
        "Merge memories into one.",
        MemoryMergeArguments,
        _consolidate,
        {"target_id": "", "source_ids": "", "strategy": ""},
        writes=True,
    ),
    _tool(
        "find_similar",
        "Memories that are near to one.",
        SimilarMemoriesArguments,
        _similar,
        {"memory_id": "", "threshold": "0 to 1", "limit": ""},
    ),
    _tool(
        "suggest_consolidations",
        "Pairs of memories that may say the same.",
        MemorySuggestionsArguments,
        _suggest,
        {"project_id": "", "limit": ""},
        project_field="project_id",
    ),
]
"""The thirteen."""
