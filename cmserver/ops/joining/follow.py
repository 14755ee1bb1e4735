"""Lets a project follow its folder to a new name: a first remote, another one, a renamed folder, a repository made above it."""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

from cmserver.access import repository as access
from cmserver.access.change_project import give_name
from cmserver.access.model import Principal
from cmserver.access.projects import canonical_id, display_name, find, is_path
from cmserver.base.db import Db
from cmserver.base.errors import Conflict, Invalid
from cmserver.base.ids import named_id
from cmserver.base.sql import Conn
from cmserver.ops.joining import repository
from cmserver.ops.joining.join import join_projects


async def follow_name(db: Db, principal: Principal, before: str, name: str, folder: str) -> None:
    """Give the project that the folder was called by `before` its new name, if that has no memory yet.

    Does nothing when it cannot be known that both are one: whoever calls must have worked on the project in that folder, or
    anybody who writes events could name any project. Nor for a key that is bound to a project, or when people have separated them.
    """
    if principal.project_id is not None or named_id(name) or named_id(before):
        return
    with suppress(Invalid):
        empty = await db.in_tenant(principal.team_id, lambda conn: _take_name(conn, principal, before, name, folder))
        if empty is not None:
            project_id, empty_id = empty
            with suppress(Conflict):  # it has got memory meanwhile, or was joined
                await join_projects(db, principal, str(empty_id), str(project_id))


async def _take_name(conn: Conn, principal: Principal, before: str, name: str, folder: str) -> tuple[UUID, UUID] | None:
    """The project and an empty one that has the name and is to be joined to it; None when all is done, or nothing is to be done."""
    canonical, former = canonical_id(name), canonical_id(before)
    if canonical == former:
        return None
    await access.lock_names(conn, principal.team_id)
    project = await find(conn, principal, before)
    if project is None or project.stays_apart:
        return None
    is_folder = is_path(former)
    if is_folder and project.canonical_id != former:  # it has had a name since, and the folder may be another one at that path
        return None
    if not await repository.may_name(
        conn,
        principal.team_id,
        project.id,
        folder=former if is_folder else folder,
        is_folder=is_folder,
        actor_ids=principal.own_names,
    ):
        return None
    owner = await find(conn, principal, name)
    if owner is not None:
        is_empty = owner.id != project.id and await repository.is_untouched(conn, principal.team_id, owner.id)
        return (project.id, owner.id) if is_empty else None
    if not await access.names_taken(conn, principal.team_id, [canonical]):
        await give_name(conn, principal, project, canonical, display_name(canonical))
    return None
