"""The page about a project over HTTP."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.http.operation import get, post
from cmserver.base.http.wire import answer, caller, db, dependency
from cmserver.graph.overviews.make import make_overview, read_overview
from cmserver.graph.overviews.wire import ProjectOverviewOut, overview_out
from cmserver.graph.overviews.writer import OverviewWriter


async def get_overview(request: Request) -> Response:
    """The page about a project: what it is, its parts, the present work and what is open; null when there is none yet."""
    principal = await caller(request, Principal)
    project = await dependency(request, Projects).find(principal, str(request.path_params["project"]))
    async with db(request).tenant(principal.team_id) as conn:
        overview = await read_overview(conn, principal, project.id)
    return answer(overview_out(overview))


async def post_overview(request: Request) -> Response:
    """Make the page about a project anew; 409 when nothing is remembered of it."""
    principal = await caller(request, Principal)
    name = str(request.path_params["project"])
    overview = await make_overview(db(request), dependency(request, OverviewWriter), principal, name)
    return answer(overview_out(overview))


routes = [
    get("/v1/projects/{project:path}/overview", get_overview, "observations:read", ProjectOverviewOut),
    post("/v1/projects/{project:path}/overview", post_overview, "observations:write", ProjectOverviewOut),
]
