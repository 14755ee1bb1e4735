"""Stores a memory: alone, beside others that are near to it, or into the one that says the same."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from cmserver.access import repository as access
from cmserver.access.model import RetentionPolicy
from cmserver.base.errors import Invalid
from cmserver.base.sql import Conn
from cmserver.consolidation.model import Suggestion
from cmserver.consolidation.store import StoreResult, store_observations
from cmserver.memories import model
from cmserver.memories.memories import Memories, MemoryCaller, by_ids, memories_out, record
from cmserver.memories.wire import NewMemoryIn, NewMemoryOut, SimilarMemoryOut
from cmserver.observations import repository as observations
from cmserver.observations.history import repository as history
from cmserver.observations.model import Correction, Observation
from cmserver.observations.read import audit_read
from cmserver.observations.tidy import tidy_correction
from cmserver.observations.wire import ObservationIn
from cmserver.observations.write import correct

_USUAL_IMPORTANCE = 0.5
_ROUNDING = 4


async def store_memory(memories: Memories, caller: MemoryCaller, new: NewMemoryIn) -> NewMemoryOut:
    """Store the memory, or merge it into the one of its project, scope and type that says the same.

    Invalid with the field's path. Its project is made where there is none of that name.
    """
    for name in ("title", "content"):
        if not getattr(new, name).strip():
            raise Invalid.at(f"$.{name}", "title and content are required.")
    project = await memories.project_to_write(caller.principal, new.project_id)
    async with memories.db.tenant(caller.team_id) as conn:
        policy = await access.retention_of(conn, caller.team_id, project.id)
    (result,) = await store_observations(
        memories.db,
        memories.projects,
        memories.embedder,
        caller.principal,
        [_observation(new, str(project.id), policy)],
        on_duplicate="merge",
        strategy=policy.merge_strategy or "smart_merge",
        merge_above=policy.auto_merge_above,
        size_bytes=caller.size_bytes,
        origin=caller.origin,
    )

    tags = await tidy_correction(Correction(concepts=new.tags or []), size_bytes=caller.size_bytes)

    async def finish(conn: Conn) -> NewMemoryOut:
        stored = result.observation
        if result.action == "repeated":
            stored = await _add_tags(conn, caller, stored, tags.concepts or [])
        out = await _out(conn, caller, result, stored)
        event = model.TelemetryEvent(
            event_type="store_opportunity", project_id=project.id, observation_id=stored.id, agent=new.agent_source or None
        )
        action = msgspec.structs.replace(event, event_type="store_action", action=out.action)
        await record(conn, caller, [event, action])
        return out

    return await memories.db.in_tenant(caller.team_id, finish)


def _observation(new: NewMemoryIn, project_id: str, policy: RetentionPolicy) -> ObservationIn:
    type_ = model.parse_type(new.type)
    importance = _importance(new)
    permanent = model.PERMANENT_IMPORTANCE if policy.promote_importance is None else policy.promote_importance
    lifetime = None if importance >= permanent else new.ttl_seconds or policy.default_ttl_seconds or model.DEFAULT_TTL_SECONDS
    return ObservationIn(
        project_id=project_id,
        type=model.our_type(type_),
        caller_type=type_,
        title=new.title,
        subtitle=new.summary,
        content=new.content,
        concepts=new.tags or [],
        scope="team" if new.scope == "global" else "project",
        importance=importance,
        ttl_seconds=lifetime,
        agent=new.agent_source or None,
    )


def _importance(new: NewMemoryIn) -> float:
    return _USUAL_IMPORTANCE if new.importance is None else new.importance


async def _add_tags(conn: Conn, caller: MemoryCaller, repeated: Observation, tags: Sequence[str]) -> Observation:
    """Give a memory that was there already the tags of its repeat. Its life is extended."""
    principal = caller.principal
    await history.lock(conn, caller.team_id, [repeated.id])
    (old,) = await observations.by_ids(conn, caller.team_id, [repeated.id]) or [repeated]
    concepts = old.concepts or []
    tags = [*concepts, *(tag for tag in tags if tag not in concepts)]
    if tags != concepts:
        old = await correct(conn, principal, str(old.id), Correction(concepts=tags))
    await audit_read(conn, principal, old.project_id, "get", [old])
    (now,) = await observations.by_ids(conn, caller.team_id, [old.id]) or [old]
    return now


async def _out(conn: Conn, caller: MemoryCaller, result: StoreResult, stored: Observation) -> NewMemoryOut:
    (memory,) = await memories_out(conn, caller.principal, [stored])
    if result.action not in {"created", "held"}:
        similarity = UNSET if result.similarity is None else round(result.similarity, _ROUNDING)
        return NewMemoryOut(memory=memory, action="updated", updated_existing=memory, similarity=similarity)
    suggestions = await _similar(conn, caller, stored, result.suggestions)
    action: model.StoreAction = "created_with_suggestions" if suggestions else "created"
    return NewMemoryOut(memory=memory, action=action, suggestions=suggestions or UNSET)


async def _similar(
    conn: Conn, caller: MemoryCaller, stored: Observation, suggestions: Sequence[Suggestion]
) -> list[SimilarMemoryOut]:
    """The others of these pairs, the most similar first."""
    others = {(pair.right_id if pair.left_id == stored.id else pair.left_id): pair for pair in suggestions}
    rows = sorted((await by_ids(conn, caller.principal, others.keys())).values(), key=lambda row: -others[row.id].similarity)
    await audit_read(conn, caller.principal, stored.project_id, "suggested", rows)
    outs = await memories_out(conn, caller.principal, rows)
    return [
        SimilarMemoryOut(memory=out, similarity=round(others[out.id].similarity, _ROUNDING), measured_by=others[out.id].measured_by)
        for out in outs
    ]
