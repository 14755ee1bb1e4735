"""Merges memories, relates them, and works through suggestions to merge."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from cmserver.access import repository as access
from cmserver.base.errors import CmserverError, Invalid, Issue, Unavailable
from cmserver.base.sql import Conn
from cmserver.consolidation import relate
from cmserver.consolidation import repository as consolidation
from cmserver.consolidation.combine import MergeWording, merge_observations
from cmserver.consolidation.model import SuggestionStatus
from cmserver.consolidation.review import find_suggestion, resolve_suggestion
from cmserver.memories import repository, wire
from cmserver.memories.memories import Memories, MemoryCaller, by_ids, memories_out, memory_id
from cmserver.memories.model import relationship_word
from cmserver.observations import repository as observations
from cmserver.observations.history.model import MergeStrategy
from cmserver.observations.read import audit_read, find_any_observation, find_observation

_NO_WORD = "A relationship is a word of letters, digits and _, such as SOLVES or DEPENDS_ON."


async def merge_memories(
    memories: Memories, caller: MemoryCaller, target_id: UUID, source_ids: Sequence[UUID], wanted: wire.WantedStrategy
) -> tuple[wire.MemoryRecordOut, int]:
    """The merged memory, and how many went into it. Those that cannot, as of another project, are left out. NotFound as usual."""
    names = [str(source_id) for source_id in source_ids]
    strategy = wanted or await _find_strategy(memories, caller, target_id)
    wording = await memories.merge_writer.word_merge(caller.principal, str(target_id), names, strategy)
    return await _merge(memories, caller, target_id, names, strategy, wording)


async def _find_strategy(memories: Memories, caller: MemoryCaller, target_id: UUID) -> MergeStrategy:
    """How the target's project merges where nobody says it."""
    async with memories.db.tenant(caller.team_id) as conn:
        target = await find_observation(conn, caller.principal, str(target_id))
        policy = await access.retention_of(conn, caller.team_id, target.project_id)
    return policy.merge_strategy or "smart_merge"


async def _merge(
    memories: Memories,
    caller: MemoryCaller,
    target_id: UUID,
    names: Sequence[str],
    strategy: MergeStrategy,
    wording: MergeWording | None = None,
) -> tuple[wire.MemoryRecordOut, int]:
    async def act(conn: Conn) -> tuple[wire.MemoryRecordOut, int]:
        merge = await merge_observations(conn, caller.principal, str(target_id), names, strategy, wording)
        (memory,) = await memories_out(conn, caller.principal, [merge.observation])
        return memory, len(merge.merged)

    return await memories.db.in_tenant(caller.team_id, act)


async def merge_several(memories: Memories, caller: MemoryCaller, request: wire.MemoryConsolidationIn) -> list[wire.MergeResultOut]:
    """Each operation by itself, in its own transaction and by rules: the memory, or why it is none."""
    results: list[wire.MergeResultOut] = []
    for operation in request.operations:
        try:
            target = memory_id(operation.target_id, "$.target_id")
            sources = [str(memory_id(name, "$.source_ids")) for name in operation.source_ids]
            if not sources:
                raise Invalid.at("$.source_ids", "source_ids are required.")
            strategy = request.strategy or await _find_strategy(memories, caller, target)
            memory, _ = await _merge(memories, caller, target, sources, strategy)
            results.append(wire.MergeResultOut(target_id=operation.target_id, memory=memory))
        except Unavailable:
            raise
        except CmserverError as error:
            results.append(wire.MergeResultOut(target_id=operation.target_id, error=str(error)))
    return results


async def list_merge_log(
    memories: Memories, caller: MemoryCaller, *, target_id: UUID | None, limit: int, offset: int
) -> list[wire.MergeLogEntryOut]:
    """A page of the merges, the last first."""
    async with memories.db.tenant(caller.team_id) as conn:
        merges = await consolidation.merges(
            conn, caller.team_id, project_id=caller.principal.project_id, target_id=target_id, limit=limit, offset=offset
        )
        rows = await observations.any_by_names(conn, caller.team_id, {merge.observation_id for merge in merges})
        await audit_read(conn, caller.principal, caller.principal.project_id, "history", rows)
    return [*map(wire.merge_log_entry_out, merges)]


