"""Changes what a project is called, what else it answers to, when observations are made of it, and whether it is still there."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from cmserver.access import announce, audit, repository
from cmserver.access.model import GenerationPolicy, Principal, Project
from cmserver.access.projects import NO_SUCH, canonical_id, find, one
from cmserver.base.errors import Conflict, Forbidden, Invalid, NotFound
from cmserver.base.ids import named_id
from cmserver.base.sql import Conn


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be different; what is not said stays. `aliases` are all there shall be, besides older canonical ids."""

    name: str | UnsetType = UNSET
    canonical_id: str | UnsetType = UNSET
    aliases: list[str] | UnsetType = UNSET
    metadata: dict[str, object] | UnsetType = UNSET
    policy: GenerationPolicy | UnsetType = UNSET
    search_language: str | UnsetType = UNSET
    archived: bool | UnsetType = UNSET


async def change(conn: Conn, principal: Principal, named: str, wanted: Change) -> Project:
    """The project with what is different. Under a new canonical id the old one stays as an alias.

    Conflict when another project has one of the names, archived or not: a name never means two projects.
    """
    if principal.project_id is not None and (wanted.canonical_id, wanted.aliases) != (UNSET, UNSET):
        # a name that is taken would tell it of other projects
        raise Forbidden("This key is bound to a project; canonical ids and aliases are given by keys of the whole team.")
    await repository.lock_names(conn, principal.team_id)
    project = await one(conn, principal, named)
    if not await repository.lock_project(conn, principal.team_id, project.id):
        raise NotFound(NO_SUCH)
    canonical, aliases = _names(project, wanted)
    await _refuse_taken(conn, project, [canonical, *aliases])
    different = {
        field: value
        for field in ("name", "metadata", "policy", "search_language")
        if (value := getattr(wanted, field)) is not UNSET
    }
    changed = msgspec.structs.replace(project, canonical_id=canonical, aliases=aliases, **different)
    if changed.search_language != project.search_language:
        await repository.lock_language(conn, principal.team_id, project.id)
    archived = project.archived_at is not None if wanted.archived is UNSET else wanted.archived
    await repository.update_project(conn, changed, archived=archived)
    action = "project.archived" if archived and not project.archived_at else "project.updated"
    fields = sorted(field for field in Change.__struct_fields__ if getattr(wanted, field) is not UNSET)
    await audit.record(conn, principal, action, "project", project.id, project_id=project.id, canonical_id=canonical, fields=fields)
    await announce.changed(conn, principal.team_id)
    return await one(conn, principal, str(project.id))


async def follow(conn: Conn, principal: Principal, before: str, now: str) -> None:
    """The remote of a checkout has changed from one name to another: what was known under the old name goes on under both.

    Nothing happens when the old name is no project's, or the new one is another's already.
    """
    canonical = canonical_id(now)
    if named_id(now) or await find(conn, principal, now) is not None:
        return
    await repository.lock_names(conn, principal.team_id)
    project = await find(conn, principal, before)
    if project is None or await repository.names_taken(conn, principal.team_id, [canonical]):
        return
    if not await repository.lock_project(conn, principal.team_id, project.id):
        return
    known = msgspec.structs.replace(project, aliases=sorted({*project.aliases, canonical}))
    await repository.update_project(conn, known, archived=False)
    await audit.record(
        conn,
        principal,
        "project.updated",
        "project",
        project.id,
        project_id=project.id,
        canonical_id=project.canonical_id,
        fields=["aliases"],
        alias=canonical,
    )
    await announce.changed(conn, principal.team_id)


def _names(project: Project, wanted: Change) -> tuple[str, list[str]]:
    """The canonical id and the aliases that the project is to have."""
    canonical = project.canonical_id if wanted.canonical_id is UNSET else _canonical(wanted.canonical_id, "$.canonicalId")
    aliases = project.aliases
    if wanted.aliases is not UNSET:
        aliases = [_canonical(alias, f"$.aliases[{place}]") for place, alias in enumerate(wanted.aliases)]
    if canonical != project.canonical_id:
        aliases = [*aliases, project.canonical_id]
    return canonical, sorted({alias for alias in aliases if alias != canonical})


def _canonical(named: str, at: str) -> str:
    if named_id(named):
        raise Invalid.at(at, "A project's names are addresses (github.com/user/repo), plain names or paths, not uuids.")
    try:
        return canonical_id(named)
    except Invalid as error:
        raise Invalid.at(at, str(error)) from error


async def _refuse_taken(conn: Conn, project: Project, names: Sequence[str]) -> None:
    for taken in await repository.names_taken(conn, project.team_id, names):
        if taken.project_id != project.id:
            what = "an archived project" if taken.archived else "another project"
            raise Conflict(f"{taken.name} is the canonical id or an alias of {what} ({taken.project_id}) already.")
