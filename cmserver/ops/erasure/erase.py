"""Erases a project's memory, a project, or a team, each in one transaction.

The audit log stays, which holds ids and names but no texts; so does the project's spending, which counts for its team.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.access import announce, audit, projects, teams
from cmserver.access import repository as access
from cmserver.access.keys import repository as keys
from cmserver.access.model import Principal, Project
from cmserver.base.errors import Conflict, NotFound
from cmserver.base.sql import Conn
from cmserver.events import repository as events
from cmserver.generation.intake import repository as intake
from cmserver.git.clones import repository as clones
from cmserver.graph import repository as graph
from cmserver.graph.overviews import repository as overviews
from cmserver.memories import repository as memories
from cmserver.models.calls import repository as calls
from cmserver.observations import repository as observations
from cmserver.observations.past import repository as past
from cmserver.ops.erasure.wire import ErasureCounts
from cmserver.pins import repository as pins
from cmserver.recall.handoff import repository as handoffs
from cmserver.recall.receipts import repository as receipts
from cmserver.sessions import repository as sessions
from cmserver.sessions.turns import repository as turns
from cmserver.steward import repository as steward


async def purge(conn: Conn, principal: Principal, name: str) -> tuple[UUID, ErasureCounts]:
    """Erase the project's memory. The project and its keys stay, and new events are stored."""
    project = await _lock_project(conn, principal, name)
    counts = await erase_memory(conn, principal.team_id, project.id)
    await _record_audit(conn, principal, "memory.purged", "project", project.id, counts)
    return project.id, counts


async def delete_project(conn: Conn, principal: Principal, name: str) -> tuple[UUID, ErasureCounts]:
    """Erase the project with its memory, its names, and the keys that are bound to it."""
    project = await _lock_project(conn, principal, name)
    counts = await erase_memory(conn, principal.team_id, project.id)
    deleted_keys = await keys.delete(conn, principal.team_id, project.id)
    deleted_projects = await access.delete_projects(conn, principal.team_id, project.id)
    counts = msgspec.structs.replace(counts, keys=deleted_keys, projects=deleted_projects)
    await _record_audit(conn, principal, "project.deleted", "project", project.id, counts)
    await announce.drop_cached(conn, principal.team_id)
    return project.id, counts


async def delete_team(conn: Conn, principal: Principal, name: str) -> ErasureCounts:
    """Erase the key's own team with everything in it, also that key. Forbidden for keys that are bound to a project."""
    await teams.require_team(conn, principal, name)
    teams.require_team_key(principal)
    await _lock(conn, principal.team_id, None)
    if not await access.lock_team_to_delete(conn, principal.team_id):
        raise NotFound(teams.NO_SUCH)
    await access.lock_projects_to_delete(conn, principal.team_id, None)
    counts = await erase_memory(conn, principal.team_id, None)
    deleted_keys = await keys.delete(conn, principal.team_id, None)
    deleted_projects = await access.delete_projects(conn, principal.team_id, None)
    counts = msgspec.structs.replace(counts, keys=deleted_keys, projects=deleted_projects)
    await access.delete_team(conn, principal.team_id)
    await _record_audit(conn, principal, "team.deleted", "team", principal.team_id, counts)
    await announce.drop_cached(conn, principal.team_id)
    return counts


async def _lock_project(conn: Conn, principal: Principal, name: str) -> Project:
    """Lock the project, also an archived one (by its id), and return it. NotFound when it does not exist."""
    project = await projects.require_project(conn, principal, name)
    if project.joined_to is not None:
        raise Conflict(
            f"Its memory is in the project it was joined to ({project.joined_to}). Delete that one, or separate it first."
        )
    await _lock(conn, principal.team_id, project.id)
    if await access.lock_projects_to_delete(conn, principal.team_id, project.id) == 0:
        raise NotFound(projects.NO_SUCH)
    return project


async def _lock(conn: Conn, team_id: UUID, project_id: UUID | None) -> None:
    """Lock in the order of every writer; the project last: an event holds its lane when it looks up its project."""
    await sessions.lock_all(conn, team_id, project_id)
    await intake.lock_all(conn, team_id, project_id)


async def erase_memory(conn: Conn, team_id: UUID, project_id: UUID | None) -> ErasureCounts:
    """Erase the memory of the project, or of the team for None; referring rows first, or each is set to null by itself."""
    await receipts.lock(conn, team_id)
    await steward.erase(conn, team_id, project_id)
    counts = ErasureCounts(
        entities=await graph.erase(conn, team_id, project_id),
        receipts=await receipts.erase(conn, team_id, project_id),
        observations=await observations.erase(conn, team_id, project_id),
        turns=await turns.erase(conn, team_id, project_id),
        jobs=await intake.erase_jobs(conn, team_id, project_id),
        events=await events.erase(conn, team_id, project_id),
        sessions=await sessions.erase(conn, team_id, project_id),
        runs=await calls.erase_runs(conn, team_id, project_id),
    )
    await pins.erase(conn, team_id, project_id)
    await overviews.erase(conn, team_id, project_id)
    await clones.erase(conn, team_id, project_id)
    await handoffs.erase(conn, team_id, project_id)
    await past.erase(conn, team_id, project_id)
    await intake.erase_lanes(conn, team_id, project_id)
    await memories.erase(conn, team_id, project_id)
    return counts


async def _record_audit(
    conn: Conn, principal: Principal, action: str, resource: str, resource_id: UUID, counts: ErasureCounts
) -> None:
    project_id = resource_id if resource == "project" else None
    details = msgspec.to_builtins(counts)
    await audit.record(conn, principal, action, resource, resource_id, project_id=project_id, counts=details)
