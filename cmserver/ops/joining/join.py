"""Joins a project to another with all its memory, and separates the two again. One transaction each, as the owner of the tables."""

from __future__ import annotations

import math
from uuid import UUID

from psycopg import errors

from cmserver.access import announce, audit
from cmserver.access import repository as access
from cmserver.access.change_project import give_former_name_back
from cmserver.access.model import Principal, Project
from cmserver.access.projects import require_project
from cmserver.base.db import Db
from cmserver.base.errors import Conflict, Invalid
from cmserver.base.logs import get_logger
from cmserver.base.sql import Conn
from cmserver.generation.intake import repository as intake
from cmserver.observations import repository as observations
from cmserver.observations.history import repository as history
from cmserver.ops.joining import repository
from cmserver.ops.joining.refuse import WORKED_ON, find_target, refuse_merged, require_team_key
from cmserver.sessions import repository as sessions

log = get_logger(__name__)

_ACT = "join projects"


async def join_projects(db: Db, principal: Principal, name: str, into: str) -> Project:
    """Join the project to another one, which is returned: it has all rows from now on, and is meant by the names of both.

    Conflict when one of them is joined or archived, when only one of them is isolated, or a worker is busy with the project's jobs.
    """
    require_team_key(principal, _ACT)

    async def act(conn: Conn) -> Project:
        await access.lock_names(conn, principal.team_id)
        project = await require_project(conn, principal, name)
        target = await find_target(conn, principal, into)
        if target.id == project.id:
            raise Invalid.at("$.into", "A project cannot be joined to itself.")
        if project.archived_at is not None:
            raise Conflict("The project is archived or joined already. Restore or separate it first.")
        if await repository.has_joined(conn, principal.team_id, project.id):
            raise Conflict("Another project is joined to it. Separate that one first, or join the other way round.")
        if project.isolated != target.isolated and not await repository.is_untouched(conn, principal.team_id, project.id):
            isolated, other = (project, target) if project.isolated else (target, project)
            raise Conflict(
                f"{isolated.canonical_id} is isolated and {other.canonical_id} is not, so a join would show or hide what one of "
                f"them has. Isolate both, or end the isolation of {isolated.canonical_id} first."
            )
        await _lock_all(conn, principal.team_id, project.id, target.id)
        await observations.delete_known_history(conn, principal.team_id, project.id, target.id)
        await repository.join(conn, principal.team_id, project.id, target.id)
        await audit.record(
            conn,
            principal,
            "project.joined",
            "project",
            project.id,
            project_id=target.id,
            canonical_id=project.canonical_id,
            into=target.canonical_id,
        )
        await announce.drop_cached(conn, principal.team_id)
        return await require_project(conn, principal, str(target.id))

    return await db.in_system(act, answer_seconds=math.inf)


async def separate_projects(db: Db, principal: Principal, name: str) -> Project:
    """Give a joined project (named by its id) its rows back, and what came under its names since; it is returned.

    One that has got its name by itself is called by its folder again; what came under that name stays with it. Conflict when it is
    neither, or when observations of both were merged since.
    """
    require_team_key(principal, _ACT)

    async def act(conn: Conn) -> Project:
        await access.lock_names(conn, principal.team_id)
        project = await require_project(conn, principal, name)
        if project.joined_to is None:
            if not await give_former_name_back(conn, principal, project):
                raise Conflict("The project is not joined to another one. Name the joined project by its id.")
            await audit.record(
                conn,
                principal,
                "project.separated",
                "project",
                project.id,
                project_id=project.id,
                canonical_id=project.canonical_id,
            )
            return await require_project(conn, principal, str(project.id))
        await _lock_all(conn, principal.team_id, project.joined_to, project.id)
        try:
            merged = await repository.separate(conn, principal.team_id, project.id)
        except errors.ForeignKeyViolation as error:
            raise Conflict("Something that belongs to both was made since the two were joined.") from error
        refuse_merged(merged, "Observations of both projects were merged since")
        await audit.record(
            conn,
            principal,
            "project.separated",
            "project",
            project.id,
            project_id=project.joined_to,
            canonical_id=project.canonical_id,
        )
        await announce.drop_cached(conn, principal.team_id)
        return await require_project(conn, principal, str(project.id))

    return await db.in_system(act, answer_seconds=math.inf)


async def move_strays(db: Db) -> int:
    """Move what was written into joined projects while they were joined; returns how many projects had something."""
    moved = 0
    for project in await db.in_system(repository.strays):

        async def act(
            conn: Conn, team_id: UUID = project.team_id, id_: UUID = project.id, target: UUID = project.target_id
        ) -> None:
            await access.lock_names(conn, team_id)
            await _lock_all(conn, team_id, id_, target)
            await repository.join(conn, team_id, id_, target)

        try:
            await db.in_system(act, answer_seconds=math.inf)
            moved += 1
        except Conflict:  # busy: the next run tries again
            continue
        except Exception as error:  # of one project: the others are moved
            log.exception("projects.normalise_failed", team=str(project.team_id), exc_info=error)
    return moved


async def _lock_all(conn: Conn, team_id: UUID, project_id: UUID, other_id: UUID) -> None:
    """Lock in the order of every writer: merges of both, the sessions, jobs and lanes of the project that loses rows, then it."""
    for id_ in sorted((project_id, other_id)):
        await history.lock_project(conn, id_)
    await sessions.lock_all(conn, team_id, project_id)
    await intake.lock_all(conn, team_id, project_id)
    if await repository.is_worked_on(conn, team_id, project_id):
        raise Conflict(WORKED_ON)
    await access.lock_projects_to_delete(conn, team_id, project_id)
