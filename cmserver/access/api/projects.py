"""Projects over HTTP."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import change_project, projects
from cmserver.access import repository as access
from cmserver.access.api.inputs import Metadata, clean_metadata, forget
from cmserver.access.change_project import ProjectChange
from cmserver.access.clean import Name, clean_name, clean_policy
from cmserver.access.model import Consolidation, GenerationPolicy, Principal, RetentionPolicy, SearchLanguage
from cmserver.access.wire import OneProjectOut, ProjectsOut, project_out
from cmserver.base.errors import Invalid
from cmserver.base.http.operation import get, patch, post
from cmserver.base.http.wire import answer, caller, db, query, read_sized
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


async def get_projects(request: Request) -> Response:
    """A page of the team's projects, newest first; for a key that is bound to a project, only that one."""
    principal = await caller(request, Principal)
    params = query(request, ProjectsQuery)
    before, before_id = place(params.cursor)
    async with db(request).tenant(principal.team_id) as conn:
        rows = await access.projects(
            conn,
            principal.team_id,
            only=principal.project_id,
            archived=params.archived,
            before=before,
            before_id=before_id,
            limit=params.limit + 1,
        )
    projects_of_page, next_cursor = page(rows, params.limit, lambda row: (row.created_at, row.id))
    return answer(ProjectsOut(projects=[project_out(project) for project in projects_of_page], next_cursor=next_cursor))


async def post_project(request: Request) -> Response:
    """Make a project, or find it when it is there."""
    principal = await caller(request, Principal)
    body, size = await read_sized(request, ProjectIn)
    if named_id(body.canonical_id):
        raise Invalid.at(
            "$.canonicalId", "A project is made by its canonical id (github.com/user/repo, a name, a path), not by a uuid."
        )
    name = clean_name(body.name, at="$.name") if body.name and body.name.strip() else None
    metadata = await clean_metadata(body.metadata, size)
    try:
        project, is_new = await db(request).in_tenant(
            principal.team_id,
            lambda conn: projects.make_project(
                conn, principal, body.canonical_id, name=name, metadata=metadata, search_language=body.search_language
            ),
        )
    except Invalid as error:
        raise Invalid.at("$.canonicalId", str(error)) from error
    return answer(OneProjectOut(project=project_out(project)), 201 if is_new else 200)


async def get_project(request: Request) -> Response:
    """One project by any of its names; an archived one by its id."""
    principal = await caller(request, Principal)
    async with db(request).tenant(principal.team_id) as conn:
        project = await projects.require_project(conn, principal, str(request.path_params["project"]))
    return answer(OneProjectOut(project=project_out(project)))


async def patch_project(request: Request) -> Response:
    """Change a project's names, notes, policy, language of search and consolidation; archive it, or bring it back."""
    principal = await caller(request, Principal)
    body, size = await read_sized(request, ProjectChangeIn)
    change = ProjectChange(
        name=UNSET if body.name is UNSET else clean_name(body.name, at="$.name"),
        canonical_id=body.canonical_id,
        aliases=UNSET if body.aliases is UNSET else body.aliases or [],
        metadata=UNSET if body.metadata is UNSET else await clean_metadata(body.metadata, size),
        policy=UNSET if body.generation_policy is UNSET else clean_policy(body.generation_policy),
        retention=UNSET if body.retention is UNSET else body.retention or RetentionPolicy(),
        search_language=body.search_language,
        consolidation=body.consolidation,
        merge_with_model=body.merge_with_model,
        isolated=body.isolated,
        archived=body.archived,
    )
    project = await db(request).in_tenant(
        principal.team_id, lambda conn: change_project.change(conn, principal, str(request.path_params["project"]), change)
    )
    forget(request, principal)
    return answer(OneProjectOut(project=project_out(project)))


routes = [
    get("/v1/projects", get_projects, "observations:read", ProjectsOut, query=ProjectsQuery),
    post("/v1/projects", post_project, "events:write", {200: OneProjectOut, 201: OneProjectOut}, body=ProjectIn),
    get("/v1/projects/{project:path}", get_project, "observations:read", OneProjectOut),
    patch("/v1/projects/{project:path}", patch_project, "admin", OneProjectOut, body=ProjectChangeIn),
]
