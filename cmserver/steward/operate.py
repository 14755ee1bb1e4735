"""What people do with the steward: look at it, switch it, and let it look for work."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from cmserver.access import audit
from cmserver.access.model import Principal
from cmserver.base import paging
from cmserver.base.db import Db
from cmserver.base.errors import Conflict, Forbidden, NotFound
from cmserver.base.settings import Settings
from cmserver.base.sql import Conn
from cmserver.generation.model import Job
from cmserver.generation.operate import repository as queue
from cmserver.generation.operate.model import JobEvent
from cmserver.steward import model as steward_model
from cmserver.steward import repository
from cmserver.steward.plan import plan_team
from cmserver.steward.policies import thresholds
from cmserver.steward.runs import repository as runs

NO_RUN = "There is no such run."
_TEAM_ONLY = "This key is bound to one project. What the steward of the team may do is set with a key without a project."
_MAX_EVENTS = 1_000


class StewardStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the steward may do, what it has to do, and how it does."""

    team: steward_model.TeamMode
    projects: list[steward_model.ProjectExecutors]
    queue: steward_model.QueueHealth
    figures: steward_model.RunFigures
    failures: list[steward_model.RunFailure]
    breaker: steward_model.Breaker
    policies: dict[str, float]


class RunDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A run with its job and the job's history; a tuning of thresholds has neither."""

    run: steward_model.StewardRun
    job: Job | None
    events: list[JobEvent]


async def read_status(conn: Conn, principal: Principal) -> StewardStatus:
    """Of the whole team, or of the project that the key is bound to."""
    team_id, project_id = principal.team_id, principal.project_id
    return StewardStatus(
        team=await repository.mode(conn, team_id),
        projects=[row for row in await repository.project_executors(conn, team_id) if principal.sees(row.project_id)],
        queue=await repository.queue_health(conn, team_id, project_id),
        figures=await runs.figures(conn, team_id, project_id),
        failures=await runs.failures(conn, team_id, project_id),
        breaker=await runs.breaker(conn, team_id),
        policies=await thresholds.read_values(conn, team_id),
    )


async def set_mode(
    conn: Conn,
    principal: Principal,
    *,
    mode: steward_model.Mode | None = None,
    is_paused: bool | None = None,
    executors: Sequence[steward_model.JobType] | None = None,
) -> steward_model.TeamMode:
    """Change what is not None. It holds for every write after this transaction, also of jobs that are running."""
    require_team_key(principal)
    old = await repository.mode(conn, principal.team_id)
    new = steward_model.TeamMode(
        mode=mode or old.mode,
        is_paused=old.is_paused if is_paused is None else is_paused,
        executors=old.executors if executors is None else list(executors),
    )
    await repository.set_mode(conn, principal.team_id, new, changed_by=principal.actor_id)
    await audit.record(
        conn,
        principal,
        "steward.mode_changed",
        "team",
        principal.team_id,
        before=old.mode,
        mode=new.mode,
        paused=new.is_paused,
        executors=new.executors,
    )
    return await repository.mode(conn, principal.team_id)


def require_team_key(principal: Principal) -> None:
    """Raise Forbidden for a key that is bound to a project."""
    if principal.project_id is not None:
        raise Forbidden(_TEAM_ONLY)


async def set_project_executors(
    conn: Conn, principal: Principal, project_id: UUID, executors: Sequence[steward_model.JobType]
) -> list[steward_model.ProjectExecutors]:
    """Narrow what the steward does in a project."""
    await repository.set_project_executors(conn, principal.team_id, project_id, executors, changed_by=principal.actor_id)
    await audit.record(
        conn, principal, "steward.executors_changed", "project", project_id, project_id=project_id, executors=list(executors)
    )
    return [row for row in await repository.project_executors(conn, principal.team_id) if principal.sees(row.project_id)]


async def run_now(
    db: Db, settings: Settings, principal: Principal, *, project_id: UUID | None, job_types: Sequence[steward_model.JobType] | None
) -> list[UUID]:
    """Queue all that there is to do; Conflict while the steward is off or paused."""
    async with db.tenant(principal.team_id) as conn:
        team = await repository.mode(conn, principal.team_id)
        if team.mode == "off":
            raise Conflict("The steward is off. Set the mode dry_run or write first.")
        if team.is_paused:
            raise Conflict("The steward is paused.")
        await audit.record(conn, principal, "steward.run_requested", "team", principal.team_id, project_id=project_id)
    return await plan_team(
        db,
        settings,
        principal.team_id,
        project_id=project_id if project_id is not None else principal.project_id,
        job_types=job_types or steward_model.JOB_TYPES,
        trigger_reason=f"asked for by {principal.actor_id}",
    )


async def list_runs(
    conn: Conn,
    principal: Principal,
    *,
    project_id: UUID | None,
    status: str | None,
    job_type: str | None,
    limit: int,
    cursor: str | None,
) -> tuple[list[steward_model.StewardRun], str | None]:
    """A page of runs, newest first, and the cursor of the next page."""
    before, before_id = paging.place(cursor)
    rows = await runs.newest(
        conn,
        principal.team_id,
        project_id=project_id if project_id is not None else principal.project_id,
        status=status,
        job_type=job_type,
        before=before,
        before_id=before_id,
        limit=limit + 1,
    )
    return paging.page(rows, limit, lambda run: (run.created_at, run.id))


async def read_run(conn: Conn, principal: Principal, run_id: UUID | None) -> RunDetail:
    run = await find_run(conn, principal, run_id)
    job = await queue.by_id(conn, principal.team_id, None, run.job_id)
    events = await queue.job_events(conn, principal.team_id, run.job_id, after=0, limit=_MAX_EVENTS)
    return RunDetail(run=run, job=job, events=events)


async def find_run(conn: Conn, principal: Principal, run_id: UUID | None) -> steward_model.StewardRun:
    """The run, or NotFound also when the key may not see its project."""
    run = None if run_id is None else await runs.by_id(conn, principal.team_id, run_id)
    if run is None or not principal.sees(run.project_id):
        raise NotFound(NO_RUN)
    return run
