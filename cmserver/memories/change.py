"""Reads, changes, promotes and deletes a memory."""

from __future__ import annotations

from uuid import UUID

from msgspec import UNSET

from cmserver.base.errors import Conflict, Forbidden, Gone, Invalid, NotFound
from cmserver.base.sql import Conn
from cmserver.memories.memories import Memories, MemoryCaller, memories_out
from cmserver.memories.model import our_type, parse_type
from cmserver.memories.wire import MemoryChangeIn, MemoryRecordOut
from cmserver.observations import repository as observations
from cmserver.observations.history import repository as history
from cmserver.observations.model import Correction, Observation
from cmserver.observations.read import NO_SUCH, audit_read, find_any_observation, find_observation
from cmserver.observations.tidy import tidy_correction
from cmserver.observations.write import correct, delete, delete_found, promote

_NOT_YOURS = "This memory is shared by another project. A key that is bound to a project may only read it."


async def read_memory(memories: Memories, caller: MemoryCaller, memory_id: UUID) -> MemoryRecordOut:
    """The memory, as it is after this reading; also one that was merged, which says into which. NotFound for an expired one."""

    async def read(conn: Conn) -> MemoryRecordOut:
        observation = await _find_also_merged(conn, caller, memory_id)
        await audit_read(conn, caller.principal, observation.project_id, "get", [observation])
        if observation.expires_at is not None:
            (observation,) = await observations.by_ids(conn, caller.team_id, [observation.id]) or [observation]
        (memory,) = await memories_out(conn, caller.principal, [observation])
        return memory

    return await memories.db.in_tenant(caller.team_id, read)


async def change_memory(memories: Memories, caller: MemoryCaller, memory_id: UUID, change: MemoryChangeIn) -> MemoryRecordOut:
    """Change what was sent; what it was before is kept as a version. Conflict when it is no longer of the version that was sent."""
    correction = await tidy_correction(_correction(change), size_bytes=caller.size_bytes)

    async def act(conn: Conn) -> MemoryRecordOut:
        found = await find_observation(conn, caller.principal, str(memory_id))
        if change.version is not None:
            (locked,) = await history.lock(conn, caller.team_id, [found.id]) or [found]
            if locked.version != change.version:
                raise Conflict(
                    f"The memory has version {locked.version} by now, not {change.version}. Read it, and change that one."
                )
        changed = await correct(conn, caller.principal, str(memory_id), correction)
        (memory,) = await memories_out(conn, caller.principal, [changed])
        return memory

    return await memories.db.in_tenant(caller.team_id, act)


def _correction(change: MemoryChangeIn) -> Correction:
    """What of the change is there; null is as not sent."""
    for name in ("title", "content"):
        value = getattr(change, name)
        if isinstance(value, str) and not value.strip():
            raise Invalid.at(f"$.{name}", f"{name} must not be blank.")
    type_ = parse_type(change.type) if isinstance(change.type, str) and change.type else None
    return Correction(
        title=UNSET if change.title is None else change.title,
        content=UNSET if change.content is None else change.content,
        subtitle=UNSET if change.summary is None else change.summary,
        concepts=UNSET if change.tags is None else change.tags,
        importance=UNSET if change.importance is None else change.importance,
        scope=("team" if change.scope == "global" else "project") if change.scope else UNSET,
        type=our_type(type_) if type_ else UNSET,
        caller_type=type_ or UNSET,
    )


async def promote_memory(memories: Memories, caller: MemoryCaller, memory_id: UUID) -> MemoryRecordOut:
    """Make the memory permanent."""

    async def act(conn: Conn) -> MemoryRecordOut:
        await find_observation(conn, caller.principal, str(memory_id))
        promoted = await promote(conn, caller.principal, str(memory_id))
        (memory,) = await memories_out(conn, caller.principal, [promoted])
        return memory

    return await memories.db.in_tenant(caller.team_id, act)


async def delete_memory(memories: Memories, caller: MemoryCaller, memory_id: UUID) -> None:
    """Delete the memory with what was merged into it, or one that was merged: that merge is not undone any more."""

    async def act(conn: Conn) -> None:
        observation = await _find_also_merged(conn, caller, memory_id)
        if observation.superseded_by is None:
            await delete(conn, caller.principal, str(memory_id))
            return
        if not caller.principal.sees(observation.project_id):
            raise Forbidden(_NOT_YOURS)
        await delete_found(conn, caller.principal, observation)

    await memories.db.in_tenant(caller.team_id, act)


async def _find_also_merged(conn: Conn, caller: MemoryCaller, memory_id: UUID) -> Observation:
    """The memory; NotFound when it has expired or is another's."""
    try:
        return await find_observation(conn, caller.principal, str(memory_id))
    except Gone as error:
        if error.superseded_by is None:
            raise NotFound(NO_SUCH) from error
    return await find_any_observation(conn, caller.principal, str(memory_id))
