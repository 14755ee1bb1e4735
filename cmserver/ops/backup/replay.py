"""Repeats in a restored database the erasures that its backup does not know, from the journal beside the backups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import msgspec

from cmserver.access import repository as access
from cmserver.access.keys import repository as keys
from cmserver.access.people import repository as people
from cmserver.base.erasure_journal import Erasure, read_journal
from cmserver.base.errors import NotFound
from cmserver.base.sql import Conn
from cmserver.graph import repository as graph
from cmserver.observations import repository as observations
from cmserver.ops.backup import repository
from cmserver.ops.backup.archive import Manifest
from cmserver.ops.erasure.erase import erase_memory
from cmserver.ops.erasure.repository import erase_session
from cmserver.personal import repository as personal
from cmserver.sessions import repository as sessions
from cmserver.sessions.turns import repository as turns


class KnownErasures(msgspec.Struct, frozen=True, kw_only=True):
    """What the journals say of an installation."""

    erasures: list[Erasure]
    is_complete: bool
    """Whether one of the journals was begun before the backup, so that no erasure after it is missing."""
    files: list[Path]


def find_erasures(manifest: Manifest, files: Iterable[Path]) -> KnownErasures:
    """The erasures in those of the journals that exist and are of the backup's installation."""
    erasures: dict[tuple[object, ...], Erasure] = {}
    found: list[Path] = []
    is_complete = False
    for file in dict.fromkeys(file.absolute() for file in files):
        journal = read_journal(file)
        if journal is None or journal[0].installation != manifest.installation:
            continue
        found.append(file)
        is_complete = is_complete or journal[0].since <= created_at(manifest)
        erasures |= {msgspec.structs.astuple(erasure): erasure for erasure in journal[1]}
    in_order = sorted(erasures.values(), key=lambda erasure: erasure.at or created_at(manifest))
    return KnownErasures(erasures=in_order, is_complete=is_complete, files=found)


def created_at(manifest: Manifest) -> datetime:
    """When the backup was made."""
    return datetime.fromisoformat(manifest.created_at).astimezone(UTC)


async def replay(conn: Conn, manifest: Manifest, erasures: Sequence[Erasure]) -> int:
    """Repeat the erasures, as owner of the restored database; returns how many of them found something to erase.

    An id is never used twice, so what is named by one is erased whenever that was. A project whose memory was purged, a user
    who was removed, and a session that became private may have come back: those count only when the backup was made before.
    """
    return sum([await _repeat(conn, erasure) for erasure in erasures if await _is_missing(conn, manifest, erasure)])


async def _is_missing(conn: Conn, manifest: Manifest, erasure: Erasure) -> bool:
    """Whether the backup may hold what was erased."""
    if erasure.action not in {"memory.purged", "member.removed", "private.deleted", "session.deleted"}:
        return True
    if manifest.snapshot and erasure.transaction and erasure.cluster == manifest.cluster:
        return not await repository.has_seen(conn, manifest.snapshot, erasure.transaction)
    return erasure.at is None or erasure.at >= created_at(manifest)


async def _repeat(conn: Conn, erasure: Erasure) -> bool:
    """Repeat one; whether there was something to erase."""
    team_id = erasure.team_id
    match erasure.action:
        case "observation.deleted" | "turn.deleted":
            owner = observations if erasure.action == "observation.deleted" else turns
            return await owner.delete(conn, team_id, UUID(erasure.resource_id))
        case "personal.deleted" | "private.deleted":
            was_there = await _erase_alone(conn, erasure)
        case "entity.deleted":
            was_there = await graph.delete(conn, team_id, UUID(erasure.resource_id))
        case "session.deleted":
            was_there = await _erase_session(conn, team_id, UUID(erasure.resource_id))
        case "memory.purged":
            return any(msgspec.structs.astuple(await erase_memory(conn, team_id, UUID(erasure.resource_id))))
        case "project.deleted":
            project_id = UUID(erasure.resource_id)
            await erase_memory(conn, team_id, project_id)
            await keys.delete(conn, team_id, project_id)
            return await access.delete_projects(conn, team_id, project_id) > 0
        case "team.deleted":
            await erase_memory(conn, team_id, None)
            deleted_keys = await keys.delete(conn, team_id, None)
            await access.delete_projects(conn, team_id, None)
            await access.delete_team(conn, team_id)
            return deleted_keys > 0
        case "key.revoked" | "key.rotated":
            return await _revoke(conn, team_id, UUID(erasure.resource_id))
        case "member.removed":
            was_there = await people.remove_member(conn, team_id, erasure.resource_id) > 0
    return was_there


async def _erase_alone(conn: Conn, erasure: Erasure) -> bool:
    """Delete what was a person's alone: an observation, or all their private sessions."""
    named = UUID(erasure.resource_id)
    if erasure.action == "personal.deleted":
        return await personal.delete(conn, erasure.team_id, named, user_id=None) > 0
    return await access.delete_private_place(conn, erasure.team_id, named) > 0


async def _erase_session(conn: Conn, team_id: UUID, session_id: UUID) -> bool:
    """Delete the session, with observations that its own were merged into: they hold its texts, too."""
    if await sessions.by_id(conn, team_id, session_id) is None:
        return False
    await erase_session(conn, team_id, session_id, with_merged=True)
    return True


async def _revoke(conn: Conn, team_id: UUID, key_id: UUID) -> bool:
    key = await keys.by_id(conn, team_id, key_id)
    if key is None or key.revoked_at is not None:
        return False
    try:
        await keys.revoke(conn, team_id, key_id)
    except NotFound:
        return False
    return True
