"""Erasure over HTTP."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from cmserver.access import announce, verb
from cmserver.access.model import Principal
from cmserver.access.verb import VerbCall, command
from cmserver.base.db import Db
from cmserver.base.http.operation import delete
from cmserver.base.http.wire import answer, caller, db, dependency
from cmserver.base.notifications import NotificationListener
from cmserver.base.structs import reshape
from cmserver.ops.erasure import erase, session, wire


@command(
    "projects purge",
    lambda result, typed: wire.render_erasure(f"The memory of {typed['project']} is deleted.", result.counts),
    text="Delete the memory of a project (observations, events, sessions, jobs) for ever; the project stays.",
    confirm=lambda typed: f"Delete the whole memory of {typed['project']}, for ever?",
)
@verb.delete("/v1/projects/{project:path}/memory", "observations:write")
async def delete_memory(call: VerbCall, given: str) -> wire.PurgedProjectOut:
    """Erase all that a project remembers, and keep the project and its keys."""
    project_id, counts = await call.dependency(Db).in_tenant(
        call.principal.team_id, lambda conn: erase.purge(conn, call.principal, given), has_time_limit=False, reads_all=True
    )
    return wire.PurgedProjectOut(project_id=project_id, counts=counts)


@command(
    "projects delete",
    lambda result, typed: wire.render_erasure(f"The project {typed['project']} is deleted.", result.counts),
    text="Delete a project and its memory for ever.",
    confirm=lambda typed: f"Delete the project {typed['project']} and its whole memory, for ever?",
)
@verb.delete("/v1/projects/{project:path}", "admin")
async def delete_project(call: VerbCall, given: str) -> wire.DeletedProjectOut:
    """Delete a project with its memory and the keys that are bound to it."""
    project_id, counts = await call.dependency(Db).in_tenant(
        call.principal.team_id, lambda conn: erase.delete_project(conn, call.principal, given), has_time_limit=False, reads_all=True
    )
    call.drop_cached()
    return wire.DeletedProjectOut(project_id=project_id, counts=counts)


@verb.delete("/v1/sessions/{id}", "observations:write")
async def delete_session(call: VerbCall, given: wire.SessionErasureQuery) -> wire.DeletedSessionOut:
    """Delete a session with all that was drawn from it: events, turns, observations, vectors, jobs and receipts.

    With `?dryRun=true` it is only counted.
    """
    database, is_dry = call.dependency(Db), given.dry_run
    session_id, rows = await session.delete_session(database, call.principal, given.id, dry_run=is_dry)
    counts = reshape(rows, wire.SessionErasureCounts)
    return wire.DeletedSessionOut(session_id=session_id, counts=counts, merged=rows.merged, deleted=not is_dry)


async def delete_team(request: Request) -> Response:
    """Delete the key's team with everything in it; the key works no longer."""
    principal = await caller(request, Principal)
    name = str(request.path_params["team"])
    counts = await db(request).in_tenant(
        principal.team_id, lambda conn: erase.delete_team(conn, principal, name), has_time_limit=False, reads_all=True
    )
    announce.drop_cached_here(dependency(request, NotificationListener), principal.team_id)
    return answer(wire.DeletedTeamOut(team_id=principal.team_id, counts=counts))


routes = [
    delete_memory,
    delete_session,
    delete_project,
    delete("/v1/teams/{team}", delete_team, "admin", wire.DeletedTeamOut),
]
