"""The steward over HTTP."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from cmserver.access.model import Principal
from cmserver.access.projects import Projects
from cmserver.base.errors import Invalid
from cmserver.base.http.operation import get, post, put
from cmserver.base.http.wire import answer, caller, db, dependency, query, read
from cmserver.base.ids import named_id
from cmserver.base.settings import Settings
from cmserver.base.structs import reshape
from cmserver.steward import operate, repository, wire
from cmserver.steward.policies import repository as policies
from cmserver.steward.policies import thresholds
from cmserver.steward.undo import undo_run


async def get_status(request: Request) -> Response:
    """What the steward may do and has to do, and how it does."""
    principal = await caller(request, Principal)
    async with db(request).tenant(principal.team_id) as conn:
        status = await operate.read_status(conn, principal)
    return answer(wire.status_out(status))


async def get_acts(request: Request) -> Response:
    """What happened by itself in the last seven days: merges, repeats, closed open ends, and what the steward wrote."""
    principal = await caller(request, Principal)
    wanted = query(request, wire.ActsQuery)
    project_id = await dependency(request, Projects).within(principal, wanted.project)
    async with db(request).tenant(principal.team_id) as conn:
        acts = await repository.automatic_acts(conn, principal.team_id, project_id, wanted.limit)
    return answer(wire.ActsOut(acts=[reshape(act, wire.ActOut, why=act.why) for act in acts]))


async def put_mode(request: Request) -> Response:
    """Switch the steward of the team off, to a dry run, or to writing; pause it; choose executors, also of one project."""
    principal = await caller(request, Principal)
    change = await read(request, wire.ModeIn)
    project_id = await dependency(request, Projects).within(principal, change.project)
    if change.project is not None and (change.mode is not None or change.paused is not None or change.executors is None):
        raise Invalid.at("$.project", "With a project send `executors`, and neither `mode` nor `paused`: those are the team's.")
    async with db(request).tenant(principal.team_id) as conn:
        if change.project is not None and project_id is not None:
            await operate.set_project_executors(conn, principal, project_id, change.executors or [])
        else:
            await operate.set_mode(conn, principal, mode=change.mode, is_paused=change.paused, executors=change.executors)
        status = await operate.read_status(conn, principal)
    return answer(wire.status_out(status))


async def post_run(request: Request) -> Response:
    """Queue all that there is to do at once; 409 while the steward is off or paused."""
    principal = await caller(request, Principal)
    wanted = await read(request, wire.RunNowIn)
    project_id = await dependency(request, Projects).within(principal, wanted.project)
    queued = await operate.run_now(
        db(request), dependency(request, Settings), principal, project_id=project_id, job_types=wanted.executors
    )
    return answer(wire.QueuedJobsOut(queued=queued), 202)


async def get_runs(request: Request) -> Response:
    """What the steward did, newest first."""
    principal = await caller(request, Principal)
    page = query(request, wire.RunsQuery)
    project_id = await dependency(request, Projects).within(principal, page.project)
    async with db(request).tenant(principal.team_id) as conn:
        runs, next_cursor = await operate.list_runs(
            conn,
            principal,
            project_id=project_id,
            status=page.status,
            job_type=page.job_type,
            limit=page.limit,
            cursor=page.cursor,
        )
    return answer(wire.StewardRunsOut(runs=[*map(wire.run_out, runs)], next_cursor=next_cursor))


async def get_run(request: Request) -> Response:
    """One run: what it looked at, decided and wrote, and the timeline of its job."""
    principal = await caller(request, Principal)
    run_id = named_id(str(request.path_params["id"]))
    async with db(request).tenant(principal.team_id) as conn:
        detail = await operate.read_run(conn, principal, run_id)
    return answer(wire.detail_out(detail))


async def post_undo(request: Request) -> Response:
    """Take back all that a run wrote; 409 names the later act that stands in the way, and then nothing is changed."""
    principal = await caller(request, Principal)
    run_id = named_id(str(request.path_params["id"]))
    run, undone = await db(request).in_tenant(principal.team_id, lambda conn: undo_run(conn, principal, run_id))
    return answer(wire.undone_out(run, undone))


async def get_policies(request: Request) -> Response:
    """The steward's thresholds, their bounds, and their changes with the evidence."""
    principal = await caller(request, Principal)
    page = query(request, wire.PolicyHistoryQuery)
    async with db(request).tenant(principal.team_id) as conn:
        values = await thresholds.read_values(conn, principal.team_id)
        history = await policies.history(conn, principal.team_id, policy_key=page.key, limit=page.limit)
    return answer(wire.policies_out(values, history))


async def post_rollback(request: Request) -> Response:
    """Take back the last change of a threshold that was not taken back yet."""
    principal = await caller(request, Principal)
    operate.require_team_key(principal)
    key = str(request.path_params["key"])
    change = await db(request).in_tenant(principal.team_id, lambda conn: thresholds.roll_back(conn, principal, key))
    return answer(wire.OnePolicyChangeOut(change=reshape(change, wire.PolicyChangeOut)))


routes = [
    get("/v1/steward", get_status, "observations:read", wire.StewardStatusOut),
    put("/v1/steward/mode", put_mode, "admin", wire.StewardStatusOut, body=wire.ModeIn),
    post("/v1/steward/run", post_run, "admin", wire.QueuedJobsOut, status=202, body=wire.RunNowIn),
    get("/v1/acts", get_acts, "observations:read", wire.ActsOut, query=wire.ActsQuery),
    get("/v1/steward/runs", get_runs, "observations:read", wire.StewardRunsOut, query=wire.RunsQuery),
    get("/v1/steward/runs/{id}", get_run, "observations:read", wire.StewardRunDetailOut),
    post("/v1/steward/runs/{id}/undo", post_undo, "admin", wire.UndoneRunOut),
    get("/v1/steward/policies", get_policies, "observations:read", wire.PoliciesOut, query=wire.PolicyHistoryQuery),
    post("/v1/steward/policies/{key}/rollback", post_rollback, "admin", wire.OnePolicyChangeOut),
]
