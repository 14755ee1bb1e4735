"""The machinery of the queue: lanes, providers with their pauses, and workers with their leases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
from starlette.responses import Response

from cmserver.access.projects import Projects
from cmserver.base.settings import Settings
from cmserver.doors.web.page import Page
from cmserver.doors.web.pages.memory import list_projects, names_of_work
from cmserver.doors.web.visit import Visit
from cmserver.generation.job_notifier import JobNotifier
from cmserver.generation.leases import repository as leases
from cmserver.generation.operate import repository as queue
from cmserver.generation.operate.model import LaneState
from cmserver.generation.operate.words import explain_lane
from cmserver.models.providers.registry import chain_models
from cmserver.ops.model_health import describe_wording, read_model_health
from cmserver.ops.provider_pauses import list_providers, resume_paused_provider

_MAX_LANES = 100
_MISSED_HEARTBEATS = 4
"""After so many a worker is called silent, although its lease may hold for long."""


class LaneFilters(msgspec.Struct, frozen=True, kw_only=True):
    """The filters in the address."""

    project: str | None = None
    state: LaneState | None = None


async def get_lanes(visit: Visit) -> Response:
    """The lanes that have work: the queue of each session, and what it waits for."""
    filters = visit.query(LaneFilters)
    project_id = await visit.dependency(Projects).within(visit.principal, filters.project)
    async with visit.tenant() as conn:
        lanes = await queue.lanes(conn, visit.team_id, project_id=project_id, state=filters.state, limit=_MAX_LANES)
        projects = await list_projects(conn, visit.principal)
        names, labels = await names_of_work(
            conn,
            visit.principal,
            [lane.project_id for lane in lanes],
            [lane.session_id for lane in lanes],
            of_project=project_id,
        )
    return visit.render(
        "lanes.html",
        title="Lanes",
        lanes=lanes,
        max_lanes=_MAX_LANES,
        names=names,
        labels=labels,
        explain=explain_lane,
        filters=filters,
        projects=projects,
    )


async def get_providers(visit: Visit) -> Response:
    """The providers that generate observations, and their pauses."""
    providers = await list_providers(visit.db, visit.principal, visit.dependency(Settings))
    async with visit.tenant() as conn:
        answers = await read_model_health(conn, visit.dependency(Settings), visit.principal)
    wording = describe_wording(visit.dependency(Settings), answers)
    in_use = {model.name for model in chain_models(visit.dependency(Settings))}
    return visit.render("providers.html", title="Providers", providers=providers, in_use=in_use, answers=answers, wording=wording)


async def post_resume(visit: Visit) -> Response:
    """End a provider's pause early, in the whole server."""
    name = visit.parameter("provider")
    was_paused = await resume_paused_provider(
        visit.db, visit.dependency(JobNotifier), visit.principal, name, visit.dependency(Settings)
    )
    return visit.redirect("/ui/jobs/providers", f"{name} is asked again." if was_paused else f"{name} was not paused.")


async def get_workers(visit: Visit) -> Response:
    """The workers of the server, and whether their leases hold."""
    async with visit.db.system() as conn:
        workers = await leases.WORKERS.all(conn)
    now, overdue = datetime.now(UTC), timedelta(seconds=_MISSED_HEARTBEATS * visit.dependency(Settings).heartbeat_seconds)
    silent = {
        worker.worker_id: (
            (now - worker.last_heartbeat).total_seconds(),
            worker.last_heartbeat + timedelta(seconds=worker.lease_seconds),
        )
        for worker in workers
        if worker.alive and worker.last_heartbeat and now - worker.last_heartbeat > overdue
    }
    return visit.render("workers.html", title="Workers", workers=workers, silent=silent)


routes = [
    Page("GET", "/ui/jobs/lanes", get_lanes, scope="jobs:read"),
    Page("GET", "/ui/jobs/providers", get_providers, scope="jobs:read"),
    Page("POST", "/ui/jobs/providers/{provider}/resume", post_resume, scope="", is_for_operators=True, form_of=get_providers),
    Page("GET", "/ui/jobs/workers", get_workers, scope="", is_for_operators=True),
]
