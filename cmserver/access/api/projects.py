"""Projects over HTTP."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import change_project, projects, repository
from cmserver.access.api.given import Metadata, Name, clean_metadata, clean_name, clean_policy, forget, read_sized
from cmserver.access.change_project import Change
from cmserver.access.model import GenerationPolicy, Principal, SearchLanguage
from cmserver.access.wire import ProjectOut, project_out
from cmserver.base.errors import Invalid
from cmserver.base.http.operation import Operation
from cmserver.base.http.wire import answer, caller, db, query
from cmserver.base.ids import named_id
from cmserver.base.paging import Limit, page, place
from cmserver.base.redaction.redact import redact
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
    """PATCH of a project: what is not sent stays. `aliases` are all there shall be; an older `canonicalId` stays as one of them.

    Under another `searchLanguage` all its texts are made ready to be found anew before there is an answer: some seconds for 10,000.
    """

    name: Name | UnsetType = UNSET
    canonical_id: Key | UnsetType = UNSET
    aliases: Annotated[list[Key], Meta(max_length=100)] | UnsetType | None = UNSET
    metadata: Metadata | UnsetType | None = UNSET
    generation_policy: GenerationPolicy | UnsetType | None = UNSET
    search_language: SearchLanguage | UnsetType = UNSET
    archived: bool | UnsetType = UNSET


class OneProjectOut(msgspec.Struct, frozen=True, kw_only=True):
    """One project."""

    project: ProjectOut


class ProjectsOut(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Newest first; `nextCursor` is null on the last page."""

    projects: list[ProjectOut]
    next_cursor: str | None


async def get_projects(request: Request) -> Response:
    """A page of the team's projects, newest first; for a key that is bound to a project, only that one."""
    who = await caller(request, Principal)
    asked = query(request, ProjectsQuery)
    before, before_id = place(asked.cursor)
    async with db(request).tenant(who.team_id) as conn:
        rows = await repository.projects(
            conn,
            who.team_id,
            only=who.project_id,
            archived=asked.archived,
            before=before,
            before_id=before_id,
            limit=asked.limit + 1,
        )
    shown, more = page(rows, asked.limit, lambda one: (one.created_at, one.id))
    return answer(ProjectsOut(projects=[project_out(one) for one in shown], next_cursor=more))


async def post_project(request: Request) -> Response:
    """Make a project, or find it when it is there."""
    who = await caller(request, Principal)
    asked, size = await read_sized(request, ProjectIn)
    if named_id(asked.canonical_id):
        raise Invalid.at(
            "$.canonicalId", "A project is made by its canonical id (github.com/user/repo, a name, a path), not by a uuid."
        )
    name = redact(asked.name)[0].strip() if asked.name else None
    metadata = await clean_metadata(request, asked.metadata, size)
    try:
        project, is_new = await db(request).in_tenant(
            who.team_id,
            lambda conn: projects.make_project(
                conn, who, asked.canonical_id, name=name, metadata=metadata, search_language=asked.search_language
            ),
        )
    except Invalid as error:
        raise Invalid.at("$.canonicalId", str(error)) from error
    return answer(OneProjectOut(project=project_out(project)), 201 if is_new else 200)


async def get_project(request: Request) -> Response:
    """One project by any of its names; an archived one by its id."""
    who = await caller(request, Principal)
    async with db(request).tenant(who.team_id) as conn:
        project = await projects.one(conn, who, str(request.path_params["project"]))
    return answer(OneProjectOut(project=project_out(project)))


async def patch_project(request: Request) -> Response:
    """Change what a project is called, its aliases, notes, policy and language of search; archive it, or bring it back."""
    who = await caller(request, Principal)
    asked, size = await read_sized(request, ProjectChangeIn)
    change = Change(
        name=UNSET if asked.name is UNSET else clean_name(asked.name, at="$.name"),
        canonical_id=asked.canonical_id,
        aliases=UNSET if asked.aliases is UNSET else asked.aliases or [],
        metadata=UNSET if asked.metadata is UNSET else await clean_metadata(request, asked.metadata, size),
        policy=UNSET if asked.generation_policy is UNSET else clean_policy(asked.generation_policy),
        search_language=asked.search_language,
        archived=asked.archived,
    )
    project = await db(request).in_tenant(
        who.team_id, lambda conn: change_project.change(conn, who, str(request.path_params["project"]), change)
    )
    forget(request, who)
    return answer(OneProjectOut(project=project_out(project)))


routes = [
    Operation("GET", "/v1/projects", get_projects, scope="observations:read", query=ProjectsQuery, answers={200: ProjectsOut}),
    Operation(
        "POST", "/v1/projects", post_project, scope="events:write", body=ProjectIn, answers={200: OneProjectOut, 201: OneProjectOut}
    ),
    Operation("GET", "/v1/projects/{project:path}", get_project, scope="observations:read", answers={200: OneProjectOut}),
    Operation(
        "PATCH", "/v1/projects/{project:path}", patch_project, scope="admin", body=ProjectChangeIn, answers={200: OneProjectOut}
    ),
]
