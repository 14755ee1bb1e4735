"""Gives projects their canonical ids, and joins those that turn out to be one."""

from __future__ import annotations

from collections.abc import Sequence

from cmserver.access import repository as access
from cmserver.access.change_project import ProjectChange, change
from cmserver.access.model import Principal, Project
from cmserver.access.projects import canonical_id
from cmserver.base.db import Db
from cmserver.base.errors import Conflict, Invalid
from cmserver.base.logs import get_logger
from cmserver.base.sql import Conn
from cmserver.ops.joining.join import join_projects
from cmserver.ops.joining.refuse import require_team_key

log = get_logger(__name__)

_MOST = 10_000
"""Projects, the newest ones, that are looked at in one run."""
"""The actor of what happens by itself."""


async def normalise_all(db: Db) -> None:
    """Normalise the projects of all teams."""
    for team in await db.in_system(access.all_teams):
        if team.archived_at is not None:
            continue
        try:
            changed = await normalise_projects(db, Principal.of_server(team.id))
        except Exception as error:  # of one team: the others are normalised
            log.exception("projects.normalise_failed", team=str(team.id), exc_info=error)
            continue
        if changed:
            log.info("projects.normalised", team=str(team.id), projects=changed)


async def normalise_projects(db: Db, principal: Principal) -> int:
    """Give each project its canonical id, and join those of the same one that nobody separated; how many were changed."""
    require_team_key(principal, "rename projects")
    async with db.tenant(principal.team_id) as conn:
        projects = await access.projects(
            conn, principal.team_id, only=None, archived=False, before=None, before_id=None, limit=_MOST
        )
    by_canonical: dict[str, list[Project]] = {}
    for project in projects:
        by_canonical.setdefault(_canonical(project), []).append(project)
    changed = 0
    for canonical, same in by_canonical.items():
        if len(same) > 1 or same[0].canonical_id != canonical:
            changed += await _normalise_group(db, principal, canonical, same)
    return changed


async def _normalise_group(db: Db, principal: Principal, canonical: str, same: Sequence[Project]) -> int:
    """Projects with one canonical id: all are joined to the one that has it, or else to the oldest, which gets it."""
    first, *others = sorted(same, key=lambda project: (project.canonical_id != canonical, project.created_at, project.id))
    changed = 0
    for project in others:
        if first.stays_apart or project.stays_apart:
            continue
        changed += await _try_join(db, principal, project, first)
    if first.canonical_id == canonical:
        return changed
    async with db.tenant(principal.team_id) as conn:
        owners = [name for name in await access.names_taken(conn, principal.team_id, [canonical]) if name.project_id != first.id]
    if not owners:
        return changed + await db.in_tenant(principal.team_id, lambda conn: _try_rename(conn, principal, first, canonical))
    if first.stays_apart or owners[0].archived:
        return changed
    async with db.tenant(principal.team_id) as conn:
        owner = await access.project(conn, principal.team_id, owners[0].project_id)
    return changed + (await _try_join(db, principal, first, owner) if owner is not None and not owner.stays_apart else 0)


async def _try_join(db: Db, principal: Principal, project: Project, target: Project) -> int:
    try:
        await join_projects(db, principal, str(project.id), str(target.id))
    except Conflict:  # busy, or joined already: the next run tries again
        return 0
    return 1


async def _try_rename(conn: Conn, principal: Principal, project: Project, canonical: str) -> int:
    try:
        await change(conn, principal, str(project.id), ProjectChange(canonical_id=canonical))
    except Conflict:  # another request has just given the name
        return 0
    return 1


def _canonical(project: Project) -> str:
    try:
        return canonical_id(project.canonical_id)
    except Invalid:
        return project.canonical_id
