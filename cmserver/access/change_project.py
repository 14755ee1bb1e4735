"""Changes a project's names, metadata, policy and search language, and archives it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from cmserver.access import announce, audit, repository
from cmserver.access.model import Consolidation, GenerationPolicy, Principal, Project, RetentionPolicy
from cmserver.access.projects import NO_SUCH, canonical_id, display_name, is_path, require_project
from cmserver.base.errors import Conflict, Forbidden, Invalid, NotFound
from cmserver.base.ids import named_id
from cmserver.base.sql import Conn


class ProjectChange(msgspec.Struct, frozen=True, kw_only=True):
    """The fields to change; UNSET ones stay. `aliases` replaces all aliases except older canonical ids."""

    name: str | UnsetType = UNSET
    canonical_id: str | UnsetType = UNSET
    aliases: list[str] | UnsetType = UNSET
    metadata: dict[str, object] | UnsetType = UNSET
    policy: GenerationPolicy | UnsetType = UNSET
    retention: RetentionPolicy | UnsetType = UNSET
    search_language: str | UnsetType = UNSET
    consolidation: Consolidation | UnsetType = UNSET
    merge_with_model: bool | UnsetType = UNSET
    isolated: bool | UnsetType = UNSET
    archived: bool | UnsetType = UNSET


async def change(conn: Conn, principal: Principal, reference: str, changes: ProjectChange) -> Project:
    """Change a project; its old canonical id stays an alias. Conflict when another, archived or not, has one of the names."""
    if principal.project_id is not None and (changes.canonical_id, changes.aliases) != (UNSET, UNSET):
        # a conflict would reveal other projects
        raise Forbidden("This key is bound to a project. Use a key of the whole team to set canonical ids and aliases.")
    await repository.lock_names(conn, principal.team_id)
    project = await require_project(conn, principal, reference)
    if not await repository.lock_project(conn, principal.team_id, project.id):
        raise NotFound(NO_SUCH)
    if project.joined_to is not None:
        raise Conflict(f"The project is joined to another one ({project.joined_to}). Separate it first.")
    canonical, aliases = _merge_names(project, changes)
    await _refuse_taken(conn, project, [canonical, *aliases])
    values = {
        field: value
        for field in (
            "name",
            "metadata",
            "policy",
            "retention",
            "search_language",
            "consolidation",
            "merge_with_model",
            "isolated",
        )
        if (value := getattr(changes, field)) is not UNSET
    }
    changed = msgspec.structs.replace(project, canonical_id=canonical, aliases=aliases, **values)
    if changed.search_language != project.search_language:
        await repository.lock_language(conn, principal.team_id, project.id)
    archived = project.archived_at is not None if changes.archived is UNSET else changes.archived
    await repository.update_project(conn, changed, archived=archived)
    action = "project.archived" if archived and not project.archived_at else "project.updated"
    fields = sorted(field for field in ProjectChange.__struct_fields__ if getattr(changes, field) is not UNSET)
    await audit.record(conn, principal, action, "project", project.id, project_id=project.id, canonical_id=canonical, fields=fields)
    await announce.drop_cached(conn, principal.team_id)
    return await require_project(conn, principal, str(project.id))


async def give_name(conn: Conn, principal: Principal, project: Project, canonical: str, name: str) -> None:
    """Give the project a name that nobody has. One that was called by its folder is called so from now on; its path stays an alias.

    `name` is how it is shown then, unless people called it otherwise. The caller holds the lock of the team's names.
    """
    if not await repository.lock_project(conn, principal.team_id, project.id):
        return
    if is_path(project.canonical_id):
        former, aliases = project.canonical_id, {*project.aliases, project.canonical_id} - {canonical}
        renamed = msgspec.structs.replace(
            project,
            canonical_id=canonical,
            name=name if project.name == display_name(former) else project.name,
            aliases=sorted(aliases),
        )
        await repository.keep_former_name(conn, principal.team_id, project.id, former)
    else:
        renamed = msgspec.structs.replace(project, aliases=sorted({*project.aliases, canonical}))
    await repository.update_project(conn, renamed, archived=False)
    await audit.record(
        conn,
        principal,
        "project.updated",
        "project",
        project.id,
        project_id=project.id,
        canonical_id=renamed.canonical_id,
        fields=["aliases"] if renamed.canonical_id == project.canonical_id else ["aliases", "canonical_id"],
        alias=canonical,
    )
    await announce.drop_cached(conn, principal.team_id)


async def give_former_name_back(conn: Conn, principal: Principal, project: Project) -> bool:
    """Call the project by its folder again, as before it got its name by itself, and free that name. False if it got none so.

    The caller holds the lock of the team's names.
    """
    former = await repository.former_name(conn, principal.team_id, project.id)
    if former is None:
        return False
    name = display_name(former) if project.name == display_name(project.canonical_id) else project.name
    renamed = msgspec.structs.replace(
        project, canonical_id=former, name=name, aliases=[alias for alias in project.aliases if alias != former]
    )
    await repository.update_project(conn, renamed, archived=project.archived_at is not None)
    await repository.keep_apart(conn, principal.team_id, project.id)
    await announce.drop_cached(conn, principal.team_id)
    return True


def _merge_names(project: Project, changes: ProjectChange) -> tuple[str, list[str]]:
    """The project's canonical id and aliases after the changes."""
    canonical = project.canonical_id if changes.canonical_id is UNSET else _parse_name(changes.canonical_id, "$.canonicalId")
    aliases = project.aliases
    if changes.aliases is not UNSET:
        aliases = [_parse_name(alias, f"$.aliases[{index}]") for index, alias in enumerate(changes.aliases)]
    if canonical != project.canonical_id:
        aliases = [*aliases, project.canonical_id]
    return canonical, sorted({alias for alias in aliases if alias != canonical})


def _parse_name(reference: str, at: str) -> str:
    if named_id(reference):
        raise Invalid.at(at, "A project's name is an address (github.com/user/repo), a plain name or a path, not a UUID.")
    try:
        return canonical_id(reference)
    except Invalid as error:
        raise Invalid.at(at, str(error)) from error


async def _refuse_taken(conn: Conn, project: Project, names: Sequence[str]) -> None:
    for name in await repository.names_taken(conn, project.team_id, names):
        if name.project_id != project.id:
            owner = "an archived project" if name.archived else "another project"
            raise Conflict(f"{name.name} is already the canonical id or an alias of {owner} ({name.project_id}).")
