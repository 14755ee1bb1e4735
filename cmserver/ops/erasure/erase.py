"""What is known goes for good: a project's memory, a project, or a whole team, each in one transaction.

Only the audit log stays, which has ids and names, never texts; and of a project what was spent on it, which stays its team's.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from cmserver.access import announce, audit, projects, teams
from cmserver.access.erasure import repository as access
from cmserver.access.model import Principal, Project
from cmserver.base.errors import NotFound
from cmserver.base.sql import Conn
from cmserver.events import repository as events
from cmserver.generation.erasure import repository as generation
from cmserver.observations import repository as observations
from cmserver.recall.receipts import repository as receipts
from cmserver.sessions import repository as sessions


class Counts(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """How many of each have been erased."""

    observations: int
    prompts: int
    events: int
    sessions: int
    jobs: int
    runs: int
    receipts: int
    projects: int = 0
    keys: int = 0


async def purge(conn: Conn, principal: Principal, named: str) -> tuple[UUID, Counts]:
    """All that the project remembers. The project stays, and so do its keys: what comes in from now on is remembered again."""
    project = await _locked_project(conn, principal, named)
    counts = await _erase(conn, principal.team_id, project.id)
    await _note(conn, principal, "memory.purged", "project", project.id, counts)
    return project.id, counts


async def delete_project(conn: Conn, principal: Principal, named: str) -> tuple[UUID, Counts]:
    """The project with its memory, its names, and the keys that are bound to it."""
    project = await _locked_project(conn, principal, named)
    counts = await _erase(conn, principal.team_id, project.id)
    keys = await access.delete_keys(conn, principal.team_id, project.id)
    deleted = await access.delete_projects(conn, principal.team_id, project.id)
    counts = msgspec.structs.replace(counts, keys=keys, projects=deleted)
    await _note(conn, principal, "project.deleted", "project", project.id, counts)
    await announce.changed(conn, principal.team_id)
    return project.id, counts


async def delete_team(conn: Conn, principal: Principal, named: str) -> Counts:
    """The key's own team, with everything in it, that key too. For keys that are bound to no project."""
    await teams.one(conn, principal, named)
    teams.whole_team(principal)
    await _lock(conn, principal.team_id, None)
    if not await access.lock_team(conn, principal.team_id):
        raise NotFound(teams.NO_SUCH)
    await access.lock_projects(conn, principal.team_id, None)
    counts = await _erase(conn, principal.team_id, None)
    keys = await access.delete_keys(conn, principal.team_id, None)
    deleted = await access.delete_projects(conn, principal.team_id, None)
    counts = msgspec.structs.replace(counts, keys=keys, projects=deleted)
    await access.delete_team(conn, principal.team_id)
    await _note(conn, principal, "team.deleted", "team", principal.team_id, counts)
    await announce.changed(conn, principal.team_id)
    return counts


async def _locked_project(conn: Conn, principal: Principal, named: str) -> Project:
    """Also an archived one, by its id."""
    project = await projects.one(conn, principal, named)
    await _lock(conn, principal.team_id, project.id)
    if await access.lock_projects(conn, principal.team_id, project.id) == 0:
        raise NotFound(projects.NO_SUCH)
    return project


async def _lock(conn: Conn, team_id: UUID, project_id: UUID | None) -> None:
    """In the order that everybody keeps, so that whoever writes the effects of a batch is waited for, or finds nothing of it.

    The project's own lock comes after these: an event holds its lane when it asks whether its project is there.
    """
    await sessions.lock_all(conn, team_id, project_id)
    await generation.lock_all(conn, team_id, project_id)


async def _erase(conn: Conn, team_id: UUID, project_id: UUID | None) -> Counts:
    """What refers to other things goes before them: else each reference would be emptied first, row by row."""
    gone = Counts(
        receipts=await receipts.erase(conn, team_id, project_id),
        observations=await observations.erase(conn, team_id, project_id),
        prompts=await sessions.erase_prompts(conn, team_id, project_id),
        jobs=await generation.erase_jobs(conn, team_id, project_id),
        events=await events.erase(conn, team_id, project_id),
        sessions=await sessions.erase(conn, team_id, project_id),
        runs=await generation.erase_runs(conn, team_id, project_id),
    )
    await generation.erase_lanes(conn, team_id, project_id)
    return gone


async def _note(conn: Conn, principal: Principal, action: str, resource: str, resource_id: UUID, counts: Counts) -> None:
    project_id = resource_id if resource == "project" else None
    told = msgspec.to_builtins(counts)
    await audit.record(conn, principal, action, resource, resource_id, project_id=project_id, counts=told)
