"""Projects over HTTP."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from cmserver.access import change_project, projects, verb
from cmserver.access import repository as access
from cmserver.access.api.inputs import Metadata, clean_metadata
from cmserver.access.change_project import ProjectChange
from cmserver.access.clean import Name, clean_name, clean_policy
from cmserver.access.model import Consolidation, GenerationPolicy, RetentionPolicy, SearchLanguage
from cmserver.access.verb import VerbCall, command, option
from cmserver.access.wire import OneProjectOut, ProjectOut, ProjectsOut, project_out, render_project
from cmserver.base.columns import Columns
from cmserver.base.errors import Invalid
from cmserver.base.ids import named_id
from cmserver.base.paging import Limit, page, place
from cmserver.base.text import Key


class ProjectIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """POST /v1/projects. One that is there already stays as it is."""

    canonical_id: Key
    name: Name | None = None
    metadata: Metadata = {}
    search_language: SearchLanguage = "english"


class ProjectsQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`archived=true` shows the archived projects instead of the others."""

    archived: bool = False
    limit: Limit = 50
    cursor: str | None = None


class ProjectChangeIn(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """PATCH of a project: what is not sent stays. `aliases` are all that it shall have; an older `canonicalId` stays as one of
    them. `generationPolicy` is when and of what observations are made, null for nothing of its own; `retention` is how long what is
    kept, null for nothing of its own.

    `consolidation` is what becomes of generated observations that say what is there already: `off`, `suggest` or `merge`. With
    `mergeWithModel` the configured model words what people merge, and is refused when a fact is missing. Nothing of an `isolated`
    project is found from elsewhere, and it sees nothing that others share; what it has shared becomes its own again. Under another
    `searchLanguage` all its texts are made ready to be found anew before there is an answer: some seconds for 10,000.
    """

    project: str
    name: Name | UnsetType = UNSET
    canonical_id: Key | UnsetType = UNSET
    aliases: Annotated[list[Key], Meta(max_length=100)] | UnsetType | None = UNSET
    metadata: Metadata | UnsetType | None = UNSET
    generation_policy: GenerationPolicy | UnsetType | None = UNSET
    retention: RetentionPolicy | UnsetType | None = UNSET
    search_language: SearchLanguage | UnsetType = UNSET
    consolidation: Consolidation | UnsetType = UNSET
    merge_with_model: bool | UnsetType = UNSET
    isolated: bool | UnsetType = UNSET
    archived: bool | UnsetType = UNSET


_COLUMNS = Columns(ProjectOut, "id, project=canonical_id, name, aliases, created, archived")


@command(
    "projects list",
    _COLUMNS.page("projects", "There are no projects.", shrink=("project", "name", "aliases")),
    text="List the team's projects, newest first.",
)
@option("--archived", "Only archived projects.")
@verb.get("/v1/projects", "observations:read")
async def get_projects(call: VerbCall, given: ProjectsQuery) -> ProjectsOut:
    """A page of the team's projects, newest first; for a key that is bound to a project, only that one."""
    before, before_id = place(given.cursor)
    async with call.read() as conn:
        rows = await access.projects(
            conn,
            call.principal.team_id,
            only=call.principal.project_id,
            archived=given.archived,
            before=before,
            before_id=before_id,
            limit=given.limit + 1,
        )
    projects_of_page, next_cursor = page(rows, given.limit, lambda row: (row.created_at, row.id))
    return ProjectsOut(projects=[project_out(project) for project in projects_of_page], next_cursor=next_cursor)


@command(
    "projects create",
    render_project,
    text="Create a project, or show it when it exists. Events create their project by themselves.",
)
@option("CANONICAL_ID")
@option("--name", "A short name. [default: the last part of the canonical id]")
@option("--search-language", "The main language of its texts: english, german, ...; simple for any other.")
@verb.post("/v1/projects", "events:write")
async def post_project(call: VerbCall, given: ProjectIn) -> tuple[OneProjectOut, bool]:
    """Make a project, or find it when it is there."""
    if named_id(given.canonical_id):
        raise Invalid.at(
            "$.canonicalId", "A project is made by its canonical id (github.com/user/repo, a name, a path), not by a uuid."
        )
    name = clean_name(given.name, at="$.name") if given.name and given.name.strip() else None
    metadata = await clean_metadata(given.metadata, call.size_bytes)
    try:
        project, is_new = await call.write(
            lambda conn: projects.make_project(
                conn, call.principal, given.canonical_id, name=name, metadata=metadata, search_language=given.search_language
            )
        )
    except Invalid as error:
        raise Invalid.at("$.canonicalId", str(error)) from error
    return OneProjectOut(project=project_out(project)), is_new


@command("projects show", render_project, text="Show one project.")
@verb.get("/v1/projects/{project:path}", "observations:read")
async def get_project(call: VerbCall, given: str) -> OneProjectOut:
    """One project by any of its names; an archived one by its id."""
    async with call.read() as conn:
        return OneProjectOut(project=project_out(await projects.require_project(conn, call.principal, given)))


@command(
    "projects archive",
    render_project,
    text="Archive a project: it takes no events and search does not find it; nothing is deleted.",
    sets={"archived": True},
)
@command(
    "projects unarchive",
    render_project,
    text="Restore an archived project; name it by its id (`cmserver projects list --archived`).",
    sets={"archived": False},
)
@command(
    "projects isolate",
    render_project,
    text="""Isolate a project: nothing of it is found from elsewhere, and it sees nothing that other projects share.

    What it has shared with the team becomes its own, also after --off.
    """,
)
@option("--off", "Let it be found and see again what others share.", field="isolated", default=True, on=False)
@command(
    "projects search-language",
    render_project,
    text="""Set the main language of a project's texts (english, german, ...; simple for any other), so that search knows its words.

    This reindexes all its texts: some seconds for 10,000. New events of the project wait meanwhile.
    """,
)
@option("LANGUAGE", field="search_language")
@command("projects rename", render_project, text="Rename a project; its canonical id stays.")
@option("NAME")
@verb.patch("/v1/projects/{project:path}", "admin")
async def patch_project(call: VerbCall, given: ProjectChangeIn) -> OneProjectOut:
    """Change a project's names, notes, policy, language of search and consolidation; archive it, or bring it back."""
    change = ProjectChange(
        name=UNSET if given.name is UNSET else clean_name(given.name, at="$.name"),
        canonical_id=given.canonical_id,
        aliases=UNSET if given.aliases is UNSET else given.aliases or [],
        metadata=UNSET if given.metadata is UNSET else await clean_metadata(given.metadata, call.size_bytes),
        policy=UNSET if given.generation_policy is UNSET else clean_policy(given.generation_policy),
        retention=UNSET if given.retention is UNSET else given.retention or RetentionPolicy(),
        search_language=given.search_language,
        consolidation=given.consolidation,
        merge_with_model=given.merge_with_model,
        isolated=given.isolated,
        archived=given.archived,
    )
    project = await call.write(lambda conn: change_project.change(conn, call.principal, given.project, change))
    call.drop_cached()
    return OneProjectOut(project=project_out(project))


routes = [get_projects, post_project, get_project, patch_project]
