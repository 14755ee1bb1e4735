"""The steward: what it may do, what it did, how that is taken back, and its thresholds."""

from __future__ import annotations

from typing import get_args

import msgspec
from starlette.responses import Response

from cmserver.access.projects import Projects
from cmserver.base.settings import Settings
from cmserver.base.text import Key
from cmserver.doors.web.page import Page
from cmserver.doors.web.pages.memory import list_projects
from cmserver.doors.web.templates import format_json
from cmserver.doors.web.visit import Visit
from cmserver.steward import operate
from cmserver.steward.model import JOB_TYPES, POLICIES, JobType, Mode, RunStatus
from cmserver.steward.policies import repository as policies
from cmserver.steward.policies import thresholds
from cmserver.steward.undo import list_effects, undo_run

_PAGE = 50
_POLICY_CHANGES = 100
BADGES = {
    "succeeded": "good",
    "failed": "bad",
    "skipped": "",
    "write": "good",
    "dry_run": "info",
    "off": "",
}
"""The colour of a mode's or a run's badge."""


class ModeForm(msgspec.Struct, frozen=True, kw_only=True):
    """What the steward of the team may do."""

    mode: Mode
    paused: bool = False
    executors: list[JobType] = []


class ProjectExecutorsForm(msgspec.Struct, frozen=True, kw_only=True):
    """What it may do in one project, of what the team lets it."""

    project: Key
    executors: list[JobType] = []


class RunNowForm(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing is filled in."""


class RunFilters(msgspec.Struct, frozen=True, kw_only=True):
    """The filters in the address."""

    project: str | None = None
    status: RunStatus | None = None
    job_type: JobType | None = None
    cursor: str | None = None


async def get_steward(visit: Visit) -> Response:
    """What the steward may do, what waits, and how the last runs went."""
    principal = visit.principal
    async with visit.tenant() as conn:
        status = await operate.read_status(conn, principal)
        projects = await list_projects(conn, principal)
    return visit.render(
        "steward.html",
        title="Steward",
        steward=status,
        projects=projects,
        modes=get_args(Mode),
        job_types=JOB_TYPES,
        badges=BADGES,
        may_switch=visit.may("admin") and principal.project_id is None,
    )


async def post_mode(visit: Visit) -> Response:
    """Switch the steward off, to a dry run, or to writing; pause it; choose what it may do."""
    form = await visit.form(ModeForm)
    async with visit.tenant() as conn:
        await operate.set_mode(conn, visit.principal, mode=form.mode, is_paused=form.paused, executors=form.executors)
    return visit.redirect("/ui/steward", "Saved: it holds for the next write, also of a job that is running.")


async def post_project(visit: Visit) -> Response:
    """Narrow what the steward may do in one project."""
    form = await visit.form(ProjectExecutorsForm)
    project_id = await visit.dependency(Projects).within(visit.principal, form.project)
    assert project_id is not None
    async with visit.tenant() as conn:
        await operate.set_project_executors(conn, visit.principal, project_id, form.executors)
    return visit.redirect("/ui/steward", "Saved: it holds for the next write, also of a job that is running.")


async def post_run(visit: Visit) -> Response:
    """Queue all that there is for the steward to do."""
    await visit.form(RunNowForm)
    queued = await operate.run_now(visit.db, visit.dependency(Settings), visit.principal, project_id=None, job_types=None)
    return visit.redirect("/ui/steward", f"{len(queued)} job{' was' if len(queued) == 1 else 's were'} queued.")


async def get_runs(visit: Visit) -> Response:
    """What the steward did and decided, newest first."""
    filters = visit.query(RunFilters)
    principal = visit.principal
    project_id = await visit.dependency(Projects).within(principal, filters.project)
    async with visit.tenant() as conn:
        runs, next_cursor = await operate.list_runs(
            conn,
            principal,
            project_id=project_id,
            status=filters.status,
            job_type=filters.job_type,
            limit=_PAGE,
            cursor=filters.cursor,
        )
        projects = await list_projects(conn, principal)
    return visit.render(
        "steward_runs.html",
        title="Runs of the steward",
        runs=runs,
        projects=projects,
        filters=filters,
        parameters=msgspec.structs.asdict(filters),
        next_cursor=next_cursor,
        statuses=get_args(RunStatus),
        job_types=JOB_TYPES,
        badges=BADGES,
    )


async def get_run(visit: Visit) -> Response:
    """One run: what it looked at, decided and wrote, and the steps of its job."""
    async with visit.tenant() as conn:
        detail = await operate.read_run(conn, visit.principal, visit.id_parameter("run"))
    run = detail.run
    output = run.output_snapshot or {}
    return visit.render(
        "steward_run.html",
        title=f"Run of {run.job_type}",
        run=run,
        job=detail.job,
        input_text=format_json(run.input_snapshot) if run.input_snapshot else "",
        decision=output.get("decision"),
        reasons=output.get("reasons") or [],
        skipped=output.get("skipped") or [],
        confidence=output.get("confidence"),
        proposals=[format_json(proposal) for proposal in msgspec.convert(output.get("proposals") or [], list[object])],
        effects=list_effects(run),
        badges=BADGES,
    )


async def post_undo(visit: Visit) -> Response:
    """Take back all that a run wrote, or name the later act that stands in the way."""
    principal, run_id = visit.principal, visit.id_parameter("run")
    _, undone = await visit.db.in_tenant(visit.team_id, lambda conn: undo_run(conn, principal, run_id))
    count = len(undone)
    return visit.redirect(visit.path.removesuffix("/undo"), f"{count} effect{' was' if count == 1 else 's were'} taken back.")


async def get_policies(visit: Visit) -> Response:
    """The steward's thresholds with their bounds, and each change with what spoke for it."""
    async with visit.tenant() as conn:
        values = await thresholds.read_values(conn, visit.team_id)
        changes = await policies.history(conn, visit.team_id, policy_key=None, limit=_POLICY_CHANGES)
    taken_back = {change.rollback_of_id for change in changes}
    return visit.render(
        "steward_policies.html",
        title="Policies of the steward",
        policies=[(key, bounds, values[key]) for key, bounds in POLICIES.items()],
        changes=changes,
        changed={change.policy_key for change in changes if change.rollback_of_id is None and change.id not in taken_back},
        may_switch=visit.may("admin") and visit.principal.project_id is None,
    )


async def post_rollback(visit: Visit) -> Response:
    """Take back the last change of a threshold that was not taken back yet."""
    principal, key = visit.principal, visit.parameter("policy")
    operate.require_team_key(principal)
    change = await visit.db.in_tenant(visit.team_id, lambda conn: thresholds.roll_back(conn, principal, key))
    return visit.redirect("/ui/steward/policies", f"{key} is {change.new_value:g} again.")


_READ = "observations:read"

routes = [
    Page("GET", "/ui/steward", get_steward, scope=_READ),
    Page("POST", "/ui/steward/mode", post_mode, scope="admin", form_of=get_steward),
    Page("POST", "/ui/steward/projects", post_project, scope="admin", form_of=get_steward),
    Page("POST", "/ui/steward/run", post_run, scope="admin", form_of=get_steward),
    Page("GET", "/ui/steward/runs", get_runs, scope=_READ),
    Page("GET", "/ui/steward/runs/{run}", get_run, scope=_READ),
    Page("POST", "/ui/steward/runs/{run}/undo", post_undo, scope="admin", form_of=get_run),
    Page("GET", "/ui/steward/policies", get_policies, scope=_READ),
    Page("POST", "/ui/steward/policies/{policy}/rollback", post_rollback, scope="admin", form_of=get_policies),
]
