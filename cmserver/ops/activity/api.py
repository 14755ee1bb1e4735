"""The activity of a project over HTTP."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.base.http.operation import get
from cmserver.base.http.wire import answer, caller, db
from cmserver.ops.activity.read import read_activity
from cmserver.ops.activity.wire import ProjectActivityOut, activity_out


async def get_activity(request: Request) -> Response:
    """What goes on in a project: observations and sessions by day, kinds, and the files that are most remembered."""
    principal = await caller(request, Principal)
    async with db(request).tenant(principal.team_id) as conn:
        activity = await read_activity(conn, principal, str(request.path_params["project"]))
    return answer(activity_out(activity))


routes = [get("/v1/projects/{project:path}/activity", get_activity, "observations:read", ProjectActivityOut)]
