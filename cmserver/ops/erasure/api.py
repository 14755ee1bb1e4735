"""Erasure over HTTP."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import announce
from cmserver.access.model import Principal
from cmserver.base.http.operation import delete
from cmserver.base.http.wire import answer, caller, db, dependency, query
from cmserver.base.notifications import NotificationListener
from cmserver.base.structs import reshape
from cmserver.ops.erasure import erase, session, wire


async def delete_memory(request: Request) -> Response:
    """Erase all that a project remembers, and keep the project and its keys."""
    principal = await caller(request, Principal)
    name = str(request.path_params["project"])
    project_id, counts = await db(request).in_tenant(
        principal.team_id, lambda conn: erase.purge(conn, principal, name), has_time_limit=False
    )
    return answer(wire.PurgedProjectOut(project_id=project_id, counts=counts))


async def delete_project(request: Request) -> Response:
    """Delete a project with its memory and the keys that are bound to it."""
    principal = await caller(request, Principal)
    name = str(request.path_params["project"])
    project_id, counts = await db(request).in_tenant(
        principal.team_id, lambda conn: erase.delete_project(conn, principal, name), has_time_limit=False
    )
    announce.drop_cached_here(dependency(request, NotificationListener), principal.team_id)
    return answer(wire.DeletedProjectOut(project_id=project_id, counts=counts))


async def delete_session(request: Request) -> Response:
    """Delete a session with all that was drawn from it: events, turns, observations, vectors, jobs and receipts.

    With `?dryRun=true` it is only counted.
    """
    principal = await caller(request, Principal)
    is_dry = query(request, wire.SessionErasureQuery).dry_run
    session_id, rows = await session.delete_session(db(request), principal, str(request.path_params["id"]), dry_run=is_dry)
    counts = reshape(rows, wire.SessionErasureCounts)
    return answer(wire.DeletedSessionOut(session_id=session_id, counts=counts, merged=rows.merged, deleted=not is_dry))


async def delete_team(request: Request) -> Response:
    """Delete the key's team with everything in it; the key works no longer."""
    principal = await caller(request, Principal)
    name = str(request.path_params["team"])
    counts = await db(request).in_tenant(
        principal.team_id, lambda conn: erase.delete_team(conn, principal, name), has_time_limit=False
    )
    announce.drop_cached_here(dependency(request, NotificationListener), principal.team_id)
    return answer(wire.DeletedTeamOut(team_id=principal.team_id, counts=counts))


routes = [
    delete("/v1/projects/{project:path}/memory", delete_memory, "observations:write", wire.PurgedProjectOut),
    delete("/v1/sessions/{id}", delete_session, "observations:write", wire.DeletedSessionOut, query=wire.SessionErasureQuery),
    delete("/v1/projects/{project:path}", delete_project, "admin", wire.DeletedProjectOut),
    delete("/v1/teams/{team}", delete_team, "admin", wire.DeletedTeamOut),
]