async def relate_memories(memories: Memories, caller: MemoryCaller, new: wire.MemoryRelationIn) -> wire.MemoryRelationOut:
    """The relation. The same once more keeps its id, and gets the new strength and context."""
    word = relationship_word(new.relationship)
    if word is None:
        raise Invalid(_NO_WORD, [Issue("$.relationship", _NO_WORD)])
    strength = new.strength if new.strength > 0 else 0.5
    relation = await memories.db.in_tenant(
        caller.team_id,
        lambda conn: relate.relate(
            conn, caller.principal, str(new.from_memory_id), str(new.to_memory_id), word, strength, new.context or None
        ),
    )
    return wire.memory_relation_out(relation)


async def read_related(
    memories: Memories, caller: MemoryCaller, memory: UUID, *, relationships: Sequence[str] | None = None
) -> wire.RelatedMemoriesOut:
    """The relations of the memory, both ways, the strongest first, and their other ends; also what was merged into it."""
    async with memories.db.tenant(caller.team_id) as conn:
        start = await find_any_observation(conn, caller.principal, str(memory))
        relations = await consolidation.relations_of(conn, caller.team_id, [start.id], relationships, relate.RELATIONS_MOST)
        others = [(relation.to_id if relation.from_id == start.id else relation.from_id) for relation in relations]
        found = await by_ids(conn, caller.principal, set(others))
        gone = await observations.gone(conn, caller.team_id, ids=found.keys())
        expired = {row.id for row in gone if row.superseded_by is None}
        shown = [
            (relation, found[other])
            for relation, other in zip(relations, others, strict=True)
            if other in found and other not in expired
        ]
        rows = [row for _, row in shown]
        await audit_read(conn, caller.principal, start.project_id, "related", rows)
        return wire.RelatedMemoriesOut(
            memories=await memories_out(conn, caller.principal, rows),
            relationships=[wire.memory_relation_out(relation) for relation, _ in shown],
        )


async def list_suggestions(
    memories: Memories, caller: MemoryCaller, *, project: str | None, status: wire.RequestedStatus, limit: int, offset: int = 0
) -> wire.MemorySuggestionsOut:
    """A page of pairs that may say the same, the most similar first."""
    project_id = await memories.project_to_count(caller.principal, project)
    wanted: SuggestionStatus = wire.STATUSES[status]
    async with memories.db.tenant(caller.team_id) as conn:
        pairs = await repository.suggestions(conn, caller.team_id, project_id=project_id, status=wanted, limit=limit, offset=offset)
        total = await repository.count_suggestions(conn, caller.team_id, project_id=project_id, status=wanted)
        rows = await by_ids(conn, caller.principal, {id_ for pair in pairs for id_ in (pair.left_id, pair.right_id)})
        await audit_read(conn, caller.principal, project_id, "suggestions", list(rows.values()))
        outs = {out.id: out for out in await memories_out(conn, caller.principal, list(rows.values()))}
    suggestions = [
        wire.memory_suggestion_out(pair, outs[pair.left_id], outs[pair.right_id])
        for pair in pairs
        if pair.left_id in outs and pair.right_id in outs
    ]
    return wire.MemorySuggestionsOut(suggestions=suggestions, total=total)


async def resolve(memories: Memories, caller: MemoryCaller, suggestion_id: UUID, *, is_accepted: bool) -> None:
    """Accept the suggestion, which merges the newer memory into the older one, or dismiss it for good."""
    async with memories.db.tenant(caller.team_id) as conn:
        suggestion = await find_suggestion(conn, caller.principal, suggestion_id)
        policy = await access.retention_of(conn, caller.team_id, suggestion.project_id)
    strategy = policy.merge_strategy or "smart_merge"
    wording = await memories.merge_writer.word_suggestion(caller.principal, suggestion_id, strategy) if is_accepted else None
    status = "accepted" if is_accepted else "dismissed"
    await memories.db.in_tenant(
        caller.team_id, lambda conn: resolve_suggestion(conn, caller.principal, suggestion_id, status, strategy, wording)
    )
