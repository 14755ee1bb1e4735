"""Joins a project to another with all its memory, and separates the two again. One transaction each, as the owner of the tables."""

from __future__ import annotations

import math
from uuid import UUID

from psycopg import errors

from cmserver.access import announce, audit
from cmserver.access import repository as access
from cmserver.access.change_project import give_former_name_back
from cmserver.access.model import Principal, Project
from cmserver.access.projects import find, require_project
from cmserver.base.db import Db
from cmserver.base.errors import Conflict, Forbidden, Invalid, Issue
from cmserver.base.sql import Conn
from cmserver.generation import repository as generation
from cmserver.observations.history import repository as history
from cmserver.ops.joining import repository
from cmserver.sessions import repository as sessions

_NO_KEY_OF_A_PROJECT = "This key is bound to a project. Use a key of the whole team to join projects."
_WORKED_ON = "Observations are being made of its events at this moment. Try again in a minute."


async def join_projects(db: Db, principal: Principal, name: str, into: str) -> Project:
    """Join the project to another one, which is returned: it has all rows from now on, and is meant by the names of both.

    Conflict when one of them is joined or archived, or a worker is busy with the project's jobs.
    """
    _require_team_key(principal)

    async def act(conn: Conn) -> Project:
        await access.lock_names(conn, principal.team_id)
        project = await require_project(conn, principal, name)
        target = await find(conn, principal, into)
        if target is None:
            message = "Project not found."
            raise Invalid(message, [Issue("$.into", message)])
        if target.id == project.id:
            message = "A project cannot be joined to itself."
            raise Invalid(message, [Issue("$.into", message)])
        if project.archived_at is not None:
            raise Conflict("The project is archived or joined already. Restore or separate it first.")
        if await repository.has_joined(conn, principal.team_id, project.id):
            raise Conflict("Another project is joined to it. Separate that one first, or join the other way round.")
        await _lock_all(conn, principal.team_id, project.id, target.id)
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
    _require_team_key(principal)

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
        if merged:
            numbers = ", ".join(map(str, merged[:20]))
            raise Conflict(f"Observations of both projects were merged since. Undo that first: {numbers}.")
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
    found = await db.in_system(repository.strays)
    for project in found:

        async def act(
            conn: Conn, team_id: UUID = project.team_id, id_: UUID = project.id, target: UUID = project.target_id
        ) -> None:
            await access.lock_names(conn, team_id)
            await _lock_all(conn, team_id, id_, target)
            await repository.join(conn, team_id, id_, target)

        await db.in_system(act, answer_seconds=math.inf)
    return len(found)


def _require_team_key(principal: Principal) -> None:
    if principal.project_id is not None:
        raise Forbidden(_NO_KEY_OF_A_PROJECT)


async def _lock_all(conn: Conn, team_id: UUID, project_id: UUID, other_id: UUID) -> None:
    """Lock in the order of every writer: merges of both, the sessions, jobs and lanes of the project that loses rows, then it."""
    for id_ in sorted((project_id, other_id)):
        await history.lock_project(conn, id_)
    await sessions.lock_all(conn, team_id, project_id)
    await generation.lock_all(conn, team_id, project_id)
    if await repository.is_worked_on(conn, team_id, project_id):
        raise Conflict(_WORKED_ON)
    await access.lock_projects_to_delete(conn, team_id, project_id)
