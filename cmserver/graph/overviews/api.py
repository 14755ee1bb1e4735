"""The page about a project over HTTP."""

from __future__ import annotations

from cmserver.access import verb
from cmserver.access.projects import Projects
from cmserver.access.verb import VerbCall
from cmserver.base.db import Db
from cmserver.graph.overviews.make import make_overview, read_overview
from cmserver.graph.overviews.wire import ProjectOverviewOut, overview_out
from cmserver.graph.overviews.writer import OverviewWriter


@verb.get("/v1/projects/{project:path}/overview", "observations:read")
async def get_overview(call: VerbCall, given: str) -> ProjectOverviewOut:
    """The page about a project: what it is, its parts, the present work and what is open; null when there is none yet."""
    project = await call.dependency(Projects).find(call.principal, given)
    async with call.read() as conn:
        return overview_out(await read_overview(conn, call.principal, project.id))


@verb.post("/v1/projects/{project:path}/overview", "observations:write")
async def post_overview(call: VerbCall, given: str) -> ProjectOverviewOut:
    """Make the page about a project anew; 409 when nothing is remembered of it."""
    return overview_out(await make_overview(call.dependency(Db), call.dependency(OverviewWriter), call.principal, given))


routes = [get_overview, post_overview]
